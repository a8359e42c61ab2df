"""The chain of a share-partition's states: its snapshots and tombstones, in order, without the rows between them.

It checks what no segment shows: snapshots are numbered without a gap, state epochs rise, a tombstone ends the state
that there was, no state outlives its topic or group, each table snapshot has every state, and rows without a snapshot
(orphan rows of the segments) come only before the first snapshot of a table whose beginning is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from sharegroup.audit.kafka_state.kafka_coordinator import KafkaCoordinator
from sharegroup.audit.verification.findings import Finding, row_finding
from sharegroup.audit.verification.group_rows import TableContext
from sharegroup.core.invariants import Violation
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold_order

CHAIN_TYPES = frozenset({RecordType.SHARE_SNAPSHOT, RecordType.SHARE_TOMBSTONE, RecordType.TABLE_SNAPSHOT})
"""Types of the rows of a chain, beside orphan rows."""

CHAIN_COLUMNS = (
    "record_type",
    "commit_id",
    "leader_epoch",
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "request_partition",
    "request_offset",
    "time_ms",
    "state_epoch",
    "snapshot_epoch",
    "start_offset",
    "delivery_complete_count",
    "state_batches",
    "payload",
)
"""Columns of a chain's rows that are needed: without the runs and transitions of a snapshot."""


_ENDLESS = 1 << 62


def check_chains(rows: Iterable[StateRow], orphan_rows: Iterable[StateRow], context: TableContext) -> Iterator[Finding]:
    """Check the chains of many share-partitions.

    Args:
        rows: rows of `CHAIN_TYPES`, ordered by group, topic id and partition, those of one share-partition in fold
            order.
        orphan_rows: orphan rows, without a snapshot; only those of the same share-partitions count.
    """
    by_key: dict[tuple[str, str, int], list[StateRow]] = {}
    for orphan_row in orphan_rows:
        by_key.setdefault(_key(orphan_row), []).append(orphan_row)
    for key, of_partition in groupby(rows, _key):
        chain = _Chain(context)
        yield from chain.check(of_partition, by_key.pop(key, []))


def check_unknown(
    orphan_rows: Iterable[StateRow], known: frozenset[tuple[str, str, int]], context: TableContext
) -> list[Finding]:
    """Return the findings of orphan rows of share-partitions that have no chain.

    Args:
        orphan_rows: orphan rows, without a snapshot.
        known: group, topic id and partition of the share-partitions that have one.
    """
    return [
        _without_snapshot(orphan_row)
        for orphan_row in orphan_rows
        if context.is_whole and _key(orphan_row) not in known
    ]


def _key(row: StateRow) -> tuple[str, str, int]:
    return row.group_id, row.topic_id, row.partition


def _without_snapshot(row: StateRow) -> Finding:
    detail = f"no snapshot {row.snapshot_epoch} of state {row.state_epoch} precedes this {row.record_type.value}"
    return row_finding(row, Violation("rows_follow_a_snapshot", detail))


@dataclass(slots=True)
class _State:
    """A state while it lasts."""

    state_epoch: int
    snapshot_epoch: int
    first: StateRow


