"""How offsets are limited, cut and read from options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.errors import ConfigurationError
from sharegroup.spark.offset_ranges import OffsetRange, parse_ranges, split_evenly

range_lists = st.lists(
    st.builds(
        lambda topic, partition, start, length: OffsetRange(topic, partition, start, start + length, length % 3),
        st.sampled_from("ab"),
        st.integers(0, 2),
        st.integers(0, 100),
        st.integers(0, 50),
    ),
    max_size=8,
)


@given(range_lists, st.integers(1, 5))
def test_splitting_keeps_every_offset_in_order(ranges: list[OffsetRange], task_count: int) -> None:
    def offsets(some: list[OffsetRange]) -> list[tuple[str, int, int, int | None]]:
        return [(r.topic, r.partition, o, r.delivery_count) for r in some for o in range(r.start_offset, r.end_offset)]

    shares = split_evenly(ranges, task_count)
    assert offsets([offset_range for share in shares for offset_range in share]) == offsets(ranges)
    assert len(shares) <= task_count
    assert all(0 < len(offsets(share)) <= -(-len(offsets(ranges)) // task_count) for share in shares)


def test_ranges_from_json() -> None:
    text = json.dumps([["events", 0, 5, 9, 1], ["other", 3, 0, 0, 0]])
    assert parse_ranges(text) == [OffsetRange("events", 0, 5, 10, 1), OffsetRange("other", 3, 0, 1, 0)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "not JSON"),
        ("{}", "not a JSON list"),
        ("[5]", r"ranges\[0\] is 5"),
        ('[["t", 0, 0, 0, 1], ["t", 0, 2, 1, 1]]', r"ranges\[1\]"),
        ('[["t", -1, 0, 0, 1]]', r"ranges\[0\]"),
        ('[["t", 0, -1, 0, 1]]', r"ranges\[0\]"),
        ('[["t", 0, 0, 0, 40000]]', "32767"),
        ('[["t", 0, 0, 0]]', r"ranges\[0\]"),
        ('[["t", "0", 0, 0, 1]]', r"ranges\[0\]"),
    ],
)
def test_ranges_that_are_none(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_ranges(text)
