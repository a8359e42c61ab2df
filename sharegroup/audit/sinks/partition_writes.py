"""The writes of a share-partition, as its rows have them: which records each has, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sharegroup.core.offset_ranges import OffsetRange, RangeMap
from sharegroup.core.open_writes import OpenWrite, WriteOpened
from sharegroup.core.record_state import UNDECIDED_STATES, Cause
from sharegroup.core.run import NO_WRITE
from sharegroup.protocol.row_payloads import opened_writes
from sharegroup.protocol.rows import RecordType, StateRow

Offsets = RangeMap[None]
"""A set of offsets."""


@dataclass(slots=True)
class PartitionWrite:
    """A write in one share-partition.

    Attributes:
        state_epoch: the state that acquired its records; another state may deliver the same offsets again.
        acquired: its records.
        accepted: those that were accepted.
        is_whole: False if the rows begin after the acquisition: some of its records are not known.
    """

    group_id: str
    topic_id: str
    topic: str
    partition: int
    state_epoch: int
    write: OpenWrite
    acquired: Offsets = field(default_factory=RangeMap)
    accepted: Offsets = field(default_factory=RangeMap)
    is_whole: bool = True

    @property
    def location(self) -> str:
        """The share-partition, for people."""
        return f"group {self.group_id} {self.topic}-{self.partition}"


@dataclass(slots=True)
class PartitionWrites:
    """All writes of a share-partition.

    Attributes:
        first_request_offset: message of its first row; nothing is known of writes before it. -1 without rows.
        open_versions: writes that are open at the end.
    """

    group_id: str = ""
    first_request_offset: int = -1
    writes: list[PartitionWrite] = field(default_factory=list)
    open_versions: set[int] = field(default_factory=set)


def partition_writes(rows: Iterable[StateRow]) -> PartitionWrites:
    """Return the writes of one share-partition from its rows, in fold order."""
    follower = _Follower()
    for row in rows:
        follower.apply(row)
    return follower.result


class _Follower:
    def __init__(self) -> None:
        self.result = PartitionWrites()
        self._known: dict[int, PartitionWrite] = {}
        """Writes of the present state, by version."""
        self._versions: RangeMap[int] = RangeMap()
        """Undecided records → their write."""
        self._state_epoch: int | None = None

    def apply(self, row: StateRow) -> None:
        is_first = self.result.first_request_offset < 0
        if is_first:
            self.result.group_id, self.result.first_request_offset = row.group_id, row.request_offset
        if row.record_type is RecordType.TABLE_SNAPSHOT and not is_first:
            return
        if row.record_type is RecordType.SHARE_TOMBSTONE:
            self._begin(None)
            return
        if row.state_epoch != self._state_epoch:
            self._begin(row.state_epoch)
        for opened in opened_writes(row.payload):
            self._open(row, opened, has_acquisition=not is_first)
        if is_first:
            for run in row.runs:
                self._assign(run.first_offset, run.last_offset, run.write_version)
        for entry in row.transitions:
            if entry.cause is Cause.ACCEPT:
                for first, last, version in self._versions.overlapping(entry.first_offset, entry.last_offset):
                    self._known[version].accepted.assign(first, last, None)
            is_undecided = entry.to_state in UNDECIDED_STATES
            self._assign(entry.first_offset, entry.last_offset, entry.write_version if is_undecided else NO_WRITE)
        self.result.open_versions.difference_update(row.payload.get("closed_writes", ()))

    def _begin(self, state_epoch: int | None) -> None:
        self._known, self._versions, self._state_epoch = {}, RangeMap(), state_epoch
        self.result.open_versions.clear()

    def _open(self, row: StateRow, opened: WriteOpened, *, has_acquisition: bool) -> None:
        version = opened.write.version
        if version in self._known:
            return
        write = PartitionWrite(
            row.group_id,
            row.topic_id,
            row.topic,
            row.partition,
            row.state_epoch,
            opened.write,
            is_whole=has_acquisition or (row.record_type is RecordType.SHARE_SNAPSHOT and row.snapshot_epoch == 0),
        )
        self._known[version] = write
        self.result.writes.append(write)
        self.result.open_versions.add(version)

    def _assign(self, first: int, last: int, version: int) -> None:
        if version == NO_WRITE:
            self._versions.remove(first, last)
        elif version in self._known:
            self._versions.assign(first, last, version)
            self._known[version].acquired.assign(first, last, None)


def ranges_of(offsets: Offsets) -> list[OffsetRange]:
    """Return the ranges of a set of offsets."""
    return [(first, last) for first, last, _ in offsets]
