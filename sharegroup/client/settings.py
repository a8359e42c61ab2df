"""Settings of a group member: its identity, its fetches, its log, and the topics of its processor."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.processor_config import ProcessorConfig, absolute_path
from sharegroup.core.acquisition import AcquireMode
from sharegroup.errors import ConfigurationError, MissingConfigurationError
from sharegroup.protocol.sink_writes import Sink

LOG_PATH = "log.path"
BOOTSTRAP_SERVERS = "bootstrap.servers"
LOG_KEYS = (LOG_PATH, *KafkaConfig.key_names())
"""Keys with the address of the log."""
CHANNEL_TOPIC_KEYS = ("request.topic.name", "response.topic.name")
"""Names of the topics between members and the processor, if they are not the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Settings of fetches.

    Attributes:
        max_records: records of one fetch; a soft limit with batch_optimized.
        max_ahead_records: if greater than max_records, fetches of an application that waits for them grow up to it.
        fetches_ahead: True to fetch while the application works on records; False to fetch when it asks for more.
        max_poll_records: maximum records of one poll, for members whose application polls; it starts with max_records.
        batch_size: maximum number of records in one acquired range.
        max_wait_ms: how long a fetch waits for records.
        request_timeout_ms: time after which a request is sent again; greater than max_wait_ms.
        acknowledge_timeout_ms: time after which an acknowledgement without a response has failed; None is never.
    """

    max_records: int = 500
    max_ahead_records: int = 0
    fetches_ahead: bool = True
    max_poll_records: int = 0
    batch_size: int = 500
    acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    max_wait_ms: int = 15_000
    request_timeout_ms: int = 30_000
    acknowledge_timeout_ms: int | None = None

    @property
    def may_fetch_ahead(self) -> bool:
        """True if records may be acquired before the application asks for them; with record_limit none are."""
        return self.fetches_ahead and self.acquire_mode is not AcquireMode.RECORD_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTopics:
    """Names of the two topics between members and the processor."""

    request_topic_name: str = ProcessorConfig.model_fields["request_topic_name"].default
    response_topic_name: str = ProcessorConfig.model_fields["response_topic_name"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Settings of a member.

    Attributes:
        max_poll_interval_ms: time without polls after which the member leaves; the next poll joins again. None is
            never.
        sends_refused_apart: True to send acknowledgements that a share-partition refused again, each acquisition's
            with another request: those of records that the member still holds take effect. Kafka's consumers report
            all as refused.
        client_process: host and process id: members of one process die together.
        may_return: True if the member has a checkpoint and may return after any time: its locks end by time only.
        member_id: an earlier member id, whose locks this member takes over; "" creates a new one.
        first_correlation_id: number of the first request. A member that takes over an earlier id begins at a random
            one, or the leader could mistake its first request for one that it has handled.
        sink: the table that the member's results are written to exactly once; None is none.
    """

    group_id: str
    client_id: str = ""
    rack_id: str = ""
    client_host: str = field(default_factory=socket.gethostname)
    client_process: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    fetch: FetchSettings = field(default_factory=FetchSettings)
    max_poll_interval_ms: int | None = None
    sends_refused_apart: bool = False
    may_return: bool = False
    member_id: str = ""
    first_correlation_id: int = 1
    topics: ChannelTopics = field(default_factory=ChannelTopics)
    sink: Sink | None = None


def log_address(config: Mapping[str, object]) -> str | KafkaConfig:
    """Return the log of the LOG_KEYS: an absolute path or an address, or a Kafka cluster.

    Raises:
        ConfigurationError: they contain no log or two, or a value is not acceptable.
    """
    path, servers = config.get(LOG_PATH), config.get(BOOTSTRAP_SERVERS)
    if path and servers:
        raise ConfigurationError(f"{LOG_PATH} and {BOOTSTRAP_SERVERS} are both set.", "A consumer has one log.")
    if servers:
        return KafkaConfig.from_mapping({key: config[key] for key in KafkaConfig.key_names() if key in config})
    if not path:
        raise MissingConfigurationError(
            f"Missing required configuration {BOOTSTRAP_SERVERS} or {LOG_PATH}, which have no default value.",
            f"Set {BOOTSTRAP_SERVERS} for Kafka, or {LOG_PATH}: {ProcessorConfig.model_fields['log_path'].description}",
            LOG_PATH,
        )
    return absolute_path(str(path))


def channel_topics(config: Mapping[str, object]) -> ChannelTopics:
    """Return the topics of the CHANNEL_TOPIC_KEYS."""
    names = {key.replace(".", "_"): str(config[key]) for key in CHANNEL_TOPIC_KEYS if key in config}
    return ChannelTopics(**names)
