"""All that a test of a group needs: the simulated group, its members, and ready-made ones of both."""

from __future__ import annotations

from typing import Any

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
    "group_with",
    "joined",
    "leader_state",
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
