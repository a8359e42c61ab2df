"""What a group member is told: who it is, how it fetches, where its processor listens."""

from __future__ import annotations

from dataclasses import dataclass, field

from sharegroup.config.processor import ProcessorConfig
from sharegroup.core.acquisition import AcquireMode


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """What a fetch asks for.

    Attributes:
        max_records: records of one fetch; a soft limit with batch_optimized.
        max_ahead_records: with more than max_records, fetches of an application that waits for them grow up to that.
        batch_size: most records in one acquired range.
        acquire_mode: how strict max_records is.
        max_wait_ms: how long a fetch waits for records.
        request_timeout_ms: time after which a request is sent again; greater than max_wait_ms.
        acknowledge_timeout_ms: time after which an acknowledgement without an answer has failed; None is never.
    """

    max_records: int = 500
    max_ahead_records: int = 0
    batch_size: int = 500
    acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    max_wait_ms: int = 15_000
    request_timeout_ms: int = 30_000
    acknowledge_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTopics:
    """Names of the two topics between members and the processor."""

    request_topic_name: str = ProcessorConfig.model_fields["request_topic_name"].default
    response_topic_name: str = ProcessorConfig.model_fields["response_topic_name"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Who a member is and how it fetches.

    Attributes:
        group_id: the share group.
        client_id: free name, for people.
        rack_id: where the member is; "" is unknown.
        fetch: what a fetch asks for.
        prefetch_count: fetches are sent while fewer acquisitions wait to be taken; one more may come to wait.
        max_poll_interval_ms: the member leaves when nobody asked for records for so long, until somebody does; None
            is never.
        member_id: the member that this process goes on being, whose locks an earlier one has kept; "" is a new one.
        first_correlation_id: number of the first request. Whoever goes on being a member begins anywhere, or the
            leader could take its first request for one that it has answered.
        topics: names of the topics between members and the processor.
    """

    group_id: str
    client_id: str = ""
    rack_id: str = ""
    fetch: FetchSettings = field(default_factory=FetchSettings)
    prefetch_count: int = 1
    max_poll_interval_ms: int | None = None
    member_id: str = ""
    first_correlation_id: int = 1
    topics: ChannelTopics = field(default_factory=ChannelTopics)
