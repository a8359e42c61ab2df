"""All that a test of a group needs: the simulated group, its members, and ready-made ones of both."""

from __future__ import annotations

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
]
