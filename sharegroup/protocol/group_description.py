"""Read-only requests: the list of groups (key 16), a group (77), its configuration (32), its share-partitions (90).

Their fields are those of Kafka's messages, as far as Kafka has them. The group is that of the envelope; the list of
groups has none, and goes to each partition of the request log. Long results come in pages: a request names the
start of its page, a response shows if there are more.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sharegroup.core.state_batches import NO_START_OFFSET
from sharegroup.protocol.group_messages import TopicPartitions
from sharegroup.protocol.messages import ErrorResponse, Int64, Message, Name, PartitionIndex
from sharegroup.protocol.row_payloads import OpenWriteEntry
from sharegroup.protocol.rows import RunEntry

SHARE = "share"
"""Type and protocol of all groups here."""
MAX_FILTERS = 100
"""States or types that a list of groups may be limited to."""
MAX_DESCRIBED_TOPICS = 1_000
"""Topics that one request may name."""


class GroupStateName(StrEnum):
    """State of a group; `Paused` and `Quarantined` are this project's, the others are Kafka's."""

    UNKNOWN = "Unknown"
    DEAD = "Dead"
    EMPTY = "Empty"
    STABLE = "Stable"
    PAUSED = "Paused"
    QUARANTINED = "Quarantined"


class ListGroupsRequest(Message):
    """Request to list the groups of one partition of the request log, by id."""

    states_filter: list[Name] = Field(
        default_factory=list, max_length=MAX_FILTERS, description="Only groups in these states; empty is all."
    )
    after_group_id: Name = Field(default="", description="Only groups after this one.")


class ListedGroup(Message):
    """A group, its type and its state."""

    group_id: Name = Field(description="The share group.")
    protocol_type: str = Field(default=SHARE, description="Protocol of the group.")
    group_state: str = Field(description="State of the group.")
    group_type: str = Field(default=SHARE, description="Type of the group.")


class ListGroupsResponse(ErrorResponse):
    """Groups of one partition of the request log."""

    groups: list[ListedGroup] = Field(default_factory=list, description="Groups, by id.")
    has_more: bool = Field(default=False, description="True if more groups follow the last one.")


class ShareGroupDescribeRequest(Message):
    """Request to describe the group and its members."""


class DescribedMember(Message):
    """A member of the group."""

    member_id: str = Field(description="The member.")
    rack_id: str = Field(default="", description="Its rack; empty when unknown.")
    member_epoch: int = Field(description="Epoch of its assignment.")
    client_id: str = Field(default="", description="Free name of the client.")
    client_host: str = Field(default="", description="Host that the client runs on; empty when unknown.")
    subscribed_topic_names: list[str] = Field(default_factory=list, description="Topics, sorted.")
    assignment: list[TopicPartitions] = Field(
        default_factory=list, description="Partitions that it may fetch from, by topic."
    )


class AwaitedState(Message):
    """An earlier state whose writes into sinks are to be taken over before a group acquires records."""

    state_id: str = Field(description="Its id.")
    ended_ms: int = Field(description="Time of the last commit that the copy of it has; epoch ms.")
    end_offset: int = Field(description="Offset of the request log from which on the group does not know its writes.")


class ShareGroupDescribeResponse(ErrorResponse):
    """The group and its members."""

    coordinator_id: int = Field(default=-1, description="Leader epoch of the processor.")
    coordinator_host: str = Field(default="", description="Host that the processor runs on; empty when unknown.")
    group_state: str = Field(default="", description="State of the group.")
    group_epoch: int = Field(default=0, description="Group epoch.")
    assignment_epoch: int = Field(default=0, description="Group epoch that the assignment was made for.")
    assignor_name: str = Field(default="", description="Assignor in force.")
    members: list[DescribedMember] = Field(default_factory=list, description="Members.")
    initializing: list[TopicPartitions] = Field(
        default_factory=list, description="Share-partitions that are getting a state, by topic."
    )
    is_paused: bool = Field(default=False, description="True if an administrator has paused the group.")
    pause_reason: str = Field(default="", description="Reason for the pause.")
    quarantined_role: str = Field(default="", description="The actor that failed; empty while the group works.")
    quarantine_reason: str = Field(default="", description="Cause of the failure.")
    state_id: str = Field(default="", description="Id of the processor's state.")
    awaited_states: list[AwaitedState] = Field(
        default_factory=list,
        description="Earlier states whose writes into sinks are to be taken over before the group acquires records.",
    )


class DescribeConfigsRequest(Message):
    """Request to describe the group's configuration; a group that does not exist has the defaults."""


class DescribedConfig(Message):
    """A key of the configuration."""

    name: str = Field(description="The key.")
    value: str = Field(description="The value in force.")
    own_value: str | None = Field(default=None, description="The group's own value; None follows the default.")


class DescribeConfigsResponse(ErrorResponse):
    """All keys of the group's configuration."""

    configs: list[DescribedConfig] = Field(default_factory=list, description="Keys, in the order of the documents.")


class DescribedTopicFilter(Message):
    """Share-partitions to describe of one topic."""

    topic_name: Name = Field(description="Topic name.")
    partitions: list[PartitionIndex] | None = Field(
        default=None, max_length=100_000, description="Partitions; None is all of the topic."
    )


class OffsetsPosition(Message):
    """Start of a page: an offset of a share-partition."""

    topic_id: Name = Field(description="Topic id.")
    partition_index: PartitionIndex = Field(description="Partition.")
    offset: Int64 = Field(default=0, ge=0, description="Runs of the share-partition begin here.")


class DescribeShareGroupOffsetsRequest(Message):
    """Request to describe share-partitions of the group."""

    topics: list[DescribedTopicFilter] | None = Field(
        default=None, max_length=MAX_DESCRIBED_TOPICS, description="Topics; None is all."
    )
    include_runs: bool = Field(default=False, description="True if records in flight are described, too.")
    begin: OffsetsPosition | None = Field(default=None, description="Beginning of the page; None is the first one.")


class DescribedPartition(ErrorResponse):
    """A share-partition."""

    partition_index: PartitionIndex = Field(description="Partition.")
    start_offset: int = Field(default=NO_START_OFFSET, description="The SPSO; -1 while it has no state yet.")
    leader_epoch: int = Field(default=-1, description="Leader epoch of the processor.")
    state_epoch: int = Field(default=-1, description="Fencing epoch of the durable state.")
    next_offset: int = Field(default=-1, description="The lowest offset that was never in flight.")
    delivery_complete_count: int = Field(default=0, description="Finished records at or above the SPSO.")
    locked_count: int = Field(default=0, description="Records that members hold.")
    runs: list[RunEntry] = Field(default_factory=list, description="Records in flight, if they were requested.")
    open_writes: list[OpenWriteEntry] = Field(
        default_factory=list, description="Open writes, on the first page of its runs."
    )


class DescribedTopic(Message):
    """Share-partitions of one topic."""

    topic_name: str = Field(description="Topic name.")
    topic_id: str = Field(description="Topic id.")
    partitions: list[DescribedPartition] = Field(description="Partitions, ascending.")


class DescribeShareGroupOffsetsResponse(ErrorResponse):
    """Share-partitions of the group, by topic id and partition."""

    topics: list[DescribedTopic] = Field(default_factory=list, description="Topics.")
    next: OffsetsPosition | None = Field(default=None, description="Beginning of the next page; None after the last.")
    dead_letter_failure: str = Field(default="", description="Why no dead-letter record is written; empty if they are.")
