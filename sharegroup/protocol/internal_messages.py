"""Internal messages: the processor, or one actor of a group for the other, appends them to the request log.

An actor ignores one of a lower leader epoch than its own. After a takeover they are made anew, so none is missed:

| message | who makes it anew after a takeover |
|---|---|
| InitializeShareGroupState | the coordinator in its first cut: the rows say which share-partitions are initializing |
| DeleteShareGroupState | the coordinator in its first cut: the rows say which topics are deleting |
| ShareGroupConfigChanged | nobody has to: a leader begins with the configuration of the rows |
| ShareGroupStateInitialized | the leader when the coordinator asks again |
| ShareGroupStateDeleted | the leader when the coordinator asks again |
| LogOffsets | the watcher: both actors begin with watches of their own |
| Tick | the processor sends one to every known group; timers send the later ones |
| DlqWritten, DlqStatusChanged | the dead-letter writer; they say what happened outside, so older ones count, too |
| ProcessorStarted | every processor announces itself |
"""

from __future__ import annotations

from pydantic import Field

from sharegroup.protocol.messages import Int32, Int64, Message, Name

UNINITIALIZED_OFFSET = -1
"""Start offset of a share-partition that `share.auto.offset.reset` decides."""
MAX_PARTITION_COUNT = 100_000
"""Partitions that a topic may have: each of them is state."""


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
    topic_id: Name = Field(description="Topic id; empty when the topic was missing in every look for some seconds.")
    partition_count: int = Field(default=0, ge=0, le=MAX_PARTITION_COUNT, description="Number of partitions.")
    partitions: list[PartitionLogOffsets] = Field(default_factory=list, description="Partitions, any subset.")
    sequence: Int64 = Field(default=0, description="Rises with each look of one processor at which topic has the name.")


class LogOffsets(Message):
    """Offsets of the record log; within one topic id they merge by maximum, so that repeats are harmless."""

    topics: list[TopicLogOffsets] = Field(default_factory=list, description="Topics.")


class Tick(Message):
    """Time has passed."""

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


class StateTopic(Message):
    """Share-partitions of one topic."""

    topic_id: Name = Field(description="Topic id.")
    topic: Name = Field(description="Topic name.")
    partitions: list[StatePartition] = Field(description="Partitions.")


class InitializeShareGroupState(Message):
    """The coordinator asks the leader to initialise share-partitions (key 83), also those that have an older state."""

    state_epoch: Int32 = Field(description="Group epoch at the initialisation: the epoch of the new state.")
    topics: list[StateTopic] = Field(description="Topics.")


class ShareGroupConfigChanged(Message):
    """The coordinator tells the leader the group's dynamic configuration, whole, so that a repeat does no harm."""

    overrides: dict[str, str] = Field(description="Key to value, only what was set.")


class ShareGroupStateInitialized(Message):
    """The leader tells the coordinator which share-partitions have their state."""

    state_epoch: Int32 = Field(default=0, description="The epoch that was asked for; theirs is this one or higher.")
    topics: list[StateTopic] = Field(description="Topics, with the start offset that was chosen.")


class DeleteShareGroupState(Message):
    """The coordinator asks the leader to delete the state of all share-partitions of some topics (key 86)."""

    state_epoch: Int32 = Field(description="Group epoch at the deletion; a state with a higher epoch stays.")
    topic_ids: list[Name] = Field(description="Topic ids.")


class ShareGroupStateDeleted(Message):
    """The leader tells the coordinator that no share-partition of some topics has a state any more."""

    state_epoch: Int32 = Field(description="The epoch of the request that is answered.")
    topic_ids: list[Name] = Field(description="Topic ids.")


class ProcessorStarted(Message):
    """A processor has taken over: older ones stop before they apply what follows, and members reopen their sessions.

    It is appended to every partition of the request log before anything is applied, and then, as an answer to nobody
    with correlation id -1, to every partition of the response log. The leader epoch is the envelope's.
    """

    pid: int = Field(default=0, description="Process id.")
    host: str = Field(default="", description="Host name.")
