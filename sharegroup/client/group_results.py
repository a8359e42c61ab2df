"""Results of the AdminClient's read requests, with the names of Kafka's and confluent-kafka's clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TypeVar

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.errors import ApiError
from sharegroup.protocol.group_description import (
    SHARE,
    AwaitedState,
    DescribeConfigsResponse,
    DescribedMember,
    GroupStateName,
    ShareGroupDescribeResponse,
)

Result = TypeVar("Result")

TopicPartition = tuple[str, int]
"""Topic name and partition."""

GROUP_OPERATIONS = ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
"""Kafka's operations on a group; a process that reaches the request log is authorized for all of them."""


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
class Node:
    """The processor that coordinates a group.

    Attributes:
        id: its leader epoch, which rises with each takeover.
        host: host that it runs on, "" when unknown.
        port: -1, since clients reach it by the log.
    """

    id: int
    host: str
    port: int = -1


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A group and its members.

    Attributes:
        authorized_operations: operations that the client may do, as Kafka names them; None if not asked for.
        group_epoch: rises with changes of members, subscriptions and topics.
        target_assignment_epoch: group epoch of the assignment.
        quarantine_reason: reason of the quarantine; "" without one.
        is_paused: True if an administrator has paused it; a paused group that is quarantined stays paused.
        state_id: id of the processor's state.
        awaited_states: earlier states whose writes into sinks are to be taken over before it acquires records.
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
    coordinator: Node
    authorized_operations: tuple[str, ...] | None
    state_id: str = ""
    awaited_states: tuple[AwaitedState, ...] = ()

    @classmethod
    def of(cls, group_id: str, response: ShareGroupDescribeResponse, includes_operations: bool) -> Self:
        """Return the description in a response."""
        return cls(
            group_id,
            GroupStateName(response.group_state),
            response.group_epoch,
            response.assignment_epoch,
            response.assignor_name,
            tuple(_member_description(member) for member in response.members),
            response.quarantine_reason,
            response.is_paused,
            response.pause_reason,
            Node(response.coordinator_id, response.coordinator_host),
            GROUP_OPERATIONS if includes_operations else None,
            response.state_id,
            tuple(response.awaited_states),
        )


def _member_description(member: DescribedMember) -> ShareMemberDescription:
    assignment = ((topic.topic, partition) for topic in member.assignment for partition in topic.partitions)
    return ShareMemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        tuple(sorted(assignment)),
        member.rack_id,
        tuple(member.subscribed_topic_names),
    )


class ConfigSource(StrEnum):
    """Where a value in force comes from."""

    DYNAMIC_GROUP_CONFIG = "DYNAMIC_GROUP_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key of a group's configuration.

    Attributes:
        value: the value in force.
        source: the group's own value, the processor's for all groups, or the default.
    """

    name: str
    value: str
    source: ConfigSource

    @property
    def is_default(self) -> bool:
        """True if neither the group nor the processor sets the key."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def config_entries(response: DescribeConfigsResponse) -> dict[str, ConfigEntry]:
    """Return key → its entry."""
    defaults = effective_group_config(BrokerConfig(), {})
    known = set(defaults.key_names())
    entries: dict[str, ConfigEntry] = {}
    for config in response.configs:
        if config.own_value is not None:
            source = ConfigSource.DYNAMIC_GROUP_CONFIG
        elif config.name in known and config.value == defaults.spelled_value(config.name):
            source = ConfigSource.DEFAULT_CONFIG
        else:
            source = ConfigSource.STATIC_BROKER_CONFIG
        entries[config.name] = ConfigEntry(config.name, config.value, source)
    return entries


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


def result_of_each(group_ids: Iterable[str], ask: Callable[[str], Result]) -> dict[str, Result | ApiError]:
    """Return group id → the result for it, or the error."""
    results: dict[str, Result | ApiError] = {}
    for group_id in group_ids:
        try:
            results[group_id] = ask(group_id)
        except ApiError as error:
            results[group_id] = error
    return results
