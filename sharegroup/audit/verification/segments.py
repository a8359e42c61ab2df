"""Segments: the rows of a share-partition from one snapshot to the next, which fold independently of all others.

The columns of a row name its segment (`SegmentKey`): each ShareSnapshot has the next snapshot epoch, and the rows after
it have the same. So the rows of a large history are divided without ordering all of them. A ShareSnapshot is in two
segments: it opens one, and closes the one before, whose fold must equal it.

`state_chain` checks what one segment cannot show: whether the segments follow each other, and where states begin and
end. `CheckedSegment.orphan_row` is for it: an orphan row, whose segment has no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.audit.kafka_state.kafka_coordinator import KafkaCoordinator
from sharegroup.audit.verification.findings import Finding, row_finding
from sharegroup.audit.verification.group_rows import TableContext
from sharegroup.audit.verification.limits_in_force import LimitsInForce
from sharegroup.coordinator.share_coordinator import SnapshotEpochs, persisted_changes, row_type
from sharegroup.core.cause_rules import ENDS_OF_LOCKS
from sharegroup.core.invariants import Circumstances, Violation
from sharegroup.core.open_writes import WriteClosed
from sharegroup.core.record_invariants import check_record
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionLimits, SharePartitionRecord, StartOffsetMoved, Transition
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch, persisted_batches
from sharegroup.core.state_invariants import check_state
from sharegroup.core.transition_check import record_holds
from sharegroup.errors import StateTableError
from sharegroup.protocol.row_payloads import opened_writes
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry


class SegmentKey(NamedTuple):
    """The columns that name a segment.

    Attributes:
        state_epoch: fencing epoch of the state.
        snapshot_epoch: number of the snapshot that opens it.
    """

    group_id: str
    topic_id: str
    partition: int
    state_epoch: int
    snapshot_epoch: int


@dataclass(slots=True)
class CheckedSegment:
    """The result of one segment.

    Attributes:
        orphan_row: its first orphan row, which no snapshot precedes; None when there is none.
    """

    transition_count: int
    findings: list[Finding]
    orphan_row: StateRow | None


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """The outcome of rows that hold, for the check of their segment.

    Attributes:
        update: leader epoch, start offset and delivery-complete count of the last ShareUpdate; None without one.
        state_batches: the batches of all of them that are not wholly below that start offset.
        rejected: offsets of records that were rejected and wait for their dead-letter records, in their order.
    """

    transition_count: int
    update: tuple[int, int, int] | None
    state_batches: list[StateBatch]
    rejected: list[tuple[int, int]]


def segment_keys(row: StateRow) -> list[SegmentKey]:
    """Return the segments of a share-partition's row."""
    key = SegmentKey(row.group_id, row.topic_id, row.partition, row.state_epoch, row.snapshot_epoch)
    if row.record_type is RecordType.SHARE_SNAPSHOT and row.snapshot_epoch > 0:
        return [key._replace(snapshot_epoch=row.snapshot_epoch - 1), key]
    return [key]


def check_segment(key: SegmentKey, rows: Iterable[StateRow], context: TableContext) -> CheckedSegment:
    """Check the rows of a segment.

    Args:
        rows: its rows, in fold order.
    """
    segment = Segment(key, context)
    for row in rows:
        segment.check(row)
    return segment.finish()


