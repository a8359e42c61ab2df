"""Checks of the rows of blocks over columns: each row agrees with the transitions in it and with the fold.

They decide on whole blocks: True where the checks of `segments` find nothing in any row. Those checks name what is
wrong in the other blocks.
"""

from __future__ import annotations

import json

import numpy as np

from sharegroup.audit.verification.column_fold import COLUMN_TABLES, Blocks, ColumnFold, ranges
from sharegroup.audit.verification.row_columns import KIND_NUMBERS, Flags, Numbers, RowColumns
from sharegroup.audit.verification.segments import BlockOutcome
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.state_batches import StateBatch, combined
from sharegroup.core.transition_rules import CAUSE_NUMBERS, is_persisted
from sharegroup.protocol.rows import RecordType

_UPDATE = KIND_NUMBERS[RecordType.SHARE_UPDATE]
_TRANSITIONS = KIND_NUMBERS[RecordType.SHARE_TRANSITIONS]
_STATES = tuple(RecordState)


class ChangeRows:
    """The rows of blocks, without those that have the whole state.

    Args:
        rows: all rows.
    """

    def __init__(self, rows: RowColumns, blocks: Blocks, fold: ColumnFold) -> None:
        self._rows = rows
        self._fold = fold
        self._row, self._block = ranges(blocks.state_row + 1, blocks.end)
        self._entries, self._entry_row = self._of_rows(rows.transitions.begin)
        self.is_broken = fold.is_broken.copy()
        self._check_columns()
        self._check_transitions()
        self._check_effects(blocks)
        self._check_batches()

    def outcome(self, block: int) -> BlockOutcome:
        """Return the outcome of a block that is not broken."""
        begin, end = np.searchsorted(self._block, [block, block + 1])
        rows, batches = self._rows, self._rows.state_batches
        row = self._row[begin:end]
        is_update = rows.kind[row] == _UPDATE
        first, last = np.searchsorted(self._fold.transitions.block, [block, block + 1])
        causes, states = self._fold.cause[first:last], self._fold.transitions.to_state[first:last]
        is_rejected = (causes == CAUSE_NUMBERS[Cause.REJECT]) & (states == RecordState.ARCHIVING)
        rejected = [
            (int(self._fold.transitions.first[first + at]), int(self._fold.transitions.last[first + at]))
            for at in np.flatnonzero(is_rejected)
        ]
        if not is_update.any():
            return BlockOutcome(int(last - first), None, [], rejected)
        final = int(row[is_update][-1])
        update = tuple(int(rows[name][final]) for name in ("leader_epoch", "start_offset", "delivery_complete_count"))
        begin, end = batches.begin[row[0]], batches.begin[row[-1] + 1]
        columns = [column[begin:end] for column in self._batches]
        is_left = columns[1] >= update[1]
        kept = [
            StateBatch(first_offset, last_offset, count, _STATES[state])
            for first_offset, last_offset, state, count in zip(
                *(column[is_left].tolist() for column in columns), strict=True
            )
        ]
        return BlockOutcome(int(last - first), (update[0], update[1], update[2]), kept, rejected)

    def _break(self, block: Numbers, is_right: Flags) -> None:
        self.is_broken[block[~is_right]] = True

    def _of_rows(self, begin: Numbers) -> tuple[Numbers, Numbers]:
        """Return the entries of the rows, and for each its position among the rows."""
        return ranges(begin[self._row], begin[self._row + 1])

    def _check_columns(self) -> None:
        rows, row = self._rows, self._row
        opener = rows.segment_begin[rows.segment[row]]
        for name in ("topic", "request_partition"):
            self._break(self._block, rows[name][row] == rows[name][opener])
        # Kafka's coordinator fences a lower leader epoch.
        epochs = rows["leader_epoch"]
        self._break(self._block, (epochs[row] >= epochs[row - 1]) & (epochs[row - 1] >= 0))
        self._break(self._block, rows["snapshot_epoch"][row] == rows["segment"][row])
        self._break(self._block, rows.runs.begin[row + 1] == rows.runs.begin[row])
        payloads = rows.payloads(row)
        is_usual = np.fromiter((text == "{}" or _is_usual(text) for text in payloads), np.bool_, len(row))
        self._break(self._block, is_usual)

    def _check_transitions(self) -> None:
        """Check times and messages, which rise within a row."""
        rows, entries = self._rows, self._rows.transitions
        time_ms = entries.numbers("time_ms")
        row, block = self._row[self._entry_row], self._block[self._entry_row]
        before_ms = np.where(entries.begin[row] == self._entries, 0, time_ms[self._entries - 1])
        time_ms = time_ms[self._entries]
        self._break(block, (before_ms <= time_ms) & (time_ms <= rows["time_ms"][row]))
        self._break(block, entries.numbers("request_offset")[self._entries] <= rows["request_offset"][row])

    def _check_effects(self, blocks: Blocks) -> None:
        rows, fold, row, block = self._rows, self._fold, self._row, self._block
        begin = rows.transitions.begin
        done = begin[row + 1] - begin[blocks.state_row[block] + 1]
        # Of a broken block the fold knows nothing.
        done = np.where(self.is_broken[block], 0, done)
        start = fold.start_offsets(done, block)
        self._break(block, rows["start_offset"][row] == start)
        self._break(block, rows["delivery_complete_count"][row] == fold.complete_counts(done, block, start))

    def _check_batches(self) -> None:
        """Check kinds and state batches: the changes that Kafka would store, merged where they touch."""
        rows, entries = self._rows, self._rows.transitions
        states, causes = entries.states("to_state")[self._entries], entries.causes()[self._entries]
        is_stored = is_persisted(states, causes, COLUMN_TABLES)
        stored = self._entries[is_stored]
        position = self._entry_row[is_stored]
        is_update = np.zeros(len(self._row), np.bool_)
        is_update[position] = True
        self._break(self._block, rows.kind[self._row] == np.where(is_update, _UPDATE, _TRANSITIONS))
        first, last = (entries.numbers(name)[stored] for name in ("first_offset", "last_offset"))
        counts = entries.numbers("delivery_count")[stored]
        expected = self._merged(position, (first, last, states[is_stored], counts))
        batches = rows.state_batches
        self._batches = (
            *(batches.numbers(name) for name in ("first_offset", "last_offset")),
            batches.states("delivery_state"),
            batches.numbers("delivery_count"),
        )
        index, position = self._of_rows(batches.begin)
        sizes = np.bincount(position, minlength=len(self._row))
        of_equal = np.bincount(expected[0], minlength=len(self._row)) == sizes
        self._break(self._block, of_equal)
        kept = of_equal[expected[0]]
        is_kept = of_equal[position]
        for written, replayed in zip(self._batches, expected[1:], strict=True):
            self._break(self._block[position[is_kept]], written[index[is_kept]] == replayed[kept])

    def _merged(self, position: Numbers, changes: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
        """Return position of the row, offsets, state and count of the batches that Kafka would store.

        Changes that do not overlap are merged where they touch; `combined` merges the few others.
        """
        order = np.lexsort((changes[0], position))
        position = position[order]
        changes = tuple(column[order] for column in changes)
        first, last = changes[:2]
        is_same = position[1:] == position[:-1]
        overlapping = np.unique(position[1:][is_same & (first[1:] <= last[:-1])])
        start = self._rows["start_offset"][self._row[position]]
        is_left = (last >= start) & ~np.isin(position, overlapping)
        merged = _merged(position[is_left], np.maximum(first, start)[is_left], *(c[is_left] for c in changes[1:]))
        if not len(overlapping):
            return merged
        combined_rows = [self._combined(number, position, changes) for number in overlapping.tolist()]
        columns = [np.concatenate(column) for column in zip(merged, *combined_rows, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)

    def _combined(self, number: int, position: Numbers, changes: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
        begin, end = np.searchsorted(position, [number, number + 1])
        batches = combined(
            (),
            (
                StateBatch(first, last, count, _STATES[state])
                for first, last, state, count in zip(*(column[begin:end].tolist() for column in changes), strict=True)
            ),
            int(self._rows["start_offset"][self._row[number]]),
        )
        rows = [(number, b.first_offset, b.last_offset, int(b.delivery_state), b.delivery_count) for b in batches]
        return tuple(np.array(rows, np.int64).reshape(-1, 5).T)


def _merged(position: Numbers, first: Numbers, last: Numbers, state: Numbers, count: Numbers) -> tuple[Numbers, ...]:
    """Merge ascending changes of a row that touch and are alike."""
    begins = np.ones(len(first), np.bool_)
    begins[1:] = (
        (position[1:] != position[:-1])
        | (first[1:] != last[:-1] + 1)
        | (state[1:] != state[:-1])
        | (count[1:] != count[:-1])
    )
    ends = np.append(begins[1:], True)[: len(begins)]
    return position[begins], first[begins], last[ends], state[begins], count[begins]


def _is_usual(payload: str) -> bool:
    """Return True if a payload has nothing that changes the state: no log start, no other system's origin, no write."""
    try:
        values = json.loads(payload)
    except ValueError:
        return False
    if not isinstance(values, dict) or values.get("open_writes") or values.get("closed_writes"):
        return False
    return values.get("log_start_offset", -1) == -1 and values.get("origin") is None
