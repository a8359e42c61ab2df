"""The share-partition: in-flight records of one (group, topic-partition), and the operations of members on them.

Every operation decides on records first (`records.py`), then applies them; it returns the applied records, so that
the caller can persist exactly that. Recovery applies the same records again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sharegroup.core.acknowledgement import lock_end_of, planned_transitions, transition_of
from sharegroup.core.acquisition import AcquireRequest, chosen_runs, chosen_suspects, fresh_run, response_ranges
from sharegroup.core.archived_runs import archived_runs
from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.core.open_writes import OpenWrite, Resolution, WriteClosed, WriteOpened
from sharegroup.core.record_state import TERMINAL_STATES, UNDECIDED_STATES, Cause, RecordState, outcome_of
from sharegroup.core.records import (
    AcknowledgementBatch,
    SharePartitionLimits,
    SharePartitionRecord,
    StartOffsetMoved,
    Transition,
)
from sharegroup.core.resolution import resolved_transitions
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.runs import RunMap
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import IllegalTransitionError, StateTableError


class SharePartition:
    """State engine of one share-partition (spec 002, "In-memory data structures").

    The runs cover every offset from the SPSO to the last one in flight (SPEO) without a hole: an offset that was
    skipped is AVAILABLE with delivery count 0. Offsets past the SPEO were never in flight.

    Args:
        runs: runs at or above the SPSO, ascending; holes between them become AVAILABLE with delivery count 0.
        state_epoch: fencing epoch of the durable state.
        open_writes: the writes that are open, those without a record in flight included.

    Raises:
        StateTableError: a run is reversed, begins below the SPSO, or overlaps the one before it.
    """

    def __init__(
        self,
        start_offset: int,
        runs: Iterable[Run] = (),
        state_epoch: int = 0,
        open_writes: Iterable[WriteOpened] = (),
    ) -> None:
        self._start_offset = start_offset
        self._runs = RunMap(_without_holes(start_offset, runs))
        self.state_epoch = state_epoch
        self._open_writes = {opened.write.version: opened for opened in open_writes}
        self.pass_finished()

    @property
    def start_offset(self) -> int:
        """The share-partition start offset (SPSO): the lowest offset that is not finished."""
        return self._start_offset

    @property
    def next_offset(self) -> int:
        """The lowest offset that was never in flight: one past the share-partition end offset (SPEO)."""
        last = self._runs.last_offset
        return self._start_offset if last is None else last + 1

    @property
    def runs(self) -> RunMap:
        """All runs in flight; read only."""
        return self._runs

    @property
    def open_writes(self) -> Mapping[int, WriteOpened]:
        """Version → each write that is open; read only."""
        return self._open_writes

    @property
    def delivery_complete_count(self) -> int:
        """Finished records at or above the SPSO (KIP-1226)."""
        return self._runs.terminal_count

    def lag(self, log_end_offset: int, log_start_offset: int = 0) -> int:
        """Return the number of unfinished records in the log (KIP-1226): those that were deleted do not count."""
        start = max(self._start_offset, log_start_offset)
        # A start offset that was reset past the end of the log leaves nothing to do.
        return max(log_end_offset - start - self._finished_count(start), 0)

    def _finished_count(self, first_offset: int) -> int:
        """Return the number of finished records from an offset on."""
        if first_offset <= self._start_offset:
            return self.delivery_complete_count
        later = self._runs.overlapping(first_offset, self.next_offset - 1)
        return sum(run.size for run in later if run.state in TERMINAL_STATES)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the next acquisition lock ends; None when no record is locked."""
        return self._runs.next_deadline_ms

    @property
    def next_available_ms(self) -> int | None:
        """Time at which the next delayed record becomes available; None when none is delayed."""
        return self._runs.next_available_ms

    def make_available(self, now_ms: int) -> None:
        """Make released records available whose delay is over at `now_ms`."""
        self._runs.make_available(now_ms)

    def next_fetch_offset(self, now_ms: int) -> int:
        """Return the lowest offset that an acquire would take from a log without end."""
        self._runs.make_available(now_ms)
        first_runs = (next(self._runs.available(are_suspects=kind), None) for kind in (False, True))
        return min((run.first_offset for run in first_runs if run is not None), default=self.next_offset)

    def acquirable_count(self, limits: SharePartitionLimits, log_end_offset: int, now_ms: int) -> int:
        """Return the number of records, without the suspects, that an acquire without limit would take."""
        fresh = self._fresh(limits, log_end_offset, now_ms)
        self._runs.make_available(now_ms)
        available_count = self._runs.available_count_below(log_end_offset, are_suspects=False)
        return available_count + (fresh.size if fresh else 0)

    def acquirable_suspect_count(self, log_end_offset: int, now_ms: int) -> int:
        """Return the number of suspects that wait for a delivery and may have it now."""
        self._runs.make_available(now_ms)
        return self._runs.available_count_below(log_end_offset, are_suspects=True)

    def is_span_full(self, limits: SharePartitionLimits) -> bool:
        """Return True if no fresh record may be acquired, because too many offsets or runs are in flight."""
        return self.next_offset - self._start_offset >= limits.span_limit or len(self._runs) >= limits.max_runs

    def acquire(
        self,
        request: AcquireRequest,
        limits: SharePartitionLimits,
        log_end_offset: int,
        now_ms: int,
        write: OpenWrite | None = None,
    ) -> tuple[list[Run], list[SharePartitionRecord]]:
        """Lease records to a member; the delivery count of each goes up by one.

        Args:
            log_end_offset: end of the acquirable records, exclusive: the last stable offset under read_committed. It
                may lie below the SPEO, when the group has just become read_committed.
            now_ms: the locks run from here.
            write: the write for their results, which is opened with the acquisition; None without one.

        Returns:
            The acquired runs as the member receives them, and the records that were applied.
        """
        self._runs.make_available(now_ms)
        if request.takes_suspects:
            chosen = chosen_suspects(self._runs, log_end_offset, request, limits)
        else:
            available = self._runs.available_below(log_end_offset, are_suspects=False)
            chosen = chosen_runs(available, self._fresh(limits, log_end_offset, now_ms), request, limits)
        version = NO_WRITE if write is None else write.version
        transitions = self.take(request.member_id, chosen, limits, now_ms, version)
        records: list[SharePartitionRecord] = [*transitions]
        if write is not None and transitions:
            opened = WriteOpened(write, transitions[0].first_offset, transitions[-1].last_offset)
            self.apply(opened)
            records.append(opened)
        return response_ranges(transitions, request), records

    def take(
        self,
        member_id: str,
        chosen: Sequence[Run],
        limits: SharePartitionLimits,
        now_ms: int,
        write_version: int = NO_WRITE,
    ) -> list[Transition]:
        """Lease exactly these runs; some may lie wholly past the SPEO.

        Raises:
            IllegalTransitionError: one of them is not AVAILABLE, differs from the runs in flight (selected from an
            older state), or does not lie past the one before it; nothing changed.
        """
        deadline_ms = now_ms + limits.lock_duration_ms
        records: list[Transition] = []
        free_from = self._start_offset
        for run in chosen:
            outcome = outcome_of(run.state, Cause.ACQUIRE)
            is_fresh = run.first_offset >= self.next_offset
            is_current = run.delivery_count == 0 if is_fresh else self._runs.contains(run)
            if run.first_offset < free_from or not is_current:
                raise IllegalTransitionError(
                    f"Offsets {run.first_offset}..{run.last_offset} with delivery count {run.delivery_count} cannot be "
                    f"acquired: they differ from the records in flight from {free_from} to {self.next_offset - 1}."
                )
            free_from = run.last_offset + 1
            records.append(
                Transition(
                    run.first_offset,
                    run.last_offset,
                    None if is_fresh else run.state,
                    outcome.to_state,
                    run.delivery_count + outcome.delivery_count_change,
                    member_id,
                    deadline_ms,
                    Cause.ACQUIRE,
                    run.is_suspect,
                    write_version,
                )
            )
        for record in records:
            self.apply(record)
        return records

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Apply one request's acknowledgements, all or none.

        A write whose last record is given up before it began is closed: no run of it writes any more.

        Raises:
            InvalidRequestError: a range or its types are malformed, or end past the SPEO.
            InvalidRecordStateError: a record is not held by this member, or its open write does not allow it.
        """
        planned = planned_transitions(self._runs, self._start_offset, member_id, batches, limits, now_ms)
        if not self._open_writes:
            return self._apply_and_advance(planned)
        given_up = self._given_up(planned)
        applied = self._apply_and_advance(planned)
        closed = [WriteClosed(version) for version in given_up if not self._runs.has_write(version)]
        for record in closed:
            self.apply(record)
        return [*applied, *closed]

    def resolve(
        self, write_version: int, resolution: Resolution, limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Apply what a sink says of an open write; nothing if the write is closed, or was never opened here."""
        opened = self._open_writes.get(write_version)
        if opened is None:
            return []
        records = self._apply_and_advance(resolved_transitions(self._runs, opened, resolution, limits, now_ms))
        if resolution.is_closed:
            closed = WriteClosed(write_version)
            self.apply(closed)
            records.append(closed)
        return records

    def expire_locks(self, limits: SharePartitionLimits, now_ms: int) -> list[SharePartitionRecord]:
        """End every acquisition lock that is due at `now_ms`."""
        due = self._runs.due(now_ms)
        if not due:
            return []
        return self._apply_and_advance([lock_end_of(run, Cause.LOCK_TIMEOUT, limits, now_ms) for run in due])

    def release_member(
        self, member_id: str, limits: SharePartitionLimits, now_ms: int, cause: Cause = Cause.SESSION_CLOSE
    ) -> list[SharePartitionRecord]:
        """Release all records that a member holds, because its share session closed or the member is gone."""
        held = self._runs.held_by(member_id)
        if not held:
            return []
        return self._apply_and_advance([lock_end_of(run, cause, limits, now_ms) for run in held])

    def finish_dead_letters(
        self, first_offset: int, last_offset: int, limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Archive the ARCHIVING records of a range, because their dead-letter records are written (KIP-1191)."""
        written = [
            run for run in self._runs.overlapping(first_offset, last_offset) if run.state is RecordState.ARCHIVING
        ]
        return self._apply_and_advance(
            [transition_of(run, Cause.DEAD_LETTER_WRITTEN, limits, now_ms) for run in written]
        )

    def import_batches(self, batches: Iterable[StateBatch], limits: SharePartitionLimits) -> list[SharePartitionRecord]:
        """Take over records that another system has delivered, into a new state.

        Args:
            batches: ascending, at or above the SPSO; holes between them were never delivered.
            limits: limits in force; without a dead-letter queue a record that waits for its dead letter is archived.
        """
        records = []
        for batch in batches:
            is_given_up = batch.delivery_state is RecordState.ARCHIVING and not limits.has_dead_letter_queue
            to_state = RecordState.ARCHIVED if is_given_up else batch.delivery_state
            offsets = batch.first_offset, batch.last_offset
            records.append(Transition(*offsets, None, to_state, batch.delivery_count, "", 0, Cause.IMPORTED))
        return self._apply_and_advance(records)

    def redrive(
        self, ranges: Iterable[OffsetRange], limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Make archived records available again with delivery count 0, all of the ranges or none.

        Args:
            ranges: (first, last) offsets, ascending.

        Raises:
            InvalidRecordStateError: as `archived_runs`.
        """
        archived = archived_runs(self._runs, self._start_offset, ranges)
        return self._apply_and_advance([transition_of(run, Cause.REDRIVE, limits, now_ms) for run in archived])

    def move_log_start(self, log_start_offset: int, limits: SharePartitionLimits) -> list[SharePartitionRecord]:
        """Move the SPSO to the log start: records below it no longer exist, even if a member holds them.

        It stops at the first record with an open write, until that is decided.
        """
        return self._forced_start(self._before_open_writes(log_start_offset), Cause.LOG_START, limits)

    def pass_finished(self) -> StartOffsetMoved | None:
        """Move the SPSO past the finished records at it; None when there are none. Every operation ends with it."""
        finished = self._runs.terminal_from(self._start_offset)
        if not finished:
            return None
        moved = StartOffsetMoved(finished[-1].last_offset + 1)
        self.apply(moved)
        return moved

    def apply(self, record: SharePartitionRecord) -> None:
        """Change the state by one record. There is no other way to change it."""
        match record:
            case Transition():
                self._fill_hole_before(record.first_offset)
                self._runs.assign(record.run)
            case StartOffsetMoved():
                if record.cause is Cause.OFFSET_RESET:
                    # Kafka, too, initialises the state again: state above the new start offset is void.
                    self._runs = RunMap()
                self._runs.drop_below(record.start_offset)
                self._start_offset = record.start_offset
            case WriteOpened():
                self._open_writes[record.write.version] = record
            case WriteClosed():
                del self._open_writes[record.version]

    def _fresh(self, limits: SharePartitionLimits, log_end_offset: int, now_ms: int) -> Run | None:
        next_offset = self.next_offset
        if next_offset >= log_end_offset or limits.is_draining or self.is_span_full(limits):
            return None
        window_end = next_offset + limits.max_record_locks - self._runs.window_count(now_ms)
        span_end = self._start_offset + limits.span_limit
        return fresh_run(next_offset, min(window_end, span_end), log_end_offset)

    def _apply_and_advance(self, records: Iterable[SharePartitionRecord]) -> list[SharePartitionRecord]:
        applied = list(records)
        for record in applied:
            self.apply(record)
        moved = self.pass_finished()
        return [*applied, moved] if moved else applied

    def _given_up(self, planned: Iterable[Transition]) -> list[int]:
        """Return the writes of the records whose delivery ends by transitions that are about to be applied."""
        ended = (record for record in planned if record.to_state not in UNDECIDED_STATES)
        runs = (run for record in ended for run in self._runs.overlapping(record.first_offset, record.last_offset))
        return sorted({run.write_version for run in runs if run.write_version != NO_WRITE})

    def _before_open_writes(self, offset: int) -> int:
        """Return an offset, or the first one with an open write if that is lower."""
        if not self._open_writes:
            return offset
        below = self._runs.overlapping(self._start_offset, offset - 1)
        return next((run.first_offset for run in below if run.write_version != NO_WRITE), offset)

    def _forced_start(self, offset: int, cause: Cause, limits: SharePartitionLimits) -> list[SharePartitionRecord]:
        if offset <= self._start_offset:
            return []
        passed = [
            transition_of(run, cause, limits, 0)
            for run in self._runs.overlapping(self._start_offset, offset - 1)
            if not run.state.is_terminal
        ]
        return self._apply_and_advance([*passed, StartOffsetMoved(offset, cause)])

    def _fill_hole_before(self, offset: int) -> None:
        next_offset = self.next_offset
        if offset > next_offset:
            self._runs.assign(Run(next_offset, offset - 1, RecordState.AVAILABLE, 0))


def _without_holes(start_offset: int, runs: Iterable[Run]) -> Iterator[Run]:
    next_offset = start_offset
    for run in runs:
        if not next_offset <= run.first_offset <= run.last_offset:
            raise StateTableError(
                f"Stored records {run.first_offset}..{run.last_offset} are not an ascending range at or above offset "
                f"{next_offset} (share-partition start offset {start_offset}).",
                "The stored state is damaged: audit it before the share-partition is used.",
            )
        if run.first_offset > next_offset:
            yield Run(next_offset, run.first_offset - 1, RecordState.AVAILABLE, 0)
        yield run
        next_offset = run.last_offset + 1
