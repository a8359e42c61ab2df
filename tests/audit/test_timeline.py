"""A group over time: its series, bins and locks agree with its history, at any resolution."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.timelines.lock_timeline import STILL_HELD
from sharegroup.audit.timelines.time_axis import TimeAxis
from sharegroup.audit.timelines.timeline import DeliveryMap, GroupTimeline, group_timeline
from sharegroup.core.record_state import Cause
from sharegroup.protocol.rows import StateRow
from tests.actor.group_harness import GROUP_ID
from tests.audit.conftest import LOCK_MS, ORDERS_0


def whole(rows: list[StateRow], max_bins: int = 240) -> TimeAxis:
    times_ms = [row.time_ms for row in rows]
    return TimeAxis(min(times_ms), max(times_ms), max_bins)


def timeline_of(rows: list[StateRow], max_bins: int = 240) -> GroupTimeline:
    return group_timeline(GROUP_ID, rows, whole(rows, max_bins))


@pytest.mark.parametrize("max_bins", [1, 2, 240])
def test_counts_are_those_of_the_history(rows: list[StateRow], max_bins: int) -> None:
    partition = timeline_of(rows, max_bins).partitions[ORDERS_0]
    history = group_history(GROUP_ID, rows).partitions[ORDERS_0]
    assert partition.record_count_by_cause == history.record_count_by_cause
    assert partition.archived_at_limit_count == history.archived_at_limit_count
    assert partition.record_count_by_delivery == {1: 20 + 2 + 24, 2: 6, 3: 1}
    assert partition.record_count_by_delivery.total() == history.record_count_by_cause[Cause.ACQUIRE]
    assert max(count for _, _, count in partition.deliveries) == history.highest_delivery_count


@pytest.mark.parametrize("max_bins", [1, 2, 240])
def test_the_last_point_is_the_state_after_the_last_row(rows: list[StateRow], max_bins: int) -> None:
    timeline = timeline_of(rows, max_bins)
    time_ms, last = list(timeline.points(ORDERS_0))[-1]
    assert time_ms == timeline.axis.until_ms or max_bins == 1
    assert (last.start_offset, last.next_offset, last.delivery_complete_count) == (28, 44, 0)
    assert last.lag(60) == 32


def test_snapshots_change_nothing(rows: list[StateRow], rows_with_snapshots: list[StateRow]) -> None:
    points, with_snapshots = (list(timeline_of(each).points(ORDERS_0)) for each in (rows, rows_with_snapshots))
    assert points == with_snapshots


def test_a_lock_begins_with_the_acquisition_and_ends_by_its_cause(rows: list[StateRow]) -> None:
    records: Counter[tuple[str, str]] = Counter()
    durations_ms = {}
    for bar in timeline_of(rows).locks:
        records[bar.member_id, bar.ended_by] += bar.record_count
        durations_ms[bar.member_id, bar.ended_by] = bar.end_ms - bar.start_ms
    assert records == {
        ("anna", "accept"): 4,
        ("anna", "reject"): 1,
        ("anna", "release"): 1,
        ("anna", "gap"): 1,
        ("anna", "lock_timeout"): 3,
        ("anna", "session_close"): 3,
        ("ben", "accept"): 8 + 3,
        ("ben", "unread"): 2,
        ("ben", "log_start"): 8,
        ("cora", "log_start"): 3,
        ("ben", STILL_HELD): 16,
    }
    assert durations_ms["anna", "lock_timeout"] == LOCK_MS


def test_records_above_the_first_delivery_are_listed_with_their_last_change(rows: list[StateRow]) -> None:
    listed = [
        (first, last, transition.delivery_count, transition.cause, transition.member_id)
        for first, last, transition in timeline_of(rows).partitions[ORDERS_0].redelivered
    ]
    history = group_history(GROUP_ID, rows).partitions[ORDERS_0]
    counts = {run.first_offset: run.delivery_count for run in history.records}
    assert sum(last - first + 1 for first, last, *_ in listed) == history.redelivered_count
    assert [listed[0][2], listed[0][3]] == [history.highest_delivery_count, Cause.LOG_START]
    assert [count for *_, count, _, _ in listed] == sorted((count for *_, count, _, _ in listed), reverse=True)
    assert listed[0][2] == counts[listed[0][0]]


def test_a_window_begins_with_the_state_before_it(rows: list[StateRow]) -> None:
    axis = whole(rows)
    since_ms = axis.since_ms + LOCK_MS
    late = group_timeline(GROUP_ID, rows, TimeAxis(since_ms, axis.until_ms))
    before = [row for row in rows if row.time_ms < since_ms]
    (_, state_before) = list(timeline_of(before).points(ORDERS_0))[-1]
    assert state_before.start_offset == 5
    causes = late.partitions[ORDERS_0].record_count_by_cause
    assert causes[Cause.ACCEPT] == 3, "of those before there are none"
    assert {bar.ended_by for bar in late.locks} >= {"lock_timeout"}, "locks that end within it are there"
    assert min(bar.start_ms for bar in late.locks) == since_ms


def test_other_groups_topics_and_partitions_are_left_out(rows: list[StateRow]) -> None:
    axis = whole(rows)
    assert group_timeline("another", rows, axis).partitions == {}
    assert group_timeline(GROUP_ID, rows, axis, "parcels").partitions == {}
    assert group_timeline(GROUP_ID, rows, axis, "orders", 1).partitions == {}
    assert list(group_timeline(GROUP_ID, rows, axis, "orders", 0).partitions) == [ORDERS_0]


deliveries = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 5_000), st.integers(0, 300), st.integers(1, 9)), min_size=1, max_size=30
)


@given(deliveries)
def test_cells_hold_the_highest_count_of_their_offsets(added: list[tuple[int, int, int, int]]) -> None:
    cells = DeliveryMap(max_offset_bins=8)
    for time_bin, first, size, count in added:
        cells.add(time_bin, first, first + size, count)
    assert len(cells.offset_bins) <= 8
    width = cells.offsets_per_bin
    expected: dict[tuple[int, int], int] = {}
    for time_bin, first, size, count in added:
        for offset_bin in range(first // width, (first + size) // width + 1):
            expected[time_bin, offset_bin] = max(count, expected.get((time_bin, offset_bin), 0))
    assert {(time_bin, offset_bin): count for time_bin, offset_bin, count in cells} == expected
    assert {offset_bin for _, offset_bin in expected} <= set(cells.offset_bins)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 300))
def test_an_axis_has_bins_for_all_its_times(since_ms: int, span_ms: int, max_bins: int) -> None:
    axis = TimeAxis(since_ms, since_ms + span_ms, max_bins)
    assert 1 <= axis.bin_count <= max_bins
    assert axis.bin_of(axis.since_ms) == axis.bin_of(axis.since_ms - 1) == 0
    assert axis.bin_of(axis.until_ms) == axis.bin_of(axis.until_ms + 1) == axis.bin_count - 1
    assert all(axis.bin_of(axis.start_ms(index)) == index for index in range(axis.bin_count))
