"""The fold of many transitions at once, over columns: what held before each of them, and the state after all.

A block is the rows of a share-partition from one row that has its whole state to the next. Blocks are folded together:

1. All first and last offsets of a block divide its offsets into pieces, within which all records have the same history.
2. Each transition, and each run of the state at the beginning, is an event of the pieces that it covers. By piece and
   time, the event before an event has the state from which it must start (`transition_rules` judges that).
3. A piece is finished at its last event, if that leads to a terminal state, since nothing leads out of one. The start
   offset after a transition is the first piece, by offset, that is not finished by then: a running maximum of these
   times.

Each block has a time before its first transition, then one after each transition. Times rise over all blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sharegroup.audit.verification.row_columns import Flags, Numbers, RowColumns, UndecidedError
from sharegroup.core.record_state import TERMINAL_STATES, RecordState
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.transition_rules import (
    NOT_IN_FLIGHT,
    TABLES,
    Change,
    Tables,
    holds,
    names_the_holder,
)

_STATES = tuple(RecordState)
_IS_TERMINAL = np.array([state in TERMINAL_STATES for state in _STATES] + [False])
COLUMN_TABLES = Tables(*(np.array(table, np.int64) for table in TABLES))
_LARGEST = 1 << 62
_MOST_PIECES = 4_000_000
_PIECES_PER_EVENT = 64


class LimitColumns(NamedTuple):
    """`SharePartitionLimits` as columns, with the highest delivery count limit so far."""

    lock_duration_ms: Numbers
    delivery_count_limit: Numbers
    has_dead_letter_queue: Numbers
    highest_limit: Numbers
    max_record_locks: Numbers
    span_limit: Numbers
    max_runs: Numbers
    is_draining: Numbers

    def take(self, positions: Numbers) -> LimitColumns:
        """Return the limits at positions."""
        return LimitColumns(*(column[positions] for column in self))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows to fold.

    Attributes:
        state_row: the row with the whole state, after which each block begins.
        end: one past its last row.
        limits: limits in force in each.
    """

    state_row: Numbers
    end: Numbers
    limits: LimitColumns

    def __len__(self) -> int:
        return len(self.end)


class Events(NamedTuple):
    """Runs or transitions as columns; of runs, `from_state`, `cause` and the time are not used."""

    block: Numbers
    first: Numbers
    last: Numbers
    to_state: Numbers
    delivery_count: Numbers
    member: Numbers
    deadline_ms: Numbers
    is_suspect: Numbers

    def take(self, is_taken: Flags) -> Events:
        """Return some of them."""
        return Events(*(column[is_taken] for column in self))


