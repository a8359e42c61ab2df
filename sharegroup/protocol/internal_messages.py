"""Internal messages: the processor, or one actor of a group for the other, appends them to the request log.

An actor ignores messages of a lower leader epoch than its own. After a takeover they are sent again, so that none is
missed:

| message | sender after a takeover |
|---|---|
| InitializeShareGroupState | the coordinator in its first cut: the rows list the initializing share-partitions |
| DeleteShareGroupState | the coordinator in its first cut: the rows list the topics in deletion |
| ShareGroupConfigChanged | none: a leader begins with the configuration of the rows |
| ShareGroupStateInitialized | the leader when the coordinator asks again |
| ShareGroupStateDeleted | the leader when the coordinator asks again |
| LogOffsets | the watcher: both actors begin with watches of their own |
| Tick | the processor sends one to every known group; timers send the later ones |
| DlqWritten, DlqStatusChanged | the dead-letter writer; they report outside events, so older ones count, too |
| MemberEnded | the watch of member processes, or a helper; it reports an outside event, so an older one counts, too |
| ProcessorStarted | every processor announces itself |
"""

from __future__ import annotations

from pydantic import Field

from sharegroup.protocol.imported_batches import ImportedBatch
from sharegroup.protocol.messages import Int32, Int64, Message, Name

UNINITIALIZED_OFFSET = -1
"""Start offset of a share-partition that `share.auto.offset.reset` decides."""
MAX_PARTITION_COUNT = 100_000
"""Partitions that a topic may have: each of them is state."""
MAX_WRITTEN_RANGES = 1_000
"""Ranges of one message: each of them is looked up in the state."""


class PartitionLogOffsets(Message):
    """Offsets of one partition of the record log, as the processor saw them."""

    partition_index: Int32 = Field(ge=0, description="Partition.")
    start_offset: Int64 = Field(ge=0, description="Log start offset.")
    end_offset: Int64 = Field(ge=0, description="Log end offset, exclusive.")
    last_stable_offset: Int64 = Field(ge=0, description="Last stable offset, exclusive.")
    reset_offset: Int64 = Field(
        default=UNINITIALIZED_OFFSET,
        ge=UNINITIALIZED_OFFSET,
        description="First offset as young as share.auto.offset.reset by duration asks; -1 when it does not.",
    )


class TopicLogOffsets(Message):
    """One topic of the record log, as the processor saw it."""

    topic: Name = Field(description="Topic name.")
    topic_id: Name = Field(description="Topic id; empty when no lookup found the topic for some seconds.")
    partition_count: int = Field(default=0, ge=0, le=MAX_PARTITION_COUNT, description="Number of partitions.")
    partitions: list[PartitionLogOffsets] = Field(default_factory=list, description="Partitions, any subset.")
    sequence: Int64 = Field(default=0, description="Rises with each lookup of the name by one processor.")


class LogOffsets(Message):
    """Offsets of the record log; within one topic id they merge by maximum, so that repeats are harmless."""

    topics: list[TopicLogOffsets] = Field(default_factory=list, description="Topics.")


class Tick(Message):
    """Timer message: time has passed."""

    time_ms: Int64 = Field(
        default=0,
        ge=0,
        description="Time of the request partition when it was sent, carried on from its stamps; epoch ms. It counts "
        "when the stamp of its append is behind, since the broker's clock was put back or runs slower.",
    )


class StatePartition(Message):
    """One share-partition to initialise."""

    partition_index: Int32 = Field(ge=0, description="Partition.")
    start_offset: Int64 = Field(
        default=UNINITIALIZED_OFFSET, ge=UNINITIALIZED_OFFSET, description="SPSO; -1 asks share.auto.offset.reset."
    )
    state_batches: list[ImportedBatch] = Field(
        default_factory=list, description="Records above it that another system has delivered."
    )


class StateTopic(Message):
    """Share-partitions of one topic."""

    topic_id: Name = Field(description="Topic id.")
    topic: Name = Field(description="Topic name.")
    partitions: list[StatePartition] = Field(description="Partitions.")


class InitializeShareGroupState(Message):
    """Request of the coordinator to initialise share-partitions (key 83), also those that have an older state."""

    state_epoch: Int32 = Field(description="Group epoch at the initialisation: the epoch of the new state.")
    topics: list[StateTopic] = Field(description="Topics.")


class ShareGroupConfigChanged(Message):
    """The complete dynamic configuration of the group, from the coordinator to the leader; a repeat has no effect."""

    overrides: dict[str, str] = Field(description="Key to value, only keys that were set.")
    removed_at_offset: int = Field(
        default=-1, description="Last message of a group that was removed: a pause up to it has ended. -1: none."
    )


class ShareGroupStateInitialized(Message):
    """Report of the leader to the coordinator: share-partitions that have their state."""

    state_epoch: Int32 = Field(default=0, description="The epoch that was asked for; theirs is this one or higher.")
    topics: list[StateTopic] = Field(description="Topics, with the start offset that was chosen.")


class DeleteShareGroupState(Message):
    """Request of the coordinator to delete the state of all share-partitions of some topics (key 86)."""

    state_epoch: Int32 = Field(description="Group epoch at the deletion; a state with a higher epoch stays.")
    topic_ids: list[Name] = Field(description="Topic ids.")


class ShareGroupStateDeleted(Message):
    """Report of the leader to the coordinator: topics whose share-partitions have no state any more."""

    state_epoch: Int32 = Field(description="The epoch of the request.")
    topic_ids: list[Name] = Field(description="Topic ids.")


class WrittenDeadLetters(Message):
    """Records of one share-partition whose dead-letter records are written (KIP-1191)."""

    topic_id: Name = Field(description="Topic id of the records.")
    partition_index: Int32 = Field(ge=0, description="Their partition.")
    first_offset: Int64 = Field(ge=0, description="First offset, inclusive.")
    last_offset: Int64 = Field(ge=0, description="Last offset, inclusive.")
    state_epoch: Int32 = Field(description="Epoch of the share-partition's state that gave the records up.")


class DlqWritten(Message):
    """Report of written dead-letter records by range. A repeat has no effect: no record there is still ARCHIVING."""

    ranges: list[WrittenDeadLetters] = Field(max_length=MAX_WRITTEN_RANGES, description="Ranges of offsets.")


class DlqStatusChanged(Message):
    """Report that dead-letter records cannot be written after repeated attempts, or can be written again."""

    failure: Name = Field(default="", description="Cause of the failure; empty when they can be written.")


class MemberEnded(Message):
    """End of a member's process: the member's records are released at once.

    The processor of an embedded log detects it by a lock of the operating system, which ends with the process. In Kafka
    the helper process of the member's process reports it, without a leader epoch.
    """

    member_id: Name = Field(description="Member.")


class ProcessorStarted(Message):
    """Takeover by a processor: older ones stop before they apply later messages, and members reopen their sessions.

    It is appended to every partition of the request log before any message is applied. Then it is appended, as a
    response without request and with correlation id -1, to every partition of the response log. The leader epoch is the
    envelope's.
    """

    pid: int = Field(default=0, description="Process id.")
    host: str = Field(default="", description="Host name.")
    state_id: str = Field(default="", description="Id of the state table; leader epochs of one table rise.")
