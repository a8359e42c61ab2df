"""The open writes of a group that somebody has to look up, and an administrator's decision on one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sharegroup.core.open_writes import OpenWrite
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.sink_writes import UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.state.fold import FoldedGroup, FoldedPartition


class GroupWrite(NamedTuple):
    """An open write of a group.

    Attributes:
        resolving_count: its records that nobody gets before it is looked up.
        locked_count: its records that a member holds.
    """

    write: OpenWrite
    resolving_count: int
    locked_count: int

    @property
    def needs_lookup(self) -> bool:
        """True if no member is at work on it: looked up, it is fenced."""
        return self.resolving_count > 0 or not self.locked_count

    @property
    def unresolved(self) -> UnresolvedWrite:
        """The write as a sink looks it up."""
        return UnresolvedWrite.of(self.write)

    def decided(self, *, is_written: bool, reason: str) -> ResolveWriteRequest:
        """Return the message of somebody who decides without the sink.

        Args:
            is_written: True to accept its records, False to deliver them again.
        """
        return ResolveWriteRequest(
            app_id=self.write.app_id,
            version=self.write.version,
            table_id=self.write.table_id,
            is_closed=True,
            others=AcknowledgeType.ACCEPT if is_written else None,
            reason=reason,
        )


def open_writes(group: FoldedGroup) -> list[GroupWrite]:
    """Return all open writes of a group, by version."""
    partitions: dict[int, list[FoldedPartition]] = {}
    writes: dict[int, OpenWrite] = {}
    for partition in group.partitions.values():
        for version, opened in partition.share_partition.open_writes.items():
            writes[version] = opened.write
            partitions.setdefault(version, []).append(partition)
    return [_group_write(writes[version], partitions[version]) for version in sorted(writes)]


def open_write(group: FoldedGroup, version: int) -> GroupWrite:
    """Return an open write of a group.

    Raises:
        InvalidRequestError: it is not open.
    """
    writes = open_writes(group)
    known = next((each for each in writes if each.write.version == version), None)
    if known is None:
        named = ", ".join(str(each.write.version) for each in writes[:10]) or "none"
        raise InvalidRequestError(
            f"Write {version} of group {group.group_id} is not open; open are {named}.",
            f"`sharegroup groups resolve --group {group.group_id} --dry-run` lists them.",
        )
    return known


def _group_write(write: OpenWrite, partitions: Iterable[FoldedPartition]) -> GroupWrite:
    resolving_count = locked_count = 0
    for partition in partitions:
        for run in partition.share_partition.runs:
            if run.write_version == write.version:
                locked_count += run.size if run.state is RecordState.ACQUIRED else 0
                resolving_count += run.size if run.state is RecordState.RESOLVING else 0
    return GroupWrite(write, resolving_count, locked_count)
