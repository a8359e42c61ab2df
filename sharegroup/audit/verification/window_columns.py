"""The window and the span of acquisitions of fresh records, over columns.

Both are bounded from above here, so that what they allow is allowed. Where they do not, the check row by row decides:

- The window takes a delayed record as available once the time of any transition has reached the end of its delay.
- The span takes each border between pieces as one between runs, although equal runs on both sides are one.
"""

from __future__ import annotations

import numpy as np

from sharegroup.audit.verification.column_fold import COLUMN_TABLES, Blocks, ColumnFold, Events
from sharegroup.audit.verification.row_columns import Flags, Numbers
from sharegroup.core.record_state import RecordState
from sharegroup.core.transition_rules import (
    NOT_IN_FLIGHT,
    FreshRecords,
    is_within_the_span,
    is_within_the_window,
)

_IS_COUNTED = np.array([state in (RecordState.AVAILABLE, RecordState.ACQUIRED) for state in RecordState] + [False])
"""State → True if a record in it counts towards the window; the last one is `NOT_IN_FLIGHT`."""


def blocks_past_the_window(blocks: Blocks, fold: ColumnFold) -> Numbers:
    """Return the blocks in which fresh records may have been acquired past the window or the span."""
    fresh = np.flatnonzero(fold.from_state == NOT_IN_FLIGHT)
    if not len(fresh):
        return fresh
    transitions = fold.transitions
    block, first = transitions.block[fresh], transitions.first[fresh]
    limits = blocks.limits.take(block)
    start = fold.start_offsets(fresh - fold.begin[block], block)
    acquired = FreshRecords(
        transitions.last[fresh],
        start,
        first,
        _window_counts(blocks, fold)[fresh],
        _run_counts(fold, fresh, start, limits.max_runs),
    )
    is_right = is_within_the_window(acquired, limits) & is_within_the_span(acquired, limits)
    # What an administrator or the log takes away before its time is delayed no more.
    is_taken = (fold.from_state == RecordState.AVAILABLE) & (COLUMN_TABLES.is_delivery[fold.cause] == 0)
    past: Numbers = np.concatenate([block[~is_right], transitions.block[is_taken]])
    return past


def _run_counts(fold: ColumnFold, fresh: Numbers, start: Numbers, max_runs: Numbers) -> Numbers:
    """Return the runs in flight before transitions, or more."""
    block, first = fold.transitions.block[fresh], fold.transitions.first[fresh]
    at_begin = np.bincount(fold.runs.block, minlength=len(fold.begin))[block]
    # A transition divides one run into three at most.
    counts: Numbers = np.minimum(first - start, at_begin + 2 * (fresh - fold.begin[block]))
    many = np.flatnonzero(counts >= max_runs)
    counts[many] = np.minimum(counts[many], fold.piece_counts(block[many], start[many], first[many]))
    return counts


def _window_counts(blocks: Blocks, fold: ColumnFold) -> Numbers:
    """Return the records that are acquired, or available and not delayed, before each transition, or more."""
    runs, transitions = fold.runs, fold.transitions
    runs_delayed, delayed = _are_delayed(runs), _are_delayed(transitions)
    run_sizes, sizes = runs.last - runs.first + 1, transitions.last - transitions.first + 1
    is_counted = _IS_COUNTED[runs.to_state] & ~runs_delayed
    at_begin = np.zeros(len(blocks), np.int64)
    np.add.at(at_begin, runs.block[is_counted], run_sizes[is_counted])
    after = np.where(_IS_COUNTED[transitions.to_state] & ~delayed, sizes, 0)
    changes = after - np.where(_IS_COUNTED[fold.from_state], sizes, 0)
    before = np.cumsum(changes) - changes
    counts: Numbers = at_begin[transitions.block] + before - before[fold.begin[transitions.block]]
    if runs_delayed.any() or delayed.any():
        counts += _ended_delays(
            np.concatenate([runs.block[runs_delayed], transitions.block[delayed]]),
            np.concatenate([runs.deadline_ms[runs_delayed], transitions.deadline_ms[delayed]]),
            np.concatenate([run_sizes[runs_delayed], sizes[delayed]]),
            fold,
        )
    return counts


def _are_delayed(events: Events) -> Flags:
    are_delayed: Flags = (events.to_state == RecordState.AVAILABLE) & (events.deadline_ms != 0)
    return are_delayed


def _ended_delays(block: Numbers, until_ms: Numbers, size: Numbers, fold: ColumnFold) -> Numbers:
    """Return the delayed records whose time has come by each transition, since the beginning of its block."""
    times = np.sort(until_ms)
    of_block = len(times) + 1
    key = block * of_block + np.searchsorted(times, until_ms)
    order = np.argsort(key, kind="stable")
    key, ended = key[order], np.concatenate([[0], np.cumsum(size[order])])
    begin = fold.transitions.block * of_block
    # Times may go back from row to row; a record that was acquired meanwhile stays one that was delayed.
    latest = np.maximum.accumulate(begin + np.searchsorted(times, fold.now_ms, side="right"))
    counts: Numbers = ended[np.searchsorted(key, latest)] - ended[np.searchsorted(key, begin)]
    return counts
