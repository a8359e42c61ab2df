"""A state table of a simulated group, and the state that its leader had in memory after each cut."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

from sharegroup.audit.history.row_source import TableRows
from sharegroup.core.run import Run
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.writer import StateTableWriter
from tests.actor.group_harness import Batch, Group
from tests.state.conftest import keep_up

CUTS_PER_COMMIT = 2
ORDERS_0 = ("orders-id", 0)

LeaderState = tuple[int, tuple[Run, ...]] | None
"""Start offset and runs of the share-partition; None before it has a state."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a cut.

    Attributes:
        commit_id: the commit that has the cut.
        end_offset: offset after the last message of the cut.
        cut_ms: its time.
        leader: the state in the leader's memory.
        members: member ids in the coordinator's memory.
        is_commit_end: True if the cut is the last one of its commit.
    """

    commit_id: int
    end_offset: int
    cut_ms: int
    leader: LeaderState
    members: frozenset[str]
    is_commit_end: bool


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """The table, and what it must show."""

    path: str
    moments: tuple[Moment, ...]
    rows: tuple[StateRow, ...]

    @property
    def source(self) -> TableRows:
        return TableRows(self.path)


def recorded_table(
    path: Path, group: Group, work: Callable[[Group], None], snapshot_after: Container[int] = ()
) -> RecordedTable:
    """Let a group work, and write its rows with two cuts a commit.

    Args:
        path: the table's folder.
        work: what happens to it.
        snapshot_after: ids of commits after which the table gets a snapshot.
    """
    batches: list[tuple[Batch, LeaderState, frozenset[str]]] = []

    def note(batch: Batch) -> None:
        led = group.leader.partitions.get(ORDERS_0)
        leader = None if led is None else (led.share_partition.start_offset, tuple(led.share_partition.runs))
        batches.append((batch, leader, frozenset(group.coordinator.group.state.members)))

    group.after_batch.append(note)
    work(group)
    writer = StateTableWriter.open(str(path), {})
    for commit_id, start in enumerate(range(0, len(batches), CUTS_PER_COMMIT)):
        of_commit = [batch for batch, _, _ in batches[start : start + CUTS_PER_COMMIT]]
        rows = [row for batch in of_commit for row in batch.outcome.rows]
        writer.append([_marker(of_commit, len(rows)), *rows], commit_id)
        if commit_id in snapshot_after:
            keep_up(str(path))
    moments = tuple(
        Moment(
            commit_id=index // CUTS_PER_COMMIT,
            end_offset=batch.offsets.stop,
            cut_ms=batch.cut_ms,
            leader=leader,
            members=members,
            is_commit_end=index % CUTS_PER_COMMIT == CUTS_PER_COMMIT - 1 or index == len(batches) - 1,
        )
        for index, (batch, leader, members) in enumerate(batches)
    )
    return RecordedTable(str(path), moments, tuple(group.rows))


def _marker(batches: list[Batch], row_count: int) -> StateRow:
    cuts = [Cut(partition=0, end_offset=batch.offsets.stop, time_ms=batch.cut_ms) for batch in batches]
    payload = CommitMarkerPayload(row_count=row_count + 1, end_offsets={0: cuts[-1].end_offset}, cuts=cuts)
    return StateRow(
        record_type=RecordType.COMMIT_MARKER, time_ms=cuts[-1].time_ms, payload=payload.model_dump(mode="json")
    )


class Rows(tuple[StateRow, ...]):
    """Rows that no error message repeats."""

    def __repr__(self) -> str:
        return f"{len(self)} rows"
