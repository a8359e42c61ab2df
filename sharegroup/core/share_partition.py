"""The share-partition: in-flight records of one (group, topic-partition), and what members do to them.

Every operation decides on records first (`records.py`), then applies them; it returns what it applied, so that
whoever calls can persist exactly that. Recovery applies the same records again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sharegroup.core.acknowledgement import planned_transitions, transition_of
from sharegroup.core.acquisition import AcquireRequest, answer_ranges, chosen_runs, fresh_run
from sharegroup.core.record_state import Cause, RecordState, outcome_of
from sharegroup.core.records import (
    AcknowledgementBatch,
    AcquiredRange,
    SharePartitionLimits,
    SharePartitionRecord,
    StartOffsetMoved,
    Transition,
)
from sharegroup.core.runs import Run, RunMap
from sharegroup.errors import IllegalTransitionError, StateTableError


class SharePartition:
    """State engine of one share-partition (spec 002, "In-memory data structures").

    The runs cover every offset from the SPSO to the last one in flight (SPEO) without a hole: an offset that was
    skipped is AVAILABLE with delivery count 0. Offsets past the SPEO were never in flight.

    Args:
        start_offset: the SPSO.
        runs: runs at or above the SPSO, ascending; holes between them become AVAILABLE with delivery count 0.
        state_epoch: fencing epoch of the durable state.

    Raises:
        StateTableError: a run is reversed, begins below the SPSO, or overlaps the one before it.
    """

    def __init__(self, start_offset: int, runs: Iterable[Run] = (), state_epoch: int = 0) -> None:
        self._start_offset = start_offset
        self._runs = RunMap(_without_holes(start_offset, runs))
        self.state_epoch = state_epoch
        self._pass_terminal_prefix()

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
        """Everything in flight. To be read only."""
        return self._runs

    @property
    def delivery_complete_count(self) -> int:
        """Finished records at or above the SPSO (KIP-1226)."""
        return self._runs.terminal_count

    def lag(self, log_end_offset: int) -> int:
        """Records below the end of the log that are not finished (KIP-1226)."""
        # A start offset that was reset past the end of the log leaves nothing to do.
        return max(log_end_offset - self._start_offset - self.delivery_complete_count, 0)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next acquisition lock ends; None when nothing is locked."""
        return self._runs.next_deadline_ms

    @property
    def next_available_ms(self) -> int | None:
        """When the next record may be acquired that was released with a delay; None when none waits for its time."""
        return self._runs.next_available_ms

    def make_available(self, now_ms: int) -> None:
        """Let records be acquired that were released with a delay which is over at `now_ms`."""
        self._runs.make_available(now_ms)

    def next_fetch_offset(self, now_ms: int) -> int:
        """The lowest offset that an acquire would take, were the log without end."""
        self._runs.make_available(now_ms)
        first = next(self._runs.available(), None)
        return first.first_offset if first else self.next_offset

    def acquirable_count(self, limits: SharePartitionLimits, log_end_offset: int, now_ms: int) -> int:
        """How many records an acquire without limit would find."""
        self._runs.make_available(now_ms)
        fresh = self._fresh(limits, log_end_offset)
        return self._runs.available_count_below(log_end_offset) + (fresh.size if fresh else 0)

    def acquire(
        self, request: AcquireRequest, limits: SharePartitionLimits, log_end_offset: int, now_ms: int
    ) -> tuple[list[AcquiredRange], list[SharePartitionRecord]]:
        """Lease records to a member; the delivery count of each goes up by one.

        Args:
            request: who, and how much.
            limits: limits in force.
            log_end_offset: end of what may be acquired, exclusive: the last stable offset under read_committed. It may
                lie below the SPEO, when the group has just become read_committed.
            now_ms: the locks run from here.

        Returns:
            The ranges for the answer, and the records that were applied.
        """
        fresh = self._fresh(limits, log_end_offset)
        self._runs.make_available(now_ms)
        chosen = chosen_runs(self._runs.available_below(log_end_offset), fresh, request, limits)
        return answer_ranges(chosen, request), self.take(request.member_id, chosen, limits, now_ms)

    def take(
        self, member_id: str, chosen: Sequence[Run], limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Lease exactly these runs, whoever chose them; runs wholly past the SPEO may be among them.

        Raises:
            IllegalTransitionError: one of them is not AVAILABLE, is not what is in flight (a choice made from an
                older state), or does not lie past the one before it; nothing changed.
        """
        deadline_ms = now_ms + limits.lock_duration_ms
        records: list[SharePartitionRecord] = []
        free_from = self._start_offset
        for run in chosen:
            outcome = outcome_of(run.state, Cause.ACQUIRE)
            is_fresh = run.first_offset >= self.next_offset
            is_current = run.delivery_count == 0 if is_fresh else self._runs.contains(run)
            if run.first_offset < free_from or not is_current:
                raise IllegalTransitionError(
                    f"Offsets {run.first_offset}..{run.last_offset} with delivery count {run.delivery_count} cannot be "
                    f"acquired: they are not what is in flight from {free_from} to {self.next_offset - 1}."
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
                )
            )
        return self._applied(records)

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Apply one request's acknowledgements, all or none.

        Raises:
            InvalidRequestError: a range or its types are malformed, or end past the SPEO.
            InvalidRecordStateError: a record is not held by this member.
        """
        planned = planned_transitions(self._runs, self._start_offset, member_id, batches, limits, now_ms)
        return self._applied_and_advanced(planned)

    def expire_locks(self, limits: SharePartitionLimits, now_ms: int) -> list[SharePartitionRecord]:
        """End every acquisition lock that is due at `now_ms`."""
        due = self._runs.due(now_ms)
        if not due:
            return []
        return self._applied_and_advanced([transition_of(run, Cause.LOCK_TIMEOUT, limits, now_ms) for run in due])

    def release_member(self, member_id: str, limits: SharePartitionLimits, now_ms: int) -> list[SharePartitionRecord]:
        """Take back everything a member holds, because its share session closed."""
        held = self._runs.held_by(member_id)
        if not held:
            return []
        return self._applied_and_advanced([transition_of(run, Cause.SESSION_CLOSE, limits, now_ms) for run in held])

    def finish_dead_letters(
        self, first_offset: int, last_offset: int, limits: SharePartitionLimits, now_ms: int
    ) -> list[SharePartitionRecord]:
        """Archive the ARCHIVING records of a range, because their dead letters are written (KIP-1191)."""
        written = [
            run for run in self._runs.overlapping(first_offset, last_offset) if run.state is RecordState.ARCHIVING
        ]
        return self._applied_and_advanced(
            [transition_of(run, Cause.DEAD_LETTER_WRITTEN, limits, now_ms) for run in written]
        )

    def move_log_start(self, log_start_offset: int, limits: SharePartitionLimits) -> list[SharePartitionRecord]:
        """Follow the log start: what lies below it no longer exists, whoever holds it."""
        return self._forced_start(log_start_offset, Cause.LOG_START, limits)

    def apply(self, record: SharePartitionRecord) -> None:
        """Change the state by one record. There is no other way to change it."""
        if isinstance(record, StartOffsetMoved):
            if record.cause is Cause.OFFSET_RESET:
                # Kafka, too, initialises the state anew: what was known above the new start offset is void.
                self._runs = RunMap()
            self._runs.drop_below(record.start_offset)
            self._start_offset = record.start_offset
            return
        self._fill_hole_before(record.first_offset)
        holder = record.member_id if record.to_state is RecordState.ACQUIRED else ""
        self._runs.assign(
            Run(
                record.first_offset,
                record.last_offset,
                record.to_state,
                record.delivery_count,
                holder,
                record.deadline_ms,
            )
        )

    def _fresh(self, limits: SharePartitionLimits, log_end_offset: int) -> Run | None:
        return fresh_run(self.next_offset, self._start_offset + limits.max_record_locks, log_end_offset)

    def _applied(self, records: list[SharePartitionRecord]) -> list[SharePartitionRecord]:
        for record in records:
            self.apply(record)
        return records

    def _applied_and_advanced(self, transitions: Sequence[Transition]) -> list[SharePartitionRecord]:
        records = self._applied(list(transitions))
        moved = self._pass_terminal_prefix()
        return [*records, moved] if moved else records

    def _pass_terminal_prefix(self) -> StartOffsetMoved | None:
        prefix = self._runs.terminal_prefix()
        if not prefix or prefix[0].first_offset != self._start_offset:
            return None
        moved = StartOffsetMoved(prefix[-1].last_offset + 1)
        self.apply(moved)
        return moved

    def _forced_start(self, offset: int, cause: Cause, limits: SharePartitionLimits) -> list[SharePartitionRecord]:
        if offset <= self._start_offset:
            return []
        passed = [
            transition_of(run, cause, limits, 0)
            for run in self._runs.overlapping(self._start_offset, offset - 1)
            if not run.state.is_terminal
        ]
        records = self._applied([*passed, StartOffsetMoved(offset, cause)])
        moved = self._pass_terminal_prefix()
        return [*records, moved] if moved else records

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
