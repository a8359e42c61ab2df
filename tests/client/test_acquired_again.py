"""Records that are acquired again: those with unconfirmed acknowledgements are left out, however these came about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.acquired_again import unacknowledged
from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledgement, PendingAcknowledgements
from sharegroup.core.record_state import AcknowledgeType

LAST = 40
ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda ends: (min(ends), max(ends)))


def accepted(first: int, last: int) -> Acknowledgement:
    return Acknowledgement("topic-id", 0, first, last, AcknowledgeType.ACCEPT)


def offsets(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


def left(pending: PendingAcknowledgements, *sent: Acknowledgement) -> list[tuple[int, int]]:
    """The parts of an acquisition of all offsets that stay."""
    parts = unacknowledged((HeldRange("topic-id", "orders", 0, 0, LAST, 1),), pending, sent)
    return [(part.first_offset, part.last_offset) for part in parts]


@pytest.mark.parametrize(
    ("apart", "sent", "expected"),
    [
        ([], [], [(0, 40)]),
        ([], [(3, 5), (4, 9)], [(0, 2), (10, 40)]),
        ([[(20, 29)], [(0, 4)]], [], [(5, 19), (30, 40)]),
        ([[(0, 29)], [(5, 9)]], [], [(30, 40)]),
        ([[(20, 29)], [(0, 4)]], [(25, 35)], [(5, 19), (36, 40)]),
    ],
)
def test_what_has_unconfirmed_acknowledgements_is_left_out(
    apart: list[list[tuple[int, int]]], sent: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    pending = PendingAcknowledgements()
    for group in apart:
        pending.put_apart([accepted(*offsets) for offsets in group])
    assert left(pending, *(accepted(*offsets) for offsets in sent)) == expected


@given(st.lists(ranges, max_size=3), st.lists(ranges, max_size=3), st.lists(ranges, max_size=3))
def test_each_record_is_left_out_or_stays_once(
    apart: list[tuple[int, int]], put: list[tuple[int, int]], sent: list[tuple[int, int]]
) -> None:
    pending = PendingAcknowledgements()
    for group in apart:
        pending.put_apart([accepted(*group)])
    for first, last in put:
        pending.put(accepted(first, last))
    unconfirmed = {offset for each in (*apart, *put, *sent) for offset in offsets(*each)}
    stays = [offset for part in left(pending, *(accepted(*each) for each in sent)) for offset in sorted(offsets(*part))]
    assert stays == [offset for offset in range(LAST + 1) if offset not in unconfirmed]