class _Chain:
    """The chain of one share-partition."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._kafka = KafkaCoordinator()
        self._state: _State | None = None
        self._has_ended = False
        self._is_first = True
        self._snapshots_ms: Counter[int] = Counter()
        self._spans: list[tuple[int, int]] = []
        self._findings: list[Finding] = []

    def check(self, rows: Iterable[StateRow], orphan_rows: list[StateRow]) -> list[Finding]:
        """Return the findings of the rows and orphan rows of the share-partition."""
        waiting = sorted(orphan_rows, key=fold_order)
        last: StateRow | None = None
        for row in rows:
            while waiting and fold_order(waiting[0]) <= fold_order(row):
                self._check_orphan_row(waiting.pop(0))
            match row.record_type:
                case RecordType.SHARE_SNAPSHOT:
                    self._check_snapshot(row)
                case RecordType.SHARE_TOMBSTONE:
                    self._check_tombstone(row)
                case RecordType.TABLE_SNAPSHOT:
                    self._check_table_snapshot(row)
            self._is_first, last = False, row
        for orphan_row in waiting:
            self._check_orphan_row(orphan_row)
        if last is not None:
            self._end_state(None)
            self._check_table_snapshots(last)
        return self._findings

    def _check_orphan_row(self, row: StateRow) -> None:
        """Check a row that no snapshot precedes in its segment; a snapshot is checked as such, too."""
        state = self._state
        is_snapshot = row.record_type is RecordType.SHARE_SNAPSHOT
        if state is None:
            if self._has_ended:
                self._report(
                    row, Violation("tombstone_ends_a_state", f"a {row.record_type.value} comes after a tombstone")
                )
            elif self._context.is_whole and not is_snapshot:
                self._findings.append(_without_snapshot(row))
        elif row.state_epoch != state.state_epoch:
            rule = "falls" if row.state_epoch < state.state_epoch else "rises_without_a_new_state"
            detail = f"state epoch {row.state_epoch} comes after {state.state_epoch}"
            self._report(row, Violation(f"state_epoch_never_{rule}", detail))
        elif not is_snapshot:
            self._report_epoch(row, state.snapshot_epoch)

    def _check_snapshot(self, row: StateRow) -> None:
        state = self._state
        if state is None:
            if self._has_ended or not row.snapshot_epoch:
                self._initialize(row)
            else:
                if self._context.is_whole:
                    self._findings.append(_without_snapshot(row))
                self._kafka.begin(row)
            self._state = _State(row.state_epoch, row.snapshot_epoch, row)
            return
        if row.replaces_state(state.state_epoch):
            self._initialize(row)
            self._state = _State(row.state_epoch, row.snapshot_epoch, state.first)
            return
        if row.state_epoch < state.state_epoch:
            detail = f"state epoch {row.state_epoch} comes after {state.state_epoch}"
            self._report(row, Violation("state_epoch_never_falls", detail))
            return
        if row.snapshot_epoch != state.snapshot_epoch + 1:
            self._report_epoch(row, state.snapshot_epoch + 1)
        self._kafka.begin(row)
        state.snapshot_epoch = row.snapshot_epoch

    def _initialize(self, row: StateRow) -> None:
        """Follow the snapshot by which a state begins; an imported one has records in flight already."""
        if row.is_imported:
            self._kafka.begin(row)
        else:
            self._report(row, *self._kafka.initialize(row))

    def _check_tombstone(self, row: StateRow) -> None:
        state = self._state
        if state is None:
            if self._has_ended or self._context.is_whole:
                self._report(row, Violation("tombstone_ends_a_state", "there is no state that it could end"))
        else:
            self._report(row, *self._kafka.delete(row))
            written, known = (row.state_epoch, row.snapshot_epoch), (state.state_epoch, state.snapshot_epoch)
            if written != known:
                detail = f"state and snapshot epoch are {written}, the replay has {known}"
                self._report(row, Violation("row_agrees_with_its_replay", detail))
            self._end_state(row)
        self._has_ended = True

    def _check_table_snapshot(self, row: StateRow) -> None:
        state = self._state
        self._snapshots_ms[row.time_ms] += 1
        if row.time_ms not in self._context.of(row.group_id).snapshots_ms and self._context.is_whole:
            detail = f"the table snapshot of {row.time_ms} has no row of the group"
            self._report(row, Violation("table_snapshots_have_every_state", detail))
        if state is not None:
            if row.state_epoch != state.state_epoch:
                detail = f"state_epoch is {row.state_epoch}, the replay has {state.state_epoch}"
                self._report(row, Violation("row_agrees_with_its_replay", detail))
            else:
                self._report_epoch(row, state.snapshot_epoch)
        elif self._has_ended:
            self._report(row, Violation("tombstone_ends_a_state", f"a {row.record_type.value} comes after a tombstone"))
        else:
            if self._context.is_whole and not self._is_first:
                self._findings.append(_without_snapshot(row))
            self._kafka.begin(row)
            self._state = _State(row.state_epoch, row.snapshot_epoch, row)

    def _end_state(self, tombstone: StateRow | None) -> None:
        """End the present state, by a tombstone or with the table; it must not outlive what it belongs to."""
        state, self._state = self._state, None
        if state is None:
            return
        first = state.first
        self._spans.append((first.commit_id, tombstone.commit_id if tombstone is not None else _ENDLESS))
        end = tombstone.request_offset if tombstone is not None else _ENDLESS
        for offset, topic_id in self._context.of(first.group_id).removals:
            if topic_id in ("", first.topic_id) and first.request_offset < offset <= end:
                detail = f"{first.topic_id}-{first.partition} has its state still"
                self._findings.append(
                    Finding(
                        f"group {first.group_id}", Violation("state_ends_before_what_it_belongs_to", detail), offset
                    )
                )

    def _check_table_snapshots(self, last: StateRow) -> None:
        """Check that each table snapshot has the share-partition once while it has a state, and never else."""
        if not self._context.is_whole:
            return
        for time_ms, commit_id in self._context.snapshots.items():
            expected = sum(first <= commit_id < end for first, end in self._spans)
            count = self._snapshots_ms[time_ms]
            if count != expected:
                detail = f"the table snapshot of {time_ms} has {count} rows of the share-partition, not {expected}"
                self._report(last, Violation("table_snapshots_have_every_state", detail))
        for time_ms in sorted(self._snapshots_ms.keys() - self._context.snapshots.keys()):
            detail = f"the table snapshot of {time_ms} has no first row"
            self._report(last, Violation("table_snapshots_have_every_state", detail))

    def _report_epoch(self, row: StateRow, expected: int) -> None:
        if row.snapshot_epoch != expected:
            detail = f"snapshot_epoch is {row.snapshot_epoch}, the replay has {expected}"
            self._report(row, Violation("row_agrees_with_its_replay", detail))

    def _report(self, row: StateRow, *violations: Violation) -> None:
        self._findings += [row_finding(row, violation) for violation in violations]
