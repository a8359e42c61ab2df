"""ShareFetch and ShareAcknowledge, keys 78 and 79 (KIP-932, spec 003)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.protocol.messages import ErrorResponse, Int32, Int64, Message, Name, PartitionIndex, constructed
from sharegroup.protocol.sink_writes import AcquisitionWrite, Sink, UnresolvedWrite

INITIAL_EPOCH = 0
"""Share-session epoch that opens a session."""
FINAL_EPOCH = -1
"""Share-session epoch that closes a session and releases its records."""
MAX_EPOCH = 2**31 - 1
"""The highest share-session epoch."""
SHORTEST_PATIENCE_MS = 500
"""A member waits for its response at least so long, even if its fetch is not to wait for records."""
NOTICE_INTERVAL_MS = 1_000
"""A member that holds records learns once in this time that another member's fetch waits for them."""
MAX_TOPIC_ID_LENGTH = 64
"""Characters of a topic id in a request; a UUID in Kafka's base64 form has 22."""
TopicId = Annotated[str, Field(max_length=MAX_TOPIC_ID_LENGTH)]
"""A topic id that the sender chose: it becomes part of the share session."""
MAX_REDELIVERY_DELAY_MS = 7 * 24 * 60 * 60 * 1_000
"""A returned record can be delayed for at most a week: it holds the start offset meanwhile."""

_ACKNOWLEDGE_TYPES = tuple(AcknowledgeType)


def next_epoch(epoch: int) -> int:
    """Return the share-session epoch after this one; it wraps to 1, since 0 opens a session (KIP-932)."""
    return 1 if epoch >= MAX_EPOCH else epoch + 1


