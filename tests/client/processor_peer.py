"""The other end of the wire: a real processor, in a thread of this process."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from sharegroup.client.settings import ChannelTopics
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import Settings
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import InvalidRequestError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import RequestEnvelope, decoded_request
from tests.support.processor_thread import ProcessorThread

TOPICS = ChannelTopics()
REQUESTS, RESPONSES = TOPICS.request_topic_name, TOPICS.response_topic_name
REQUEST_PARTITIONS, RESPONSE_PARTITIONS = 2, 3

BROKER = BrokerConfig(
    group_share_assignment_interval_ms=0,
    group_share_min_record_lock_duration_ms=1_000,
    group_share_heartbeat_interval_ms=1_000,
    group_share_min_heartbeat_interval_ms=1_000,
)


class ProcessorPeer:
    """Responds to requests as long as its `with` block lasts.

    Args:
        log: where requests, responses and records are.
        broker: defaults and limits of all groups.
        table_path: the state table; None is one of the peer's own.
    """

    def __init__(self, log: Log, broker: BrokerConfig = BROKER, table_path: str | None = None) -> None:
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="processor-peer-", ignore_cleanup_errors=True)
        config = ProcessorConfig(
            log_path=log.path if isinstance(log, LocalLog) else None,
            state_table_path=table_path or str(Path(self._folder.name, "state")),
            checkpoint_path=str(Path(self._folder.name, "checkpoint")),
            request_topic_partitions=REQUEST_PARTITIONS,
            response_topic_partitions=RESPONSE_PARTITIONS,
        )
        self._settings = Settings(
            config, broker, {}, {}, {}, log.config if isinstance(log, KafkaLog) else KafkaConfig()
        )
        self._host = ProcessorThread(self._settings)

    def __enter__(self) -> Self:
        self._host.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._host.stop()
        self._folder.cleanup()
        if error is None:
            self._host.raise_failure()

    @property
    def requests(self) -> list[RequestEnvelope]:
        """Everything that members have sent."""
        return [envelope for envelope in self._messages() if envelope.member_id]

    def sent(self, api_key: ApiKey) -> list[RequestEnvelope]:
        """The requests of one kind."""
        return [envelope for envelope in self.requests if envelope.api_key == api_key]

    def stalled(self) -> AbstractContextManager[None]:
        """No message is applied inside the block, as if the processor were down."""
        return self._host.stalled()

    def lose_sessions(self) -> None:
        """Let another processor take over: share sessions, parked fetches and kept responses are lost."""
        self._host.stop()
        self._host = ProcessorThread(self._settings)
        self._host.start()

    def _messages(self) -> list[RequestEnvelope]:
        messages = []
        for partition, offsets in self._log.offsets(REQUESTS).items():
            for record in self._log.read(REQUESTS, partition, offsets.start_offset, offsets.end_offset):
                try:
                    messages.append(decoded_request(record.value))
                except InvalidRequestError:
                    continue
        return messages
