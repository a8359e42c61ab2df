"""Held ranges: even shares, gaps, and topics that do not exist any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.held_records import HeldRange
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.held_ranges import split_evenly, without_gaps, without_unreadable

range_lists = st.lists(
    st.builds(
        lambda topic, partition, start, length: HeldRange(
            "id", topic, partition, start, start + length - 1, length % 3
        ),
        st.sampled_from("ab"),
        st.integers(0, 2),
        st.integers(0, 100),
        st.integers(0, 50),
    ),
    max_size=8,
)


@given(range_lists, st.integers(1, 5))
def test_splitting_keeps_every_offset_in_order(ranges: list[HeldRange], task_count: int) -> None:
    def offsets(some: list[HeldRange]) -> list[tuple[str, int, int, int]]:
        return [
            (held.topic, held.partition, offset, held.delivery_count)
            for held in some
            for offset in range(held.first_offset, held.last_offset + 1)
        ]

    shares = split_evenly(ranges, task_count)
    assert offsets([held for share in shares for held in share]) == offsets(ranges)
    assert len(shares) <= task_count
    assert all(0 < len(offsets(share)) <= -(-len(offsets(ranges)) // task_count) for share in shares)


@pytest.mark.parametrize(
    ("present", "parts", "gaps"),
    [
        (range(10, 20), [(10, 19)], []),
        ([], [], [(10, 19)]),
        ([10, 11, 19], [(10, 11), (19, 19)], [(12, 18)]),
        ([9, 13, 20], [(13, 13)], [(10, 12), (14, 19)]),
    ],
)
def test_gaps_are_cut_out(present: list[int], parts: list[tuple[int, int]], gaps: list[tuple[int, int]]) -> None:
    left, missing = without_gaps([HeldRange("id", "t", 0, 10, 19, 1)], {("t", 0): list(present)})
    assert [(part.first_offset, part.last_offset) for part in left] == parts
    assert [(part.first_offset, part.last_offset, part.acknowledge_type) for part in missing] == [
        (first, last, AcknowledgeType.GAP) for first, last in gaps
    ]


@pytest.mark.parametrize("is_created_again", [True, False])
def test_records_of_a_topic_that_is_not_the_same_any_more_are_returned_unread(
    tmp_path: Path, is_created_again: bool
) -> None:
    with LocalLog(tmp_path / "events.log") as log:
        deleted = HeldRange(log.create_topic("orders", 1).topic_id, "orders", 0, 0, 9, 1)
        log.delete_topic("orders")
        present = [HeldRange(log.create_topic("other", 1).topic_id, "other", 0, 0, 1, 1)]
        if is_created_again:
            present.append(HeldRange(log.create_topic("orders", 1).topic_id, "orders", 0, 0, 1, 1))
        for held in present:
            log.append(held.topic, 0, [NewRecord(None, b"v")] * 2)
        readable, unreadable = without_unreadable(log, [deleted, *present])
    assert readable == present
    reason = "the topic does not exist, or was created again"
    assert unreadable == [deleted.acknowledgement(AcknowledgeType.UNREAD, reason)]