class Segment:
    """The check of one segment, row by row in fold order."""

    def __init__(self, key: SegmentKey, context: TableContext) -> None:
        self._key = key
        self._limits = LimitsInForce(context.of(key.group_id).configurations)
        self._result = CheckedSegment(0, [], None)
        self._kafka = KafkaCoordinator()
        self._state: SharePartition | None = None
        self._epochs = SnapshotEpochs()
        self._rejected = RejectedRecords()
        self._opener: StateRow | None = None
        self._last: StateRow | None = None
        self._is_compared = False
        self._has_ended = False

    def check(self, row: StateRow) -> None:
        """Check the next row."""
        state, opener = self._state, self._opener
        if state is None or opener is None:
            self._open(row)
            return
        if row.begins_imported_state:
            # It does not continue the state before it, with the same epochs or with the next snapshot epoch.
            self._open(row)
            return
        self._last, self._is_compared = row, False
        self._check_address(row, opener)
        if self._has_ended:
            self._report(row, Violation("tombstone_ends_a_state", f"a {row.record_type.value} comes after a tombstone"))
        elif row.record_type is RecordType.SHARE_TOMBSTONE:
            self._has_ended = True
        elif row.record_type is RecordType.TABLE_SNAPSHOT:
            self._report(row, *self._unlike(row, state, self._epochs.snapshot_epoch))
            self._compare(row, state)
        else:
            self._replay(row, state)

    def limits_until(self, request_offset: int, leader_epoch: int) -> tuple[SharePartitionLimits, int] | None:
        """Return the limits under which its rows up to one hold if any, and the highest delivery count limit.

        None if the segment has no state or a finding, or other limits may come before that row.
        """
        limits = self._limits.latest_until(request_offset, leader_epoch)
        if self._state is None or self._result.findings or limits is None:
            return None
        return limits, self._limits.highest_delivery_count_limit

    def pass_over(self, outcome: BlockOutcome, start_offset: int, runs: Iterable[Run]) -> None:
        """Go on past rows that hold, to the state after them."""
        state, opener = self._state, self._opener
        assert state is not None
        assert opener is not None
        self._result.transition_count += outcome.transition_count
        self._is_compared = False
        self._state = SharePartition(start_offset, runs, state.state_epoch)
        for first, last in outcome.rejected:
            rejected = Transition(first, last, RecordState.ACQUIRED, RecordState.ARCHIVING, 1, "", 0, Cause.REJECT)
            self._rejected.note(rejected)
        self._rejected.note(StartOffsetMoved(start_offset))
        if outcome.update is not None:
            self._kafka.pass_over(opener, *outcome.update, outcome.state_batches)

    def finish(self) -> CheckedSegment:
        """Check the state after the last row, and return the result."""
        if self._state is not None and self._last is not None and not self._is_compared:
            self._compare(self._last, self._state)
        return self._result

    def _open(self, row: StateRow) -> None:
        """Begin with the state of a snapshot."""
        is_snapshot = row.record_type is RecordType.SHARE_SNAPSHOT
        if is_snapshot and row.snapshot_epoch != self._key.snapshot_epoch:
            # The snapshot after this segment: it begins a new state, or rows that it follows are missing.
            if not row.begins_imported_state and any(entry.is_persisted_by_kafka for entry in row.transitions):
                self._result.orphan_row = row
            return
        if not is_snapshot and row.record_type is not RecordType.TABLE_SNAPSHOT:
            if self._result.orphan_row is None and row.record_type is not RecordType.SHARE_TOMBSTONE:
                self._result.orphan_row = row
            return
        try:
            runs, open_writes = (entry.run for entry in row.runs), opened_writes(row.payload)
            state = SharePartition(row.start_offset, runs, row.state_epoch, open_writes)
        except StateTableError as error:
            self._report(row, Violation("snapshot_is_a_state", str(error)))
            return
        self._opener = self._last = row
        self._epochs = SnapshotEpochs(row.snapshot_epoch)
        self._rejected = RejectedRecords(row.payload.get("rejected", ()))
        self._limits.advance(row.request_offset, row.leader_epoch)
        self._limits.allow_counts_of(state.runs)
        if is_snapshot and _begins_a_state(row):
            # No segment comes before it that would replay its transitions.
            replayed = SharePartition(row.start_offset, (), row.state_epoch)
            self._apply_all(row, replayed)
            self._follow_writes(row, replayed)
            self._state = replayed
            self._report(row, *self._unlike(row, replayed, row.snapshot_epoch))
        else:
            self._state = state
            self._report(row, *self._unlike(row, state, row.snapshot_epoch))
        self._kafka.begin(row)

    def _replay(self, row: StateRow, state: SharePartition) -> None:
        self._limits.advance(row.request_offset, row.leader_epoch)
        self._apply_all(row, state)
        self._follow_log_start(row, state)
        self._follow_writes(row, state)
        self._epochs = self._epochs.after(row.record_type)
        self._report(row, *self._unlike(row, state, self._epochs.snapshot_epoch))
        # The configuration decides where a snapshot is due; the type of all other rows follows from their transitions.
        kind = row_type(SnapshotEpochs(0), row.transitions, updates_per_snapshot=1)
        # Kafka writes an update for a new leader epoch, too, and for a start offset alone.
        if row.record_type not in (kind, RecordType.SHARE_SNAPSHOT) and not row.is_imported:
            detail = f"it is a {row.record_type.value} with the transitions of a {kind.value}"
            self._report(row, Violation("row_is_of_the_type_of_its_transitions", detail))
        if row.record_type is not RecordType.SHARE_TRANSITIONS:
            self._report(row, *self._kafka.write(row))
        if row.record_type is RecordType.SHARE_SNAPSHOT:
            self._compare(row, state)

    def _apply_all(self, row: StateRow, state: SharePartition) -> None:
        before_ms = 0
        for entry in row.transitions:
            self._result.transition_count += 1
            if not before_ms <= entry.time_ms <= row.time_ms or entry.request_offset > row.request_offset:
                detail = (
                    f"{entry.first_offset}..{entry.last_offset} by {entry.cause.value} at {entry.time_ms} of message "
                    f"{entry.request_offset}, in a row of {row.time_ms} and message {row.request_offset}"
                )
                self._report(row, Violation("transitions_are_in_order", detail))
            before_ms = entry.time_ms
            transition = entry.transition
            if transition.from_state is None and transition.first_offset > state.next_offset:
                self._follow_log_start(row, state)
            self._check_and_apply(row, state, transition, entry)
            if transition.first_offset <= state.start_offset:
                self._pass_finished(state)

    def _check_and_apply(
        self, row: StateRow, state: SharePartition, record: SharePartitionRecord, entry: TransitionEntry | None = None
    ) -> None:
        if entry is not None and entry.first_offset > entry.last_offset:
            detail = f"{entry.first_offset}..{entry.last_offset} by {entry.cause.value}"
            self._report(row, Violation("ranges_are_ascending", detail))
            return
        now_ms = row.time_ms if entry is None else entry.time_ms
        highest = self._limits.highest_delivery_count_limit
        only = self._limits.only
        if isinstance(record, Transition):
            if record.cause in ENDS_OF_LOCKS:
                self._check_holder(row, state, record)
            if only is not None and record_holds(state, record, only, now_ms, highest):
                self._apply(state, record)
                return

        def violations(limits: SharePartitionLimits) -> list[Violation]:
            return check_record(state, record, Circumstances(limits, now_ms, highest))

        self._report(row, *self._limits.violations(violations, row.time_ms))
        self._apply(state, record)

    def _check_holder(self, row: StateRow, state: SharePartition, record: Transition) -> None:
        """Check that a lock that ended by itself was that of the member that the transition names."""
        for run in state.runs.overlapping(record.first_offset, record.last_offset):
            if run.member_id != record.member_id:
                detail = (
                    f"{record.first_offset}..{record.last_offset} by {record.cause.value} of {record.member_id!r}, "
                    f"but {run.member_id!r} holds {run.first_offset}..{run.last_offset}"
                )
                self._report(row, Violation("lock_ends_for_its_holder", detail))

    def _follow_log_start(self, row: StateRow, state: SharePartition) -> None:
        log_start_offset = row.payload.get("log_start_offset", -1)
        if log_start_offset > state.start_offset:
            self._check_and_apply(row, state, StartOffsetMoved(log_start_offset, Cause.LOG_START))
            self._pass_finished(state)

    def _follow_writes(self, row: StateRow, state: SharePartition) -> None:
        for version in row.payload.get("closed_writes", ()):
            if version in state.open_writes:
                self._check_and_apply(row, state, WriteClosed(version))
            else:
                self._report(row, Violation("write_opens_and_closes_once", f"write {version} closes, but is not open"))
        for opened in opened_writes(row.payload):
            # A snapshot has those that were open before, too.
            if opened.write.version not in state.open_writes:
                self._check_and_apply(row, state, opened)

    def _pass_finished(self, state: SharePartition) -> None:
        if finished := state.runs.terminal_from(state.start_offset):
            self._apply(state, StartOffsetMoved(finished[-1].last_offset + 1))

    def _apply(self, state: SharePartition, record: SharePartitionRecord) -> None:
        state.apply(record)
        self._rejected.note(record)

    def _check_address(self, row: StateRow, opener: StateRow) -> None:
        """Check the columns that repeat in each row."""
        for column in ("topic", "request_partition"):
            if (written := getattr(row, column)) != (first := getattr(opener, column)):
                detail = f"{column} is {written}, the rows before have {first}"
                self._report(row, Violation("row_agrees_with_its_replay", detail))

    def _compare(self, row: StateRow, state: SharePartition) -> None:
        self._is_compared = True
        self._report(row, *check_state(state), *self._kafka.compare(row, state))

    def _unlike(self, row: StateRow, state: SharePartition, snapshot_epoch: int) -> list[Violation]:
        """Return the differences between the state in a row and the state that its transitions lead to."""
        pairs: list[tuple[str, object, object]] = [
            ("snapshot_epoch", row.snapshot_epoch, snapshot_epoch),
            ("start_offset", row.start_offset, state.start_offset),
            ("delivery_complete_count", row.delivery_complete_count, state.delivery_complete_count),
        ]
        kind = row.record_type
        batches: list[StateBatch] = []
        if kind is RecordType.SHARE_SNAPSHOT:
            batches = persisted_batches(state.runs)
        elif kind is not RecordType.TABLE_SNAPSHOT:
            batches = persisted_changes(row.transitions, state.start_offset)
        pairs.append(("state_batches", [entry.batch for entry in row.state_batches], batches))
        if kind in (RecordType.SHARE_SNAPSHOT, RecordType.TABLE_SNAPSHOT):
            rejected = [tuple(pair) for pair in row.payload.get("rejected", ())]
            pairs.append(("runs", [entry.run for entry in row.runs], list(state.runs)))
            pairs.append(("rejected", rejected, self._rejected.ranges(state.runs)))
            pairs.append(("open_writes", opened_writes(row.payload), list(state.open_writes.values())))
        elif row.runs:
            pairs.append(("runs", [entry.run for entry in row.runs], []))
        return [
            Violation("row_agrees_with_its_replay", f"{name} is {_short(written)}, the replay has {_short(replayed)}")
            for name, written, replayed in pairs
            if written != replayed
        ]

    def _report(self, row: StateRow, *violations: Violation) -> None:
        self._result.findings += [row_finding(row, violation) for violation in violations]


def _begins_a_state(snapshot: StateRow) -> bool:
    """Return True if a snapshot is not instead of an update: no change of it is one that Kafka would persist.

    A log start that moves in the first cut of a state leaves no trace of where the state began.
    """
    return snapshot.payload.get("log_start_offset", -1) < 0 and not any(
        entry.is_persisted_by_kafka or entry.cause is Cause.LOG_START for entry in snapshot.transitions
    )


def _short(value: object) -> object:
    return f"{len(value)} entries" if isinstance(value, list) else value
