"""Results of the AdminClient's read requests, with the names of Kafka's and confluent-kafka's clients."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.protocol.group_description import SHARE, GroupStateName

TopicPartition = tuple[str, int]
"""Topic name and partition."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list.

    Attributes:
        state: its state; UNKNOWN while it is being rebuilt after a failure.
    """

    group_id: str
    state: GroupStateName
    type: str = SHARE
    protocol: str = SHARE


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a group.

    Attributes:
        member_id: id chosen by the client; Kafka's tools call it the consumer id.
        host: host that the client runs on, "" when unknown.
        member_epoch: epoch of its assignment.
        subscribed_topic_names: topics, sorted.
    """

    member_id: str
    client_id: str
    host: str
    member_epoch: int
    assignment: tuple[TopicPartition, ...]
    rack_id: str
    subscribed_topic_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A group and its members.

    Attributes:
        group_epoch: rises with changes of members, subscriptions and topics.
        target_assignment_epoch: group epoch of the assignment.
        quarantine_reason: reason of the quarantine; "" without one.
        is_paused: True if an administrator has paused it; a paused group that is quarantined stays paused.
    """

    group_id: str
    state: GroupStateName
    group_epoch: int
    target_assignment_epoch: int
    partition_assignor: str
    members: tuple[ShareMemberDescription, ...]
    quarantine_reason: str
    is_paused: bool
    pause_reason: str


@dataclass(frozen=True, slots=True)
class SharePartitionOffsetInfo:
    """The position of a group in a share-partition.

    Attributes:
        start_offset: the share-partition start offset (SPSO).
        lag: number of unfinished records (KIP-1226); None when the topic is gone.
    """

    start_offset: int
    leader_epoch: int
    lag: int | None
