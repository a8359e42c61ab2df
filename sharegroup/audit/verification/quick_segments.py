"""Segments of a long history: all rows between states are checked over columns, the others one by one.

Nearly all segments hold. Where a segment does, the columns say so for a fraction of the cost of `check_segment`; every
other segment goes to it, from its first row on, so that its findings are the same as those of `check_segment` alone. A
value that the columns do not judge (imported rows, a moved log start, an administrator's redrive) is no finding: it
only makes the segment one of those.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sharegroup.audit.verification.change_rows import ChangeRows
from sharegroup.audit.verification.column_fold import Blocks, ColumnFold, LimitColumns
from sharegroup.audit.verification.group_rows import TableContext
from sharegroup.audit.verification.row_columns import (
    KIND_NUMBERS,
    SEGMENT,
    Flags,
    RowColumns,
    UndecidedError,
)
from sharegroup.audit.verification.segments import CheckedSegment, Segment, SegmentKey, check_segment
from sharegroup.audit.verification.window_columns import blocks_past_the_window
from sharegroup.core.records import SharePartitionLimits
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.schema import decoded

_SNAPSHOT, _TABLE_SNAPSHOT, _TOMBSTONE, _UPDATE, _TRANSITIONS = (
    KIND_NUMBERS[kind]
    for kind in (
        *(RecordType.SHARE_SNAPSHOT, RecordType.TABLE_SNAPSHOT, RecordType.SHARE_TOMBSTONE),
        *(RecordType.SHARE_UPDATE, RecordType.SHARE_TRANSITIONS),
    )
)


def check_segments(rows: pa.Table, context: TableContext) -> Iterator[CheckedSegment]:
    """Check whole segments.

    Args:
        rows: all rows of some segments, with their segment, in any order.
    """
    if rows.num_rows:
        yield from _Segments(RowColumns(rows), context).checked()


class _Segments:
    def __init__(self, rows: RowColumns, context: TableContext) -> None:
        self._rows = rows
        self._context = context
        self._has_state = (rows.kind == _SNAPSHOT) | (rows.kind == _TABLE_SNAPSHOT)
        self._is_apart = self._has_state | (rows.kind == _TOMBSTONE)
        """Rows that are checked one by one."""

    def checked(self) -> Iterator[CheckedSegment]:
        """Check the segments in their order."""
        rows = self._rows
        quick = self._quickly_checked()
        for number, (begin, end) in enumerate(zip(rows.segment_begin.tolist(), rows.segment_end.tolist(), strict=True)):
            checked = quick.get(number)
            if checked is None:
                of_segment = list(decoded(rows.piece(slice(begin, end)).drop_columns([SEGMENT])))
                checked = check_segment(self._key(number, of_segment[0]), of_segment, self._context)
            yield checked

    def _key(self, number: int, row: StateRow) -> SegmentKey:
        epoch = int(self._rows[SEGMENT][self._rows.segment_begin[number]])
        return SegmentKey(row.group_id, row.topic_id, row.partition, row.state_epoch, epoch)

    def _quickly_checked(self) -> dict[int, CheckedSegment]:
        """Return the segments that hold, as far as columns can say it."""
        rows = self._rows
        is_regular = self._are_regular()
        apart = np.flatnonzero(self._is_apart & is_regular[rows.segment])
        opened: dict[int, Segment] = {}
        limits: list[tuple[SharePartitionLimits, int]] = []
        single = dict(zip(apart.tolist(), decoded(rows.piece(apart).drop_columns([SEGMENT])), strict=True))
        highest_epoch = np.maximum.reduceat(rows["leader_epoch"], rows.segment_begin)
        for number in np.flatnonzero(is_regular).tolist():
            row = single[int(rows.segment_begin[number])]
            segment = Segment(self._key(number, row), self._context)
            segment.check(row)
            last_offset = int(rows["request_offset"][rows.segment_end[number] - 1])
            known = segment.limits_until(last_offset, int(highest_epoch[number]))
            if known is not None:
                opened[number] = segment
                limits.append(known)
        if not opened:
            return {}
        blocks = self._blocks(list(opened), limits)
        try:
            fold = ColumnFold(rows, blocks)
            fold.is_broken[blocks_past_the_window(blocks, fold)] = True
            changes = ChangeRows(rows, blocks, fold)
        except UndecidedError:
            return {}
        is_broken = np.zeros(len(rows.segment_begin), np.bool_)
        is_broken[rows.segment[blocks.state_row[changes.is_broken]]] = True
        of_row = {row: number for number, row in enumerate(blocks.state_row.tolist())}
        quick: dict[int, CheckedSegment] = {}
        apart_in = np.searchsorted(apart, np.append(rows.segment_begin, len(rows)))
        for number, segment in opened.items():
            if is_broken[number]:
                continue
            for row in apart[apart_in[number] : apart_in[number + 1]].tolist():
                if row != rows.segment_begin[number]:
                    segment.check(single[row])
                block = of_row.get(row)
                if block is not None:
                    segment.pass_over(changes.outcome(block), *fold.state_after(block))
            checked = segment.finish()
            if not checked.findings and checked.orphan_row is None:
                quick[number] = checked
        return quick

    def _are_regular(self) -> Flags:
        """Return the segments that begin with a state and have rows of the usual types in the usual places."""
        rows = self._rows
        begin, last = rows.segment_begin, rows.segment_end - 1
        is_snapshot = rows.kind == _SNAPSHOT
        position = np.arange(len(rows))
        is_first, is_last = position == begin[rows.segment], position == last[rows.segment]
        snapshot_epoch, segment_epoch = rows["snapshot_epoch"], rows[SEGMENT]
        is_allowed = (rows.kind == _UPDATE) | (rows.kind == _TRANSITIONS) | (rows.kind == _TABLE_SNAPSHOT)
        is_allowed &= ~is_first | (rows.kind == _TABLE_SNAPSHOT)
        is_allowed |= is_snapshot & is_first & (snapshot_epoch == segment_epoch)
        is_allowed |= is_snapshot & ~is_first & is_last & (snapshot_epoch == segment_epoch + 1)
        is_allowed |= (rows.kind == _TOMBSTONE) & ~is_first & is_last
        is_allowed &= (rows["partition"] >= 0) & ~rows.is_empty("topic_id")
        return np.logical_and.reduceat(is_allowed, begin)

    def _blocks(self, opened: list[int], limits: list[tuple[SharePartitionLimits, int]]) -> Blocks:
        rows = self._rows
        is_opened = np.zeros(len(rows.segment_begin), np.bool_)
        is_opened[opened] = True
        is_closing = (rows.kind == _SNAPSHOT) & (rows["snapshot_epoch"] != rows[SEGMENT])
        state_row = np.flatnonzero(self._has_state & ~is_closing & is_opened[rows.segment])
        apart = np.append(np.flatnonzero(self._is_apart), len(rows))
        end = apart[np.searchsorted(apart, state_row, side="right")]
        end = np.minimum(end, rows.segment_end[rows.segment[state_row]])
        has_rows = end > state_row + 1
        state_row, end = state_row[has_rows], end[has_rows]
        values = [
            (
                *(known.lock_duration_ms, known.delivery_count_limit, int(known.has_dead_letter_queue), highest),
                *(known.max_record_locks, known.span_limit, known.max_runs, int(known.is_draining)),
            )
            for known, highest in limits
        ]
        position = np.searchsorted(np.array(opened), rows.segment[state_row])
        columns = LimitColumns(*np.array(values, np.int64).T)
        return Blocks(state_row, end, columns.take(position))
