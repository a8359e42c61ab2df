"""Writes into a sink, and lookups, in steps between which anything may happen.

A writer takes a snapshot, commits on it, and reads its commit back; whatever its commit said, it reports what the sink
says. A lookup fences the write first. Each step may come late, or not at all, also when the member is long gone: its
JVM may outlive it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sharegroup.client.held_records import HeldRange
from sharegroup.client.sink_commits import (
    CLOSING_PART,
    WriteMetadata,
    named_partitions,
    resolution,
    transaction_version,
)
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.sink_writes import UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from tests.simulation.sink import Record, SimulatedSink, Snapshot
from tests.simulation.world import World

_NAMED = (AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.UNREAD, AcknowledgeType.GAP)
_RETRY_MS = (300, 2_000)
Times = tuple[int, int]
"""The earliest and the latest time of a step after the one before, in ms."""


@dataclass
class Part:
    """A commit that is to be made: the records whose outcomes it has, and those that it does not accept."""

    part: int
    ranges: Sequence[HeldRange]
    names_all: bool = False
    refused: Sequence[tuple[HeldRange, AcknowledgeType]] = ()

    def metadata(self, write: UnresolvedWrite) -> WriteMetadata:
        """Return what the commit says of its records."""
        accepted = [(held, AcknowledgeType.ACCEPT) for held in self.ranges] if self.names_all else []
        partitions = named_partitions(held.acknowledgement(kind) for held, kind in (*accepted, *self.refused))
        return WriteMetadata(
            app_id=write.app_id,
            version=write.version,
            part=self.part,
            names_all=self.names_all,
            partitions=partitions,
        )

    def records(self) -> list[Record]:
        """Return its records."""
        return [
            (held.topic_id, held.partition, offset)
            for held in self.ranges
            for offset in range(held.first_offset, held.last_offset + 1)
        ]


class SinkWriter:
    """The steps of writes into one sink, for one member.

    Args:
        world: time.
        sink: the table.
        send: sends what the sink says of a write to the group.
    """

    def __init__(self, world: World, sink: SimulatedSink, send: Callable[[ResolveWriteRequest], None]) -> None:
        self._world = world
        self._sink = sink
        self._send = send

    def write(self, write: UnresolvedWrite, parts: Sequence[Part], commit_ms: Times, has_report: bool = True) -> None:
        """Begin a write: take the snapshot of its first part, and commit later.

        Args:
            commit_ms: when each part is committed after its snapshot.
            has_report: False for a writer that ends after its commit.
        """
        part, *later = parts
        metadata, snapshot = part.metadata(write), self._sink.snapshot(write.app_id)
        is_done = False

        def commit() -> None:
            nonlocal is_done
            if is_done:
                return
            is_done = True
            self._sink.late.discard(commit)
            self._commit(write, metadata, part, snapshot)
            if has_report:
                self._world.after(1, 50, lambda: self.read_back(write, metadata))
            if later:
                self._world.after(1, 50, lambda: self.write(write, later, commit_ms, has_report))

        if snapshot.transaction >= transaction_version(write.version, part.part):
            self._world.trace("a writer skips", write.version, part.part)
            self._world.after(1, 50, lambda: self.read_back(write, metadata))
            return
        self._sink.late.add(commit)
        self._world.after(*commit_ms, commit)

    def read_back(self, write: UnresolvedWrite, own: WriteMetadata) -> None:
        """Report what the sink says of a write, if it has a commit of it."""
        if self._sink.is_away:
            self._world.after(*_RETRY_MS, lambda: self.read_back(write, own))
            return
        commits = self._sink.commits_of(write.app_id, write.version, write.sink_version)
        if any(not commit.metadata.is_fence for commit in commits):
            is_closed = any(commit.metadata.part == CLOSING_PART for commit in commits)
            self._send(resolution(write, write.table_id, commits, is_closed=is_closed))

    def begin_lookup(self, write: UnresolvedWrite) -> None:
        """Fence a write unless it is complete, then report what the sink says of it."""
        if self._sink.is_away:
            self._world.after(*_RETRY_MS, lambda: self.begin_lookup(write))
            return
        snapshot = self._sink.snapshot(write.app_id)
        if snapshot.transaction >= transaction_version(write.version):
            self._world.after(0, 20, lambda: self._read(write))
        else:
            self._world.after(0, 100, lambda: self.fence(write, snapshot))

    def fence(self, write: UnresolvedWrite, snapshot: Snapshot) -> None:
        """Commit nothing with the transaction of a write; look up again if another commit of it came between."""
        metadata = WriteMetadata(app_id=write.app_id, version=write.version, is_fence=True)
        if not self._sink.is_away and self._sink.commit(metadata, (), snapshot):
            self._world.trace("write", write.version, "is fenced")
            self._world.after(0, 20, lambda: self._read(write))
        else:
            self.begin_lookup(write)

    def _read(self, write: UnresolvedWrite) -> None:
        commits = self._sink.commits_of(write.app_id, write.version, write.sink_version)
        known = self._sink.snapshot(write.app_id).transaction
        is_whole = any(commit.metadata.part == CLOSING_PART for commit in commits)
        if known >= transaction_version(write.version) and not is_whole:
            self._sink.undecided.append(f"write {write.version} of {write.app_id} is in the sink, and no commit has it")
            return
        self._send(resolution(write, write.table_id, commits, is_closed=True))

    def _commit(self, write: UnresolvedWrite, metadata: WriteMetadata, part: Part, snapshot: Snapshot) -> None:
        if self._sink.is_away and self._world.happens(0.5):
            self._world.trace("a commit of write", write.version, "does not get into the sink")
            return
        is_in = self._sink.commit(metadata, part.records(), snapshot)
        self._world.trace("write", write.version, metadata.part, "is committed" if is_in else "is refused by the sink")


def refusals(world: World, ranges: Sequence[HeldRange]) -> list[tuple[HeldRange, AcknowledgeType]]:
    """Choose some records of ranges that a commit does not accept."""
    chosen = []
    for held in ranges:
        if world.happens(0.3):
            first = world.between(held.first_offset, held.last_offset)
            last = world.between(first, held.last_offset)
            chosen.append((held.cut(first, last), world.random.choice(_NAMED)))
    return chosen