class AcknowledgementRange(Message):
    """Acknowledgements of a range of offsets."""

    first_offset: Int64 = Field(description="First offset, inclusive.")
    last_offset: Int64 = Field(description="Last offset, inclusive.")
    acknowledge_types: list[AcknowledgeType] = Field(
        min_length=1, description="One type for the range or one per offset; 100 is `unread`, our own."
    )
    reason: Name = Field(default="", description="Reason for a gap, for the audit trail.")
    redelivery_delay_ms: Int64 | None = Field(
        default=None,
        ge=0,
        le=MAX_REDELIVERY_DELAY_MS,
        description="Delay before released or unread records are available again, in ms; null is the group's back-off "
        "for released ones, and none for unread ones. Ours.",
    )
    write_version: Int64 = Field(
        default=NO_WRITE, description="Version of the write that they were acquired with; -1 without one. Ours."
    )
    is_begun: bool = Field(
        default=False,
        description="True if a run of that write has begun, or still may: RELEASE, REJECT, UNREAD and GAP apply only "
        "if it is not in the sink. Ours.",
    )

    @field_validator("acknowledge_types", mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        if isinstance(value, list):
            unknown = [code for code in value if code not in _ACKNOWLEDGE_TYPES]
            if unknown:
                raise ValueError(f"unknown acknowledge type {unknown[0]!r}; known are 0 to 4 and 100")
        return value

    @property
    def batch(self) -> AcknowledgementBatch:
        """The engine's form of it."""
        return AcknowledgementBatch(
            self.first_offset,
            self.last_offset,
            tuple(self.acknowledge_types),
            self.redelivery_delay_ms,
            self.write_version,
            self.is_begun,
        )


class FetchPartition(Message):
    """One partition of a request: to fetch from, with acknowledgements, or both."""

    partition_index: PartitionIndex = Field(description="Partition.")
    acknowledgement_batches: list[AcknowledgementRange] = Field(
        default_factory=list, description="Acknowledgements, ascending and without overlaps."
    )


class FetchTopic(Message):
    """Partitions of one topic."""

    topic_id: TopicId = Field(description="Topic id.")
    partitions: list[FetchPartition] = Field(default_factory=list, description="Partitions.")


class ForgottenTopic(Message):
    """Partitions to leave out of the share session from now on."""

    topic_id: TopicId = Field(description="Topic id.")
    partitions: list[Int32] = Field(default_factory=list, description="Partitions.")


class ShareFetchRequest(Message):
    """Request to acquire records of the session's share-partitions, with acknowledgements of earlier ones."""

    share_session_epoch: Int32 = Field(description="0 opens the session, -1 closes it, else one more than before.")
    max_wait_ms: Int32 = Field(default=500, ge=0, description="Maximum wait for records, in ms.")
    max_records: Int32 = Field(default=500, ge=0, description="Records wanted; 0 only acknowledges.")
    batch_size: Int32 = Field(default=500, ge=1, description="Most records in one acquired range.")
    acquire_mode: AcquireMode = Field(default=AcquireMode.BATCH_OPTIMIZED, description="Strictness of max_records.")
    topics: list[FetchTopic] = Field(default_factory=list, description="Partitions to add, and acknowledgements.")
    forgotten_topics_data: list[ForgottenTopic] = Field(default_factory=list, description="Partitions to remove.")
    sink: Sink | None = Field(
        default=None, description="The table that the results of the records are written to exactly once. Ours."
    )


class ShareAcknowledgeRequest(Message):
    """Request to acknowledge records without fetching."""

    share_session_epoch: Int32 = Field(description="-1 closes the session, else one more than before.")
    topics: list[FetchTopic] = Field(default_factory=list, description="Acknowledgements.")


class AcquiredRecords(Message):
    """A range of records that the member now holds."""

    first_offset: Int64 = Field(ge=0, description="First offset, inclusive.")
    last_offset: Int64 = Field(ge=0, description="Last offset, inclusive.")
    delivery_count: Int32 = Field(ge=1, description="Deliveries of each record, this one included.")

    @classmethod
    def of(cls, run: Run) -> AcquiredRecords:
        """Return the message's form of an acquired run."""
        return constructed(
            cls, first_offset=run.first_offset, last_offset=run.last_offset, delivery_count=run.delivery_count
        )

    @model_validator(mode="after")
    def _check_ascending(self) -> Self:
        if self.first_offset > self.last_offset:
            raise ValueError(f"first offset {self.first_offset} is above last offset {self.last_offset}")
        return self


class PartitionResponse(Message):
    """The response for one partition; the fetch and the acknowledgements fail separately."""

    partition_index: PartitionIndex = Field(description="Partition.")
    error_code: Int32 = Field(default=0, description="Error of the fetch; 0 is none.")
    error_message: str = Field(default="", description="Its text.")
    acknowledge_error_code: Int32 = Field(default=0, description="Error of the acknowledgements; 0 is none.")
    acknowledge_error_message: str = Field(default="", description="Its text.")
    is_acknowledged: bool = Field(default=False, description="True if the request had acknowledgements here.")
    acquired_records: list[AcquiredRecords] = Field(default_factory=list, description="Acquired ranges.")


class TopicResponse(Message):
    """The response for one topic."""

    topic_id: Name = Field(description="Topic id.")
    partitions: list[PartitionResponse] = Field(default_factory=list, description="Partitions.")


class ShareFetchResponse(ErrorResponse):
    """The response to a fetch or an acknowledgement."""

    share_session_epoch: Int32 = Field(default=0, description="Epoch of the request.")
    acquisition_lock_timeout_ms: Int32 = Field(default=0, description="Duration of the locks, in ms.")
    lock_deadline_ms: Int64 = Field(default=0, description="End of the locks, epoch ms; 0 when nothing was acquired.")
    isolation_level: IsolationLevel = Field(
        default=IsolationLevel.READ_UNCOMMITTED,
        description="Isolation level of the member's reads: the group's share.isolation.level. Ours.",
    )
    responses: list[TopicResponse] = Field(default_factory=list, description="Topics.")
    write: AcquisitionWrite | None = Field(
        default=None, description="The write for the results of the acquired records; null without a sink. Ours."
    )
    unresolved: list[UnresolvedWrite] = Field(
        default_factory=list, description="Writes of the same sink that the member is to look up. Ours."
    )
    other_member_waits: bool = Field(
        default=False,
        description="True in a notice, which has correlation id -1 and nothing else: a fetch of another member waits "
        "in a share-partition where this member holds records. Ours.",
    )
