"""All that a test of a group needs: the simulated group, its members, and ready-made ones of both."""

from __future__ import annotations

from typing import Any

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.group_state import GroupState
from tests.actor.group_member import Acknowledgement, Fetched, Member, PartitionKey, joined
from tests.actor.simulated_group import (
    ADMIN_REPLY_PARTITION,
    GROUP_ID,
    START_MS,
    Batch,
    Group,
    LogPartition,
    Outcome,
    group_with,
)

__all__ = [
    "ADMIN_REPLY_PARTITION",
    "GROUP_ID",
    "START_MS",
    "Acknowledgement",
    "Batch",
    "Fetched",
    "Group",
    "LogPartition",
    "Member",
    "Outcome",
    "PartitionKey",
    "findings",
    "group_with",
    "joined",
    "leader_state",
    "metadata",
    "start_offsets",
]


def leader_state(group: Group) -> list[Any]:
    """Share-partitions and share sessions of a leader, to be compared."""
    return [
        [
            (key, led.share_partition.start_offset, list(led.share_partition.runs), led.epochs)
            for key, led in sorted(group.leader.partitions.items())
        ],
        [
            (session.member_id, session.epoch, session.correlation_id, list(session.partitions), session.kept_response)
            for session in group.leader.sessions
        ],
    ]


def start_offsets(group: Group) -> dict[PartitionKey, int]:
    """Start offset by share-partition, as the leader has it."""
    return {key: led.share_partition.start_offset for key, led in group.leader.partitions.items()}


def metadata(group: Group) -> GroupState:
    """The state of the group, as its coordinator has it."""
    return group.coordinator.group.state


def findings(group: Group) -> list[str]:
    """The findings of an audit of the rows so far."""
    return [str(finding) for finding in verify(group.rows, BrokerConfig()).findings]