def ranges(begin: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers of many ranges, and the range of each."""
    lengths = end - begin
    of_range = np.repeat(np.arange(len(begin)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(len(of_range)) - before[of_range] + begin[of_range], of_range


class ColumnFold:
    """Folds blocks."""

    def __init__(self, rows: RowColumns, blocks: Blocks) -> None:
        self._blocks = blocks
        self.is_broken = np.zeros(len(blocks), np.bool_)
        """Blocks in which something does not hold, or cannot be decided here."""
        entries = rows.transitions
        run_members, members, self._members = rows.members()
        self._first_transition = entries.begin[blocks.state_row + 1]
        index, block = ranges(self._first_transition, entries.begin[blocks.end])
        run_index, run_block = ranges(rows.runs.begin[blocks.state_row], rows.runs.begin[blocks.state_row + 1])
        first, last = (entries.numbers(name)[index] for name in ("first_offset", "last_offset"))
        to_state, count = entries.states("to_state")[index], entries.numbers("delivery_count")[index]
        is_held = to_state == RecordState.ACQUIRED
        self.from_state = entries.states("from_state")[index]
        self.cause = entries.causes()[index]
        self.now_ms = entries.numbers("time_ms")[index]
        self.transition_member = members[index]
        deadlines = entries.numbers("deadline_ms")[index]
        self.transitions = Events(
            block,
            first,
            last,
            to_state,
            count,
            np.where(is_held, self.transition_member, 0),
            deadlines,
            entries.flags("is_suspect")[index],
        )
        self.runs = Events(
            run_block,
            rows.runs.numbers("first_offset")[run_index],
            rows.runs.numbers("last_offset")[run_index],
            rows.runs.states("state")[run_index],
            rows.runs.numbers("delivery_count")[run_index],
            run_members[run_index],
            rows.runs.numbers("deadline_ms")[run_index],
            rows.runs.flags("is_suspect")[run_index],
        )
        # What follows from an open write hangs on more than a transition and its run.
        self._break(run_block, rows.runs.numbers("write_version")[run_index] == NO_WRITE)
        self._break(block, (to_state != RecordState.RESOLVING) & (self.from_state != RecordState.RESOLVING))
        self._start = rows["start_offset"][blocks.state_row]
        self._check_ranges()
        self._drop_broken()
        self._fold()

    def start_offsets(self, transition_count: Numbers, block: Numbers) -> Numbers:
        """Return the start offset of blocks after some of their transitions."""
        return self._start_at(self._time_of(block) + transition_count, block)

    def complete_counts(self, transition_count: Numbers, block: Numbers, start_offset: Numbers) -> Numbers:
        """Return the finished records at or above the start offset, after some transitions of blocks."""
        before = self.begin[block]
        finished = self._finished[before + transition_count] - self._finished[before]
        counts: Numbers = self._finished_at_first[block] + finished - (start_offset - self._start[block])
        return counts

    def piece_counts(self, block: Numbers, first_offset: Numbers, end_offset: Numbers) -> Numbers:
        """Return the pieces of blocks between offsets that are borders; the end is exclusive."""
        base = block * self._span - self._start[block]
        begin, end = (np.searchsorted(self._borders, base + offset) for offset in (first_offset, end_offset))
        counts: Numbers = end - begin
        return counts

    def state_after(self, block: int) -> tuple[int, list[Run]]:
        """Return the start offset and the runs after all transitions of a block, which is not broken."""
        begin, end = np.searchsorted(self._last_block, [block, block + 1])
        return int(self._last_start[block]), [
            Run(first, last, _STATES[state], count, self._members[member], deadline_ms, bool(is_suspect))
            for first, last, state, count, member, deadline_ms, is_suspect in zip(
                *(column[begin:end].tolist() for column in self._last_runs), strict=True
            )
        ]

    # 0. The ranges of runs and transitions.

    def _break(self, block: Numbers, is_right: Flags) -> None:
        self.is_broken[block[~is_right]] = True

    def _check_ranges(self) -> None:
        runs, transitions, start = self.runs, self.transitions, self._start
        self._break(transitions.block, (transitions.first <= transitions.last))
        self._break(transitions.block, transitions.first >= start[transitions.block])
        # Runs follow each other from the start offset on, then come the records that are acquired for the first time.
        self._break(runs.block, runs.first <= runs.last)
        # What a holder of suspects takes beside them hangs on more than a transition and its run.
        self._break(runs.block, (runs.is_suspect == 0) | (runs.to_state != RecordState.ACQUIRED))
        is_fresh = self.from_state == NOT_IN_FLIGHT
        block = np.concatenate([runs.block, transitions.block[is_fresh]])
        order = np.argsort(block, kind="stable")
        block = block[order]
        first = np.concatenate([runs.first, transitions.first[is_fresh]])[order]
        last = np.concatenate([runs.last, transitions.last[is_fresh]])[order]
        expected = start[block]
        is_next = block[1:] == block[:-1]
        expected[1:][is_next] = last[:-1][is_next] + 1
        self._break(block, first == expected)
        self._end = start.copy()
        # The last one of each block stays.
        self._end[block] = last + 1

    def _drop_broken(self) -> None:
        """Leave out what cannot be folded."""
        self._keep = ~self.is_broken[self.transitions.block]
        if not self.is_broken.any():
            return
        self.runs = self.runs.take(~self.is_broken[self.runs.block])
        self.transitions = self.transitions.take(self._keep)
        for name in ("from_state", "cause", "now_ms", "transition_member"):
            setattr(self, name, getattr(self, name)[self._keep])

    # 1. Pieces.

    def _fold(self) -> None:
        blocks, runs, transitions = self._blocks, self.runs, self.transitions
        count = np.bincount(transitions.block, minlength=len(blocks))
        self.begin = np.cumsum(count) - count
        """First transition of each block."""
        first, last, block = (
            np.concatenate([getattr(runs, name), getattr(transitions, name)]) for name in ("first", "last", "block")
        )
        if not len(first):
            raise UndecidedError
        relative_end = last - self._start[block] + 1
        span = int(relative_end.max()) + 1
        if span * len(blocks) > _LARGEST:
            raise UndecidedError
        low = block * span + (first - self._start[block])
        high = block * span + relative_end
        borders = np.sort(np.concatenate([low, high]))
        borders = borders[np.append(True, borders[1:] != borders[:-1])]
        self._borders, self._span = borders, span
        begin, end = np.searchsorted(borders, low), np.searchsorted(borders, high)
        size = np.bincount(block, end - begin, len(blocks))
        events = np.bincount(block, minlength=len(blocks))
        is_large = size > _PIECES_PER_EVENT * (events + 64)
        is_large |= np.cumsum(np.where(is_large, 0, size)) > _MOST_PIECES
        self.is_broken |= is_large
        end = np.where(is_large[block], begin, end)
        piece, event = ranges(begin, end)
        order = np.argsort(piece, kind="stable")
        self._order(piece[order], event[order])

    def _order(self, piece: Numbers, event: Numbers) -> None:
        """Order the events by piece and time, and follow them."""
        runs, transitions, borders, span = self.runs, self.transitions, self._borders, self._span
        is_last = np.ones(len(piece), np.bool_)
        is_last[:-1] = piece[1:] != piece[:-1]
        before = np.full(len(piece), -1, np.int64)
        before[1:] = np.where(is_last[:-1], -1, event[:-1])
        state, count, member, deadline_ms, is_suspect, block = (
            np.concatenate([getattr(runs, name), getattr(transitions, name)])
            for name in ("to_state", "delivery_count", "member", "deadline_ms", "is_suspect", "block")
        )
        # 3. The times at which pieces are finished.
        last_event, last_piece = event[is_last], piece[is_last]
        self._piece_block = block[last_event]
        transition = last_event - len(runs.first)
        finished = np.where(
            transition < 0, self._time_of(self._piece_block), self._time_after(transition, self._piece_block)
        )
        is_finished = _IS_TERMINAL[state[last_event]]
        # A piece that is not finished in its block is so when the next block begins.
        after_all = self._time_of(self._piece_block + 1)
        self._finished_by = np.maximum.accumulate(np.where(is_finished, finished, after_all))
        self._piece_first = borders[last_piece] - self._piece_block * span + self._start[self._piece_block]
        piece_last = borders[last_piece + 1] - 1 - self._piece_block * span + self._start[self._piece_block]
        self._note_finished()
        # 2. The rules.
        self._check_rules(event, before, state, count, member, deadline_ms, is_suspect)
        # The state after all.
        blocks = np.arange(len(self._blocks))
        self._last_start = self.start_offsets(self._count_of(blocks), blocks)
        is_alive = self._piece_first >= self._last_start[self._piece_block]
        alive = last_event[is_alive]
        self._last_block = self._piece_block[is_alive]
        self._last_runs = (
            *(self._piece_first[is_alive], piece_last[is_alive], state[alive], count[alive], member[alive]),
            *(deadline_ms[alive], is_suspect[alive]),
        )

    def _count_of(self, block: Numbers) -> Numbers:
        after = np.append(self.begin[1:], len(self.transitions.first))
        counts: Numbers = after[block] - self.begin[block]
        return counts

    def _time_of(self, block: Numbers) -> Numbers:
        """Return the time before the first transition of a block; that of a block after all is the end."""
        times: Numbers = np.append(self.begin, len(self.transitions.first))[block] + block
        return times

    def _time_after(self, transition: Numbers, block: Numbers) -> Numbers:
        return transition + block + 1

    def _start_at(self, time: Numbers, block: Numbers) -> Numbers:
        first = np.searchsorted(self._finished_by, time, side="right")
        is_in_block = first < len(self._finished_by)
        first = np.where(is_in_block, first, 0)
        is_in_block &= self._piece_block[first] == block
        return np.where(is_in_block, self._piece_first[first], self._end[block])

    def _note_finished(self) -> None:
        runs, transitions = self.runs, self.transitions
        sizes = np.where(_IS_TERMINAL[transitions.to_state], transitions.last - transitions.first + 1, 0)
        self._finished = np.concatenate([[0], np.cumsum(sizes)])
        is_finished = _IS_TERMINAL[runs.to_state]
        sums = np.zeros(len(self._blocks), np.int64)
        np.add.at(sums, runs.block[is_finished], (runs.last - runs.first + 1)[is_finished])
        self._finished_at_first = sums

    # 2. The rules.

    def _check_rules(
        self,
        event: Numbers,
        before: Numbers,
        state: Numbers,
        count: Numbers,
        member: Numbers,
        deadline_ms: Numbers,
        is_suspect: Numbers,
    ) -> None:
        transitions = self.transitions
        run_count = len(self.runs.first)
        is_transition = event >= run_count
        event, before = event[is_transition], before[is_transition]
        at = event - run_count
        block = transitions.block[at]
        is_known = before >= 0
        change = Change(
            from_state=self.from_state[at],
            to_state=state[event],
            delivery_count=count[event],
            member=self.transition_member[at],
            deadline_ms=deadline_ms[event],
            cause=self.cause[at],
            now_ms=self.now_ms[at],
            run_state=np.where(is_known, state[before], NOT_IN_FLIGHT),
            run_count=np.where(is_known, count[before], 0),
            run_member=np.where(is_known, member[before], 0),
            run_deadline_ms=np.where(is_known, deadline_ms[before], 0),
            is_suspect=is_suspect[event],
            run_is_suspect=np.where(is_known, is_suspect[before], 0),
        )
        limits = self._blocks.limits.take(block)
        is_right = holds(change, limits, limits.highest_limit, COLUMN_TABLES) & names_the_holder(change, COLUMN_TABLES)
        self._break(block, is_right)
