"""Acknowledgements that wait to be sent: as runs, they say what a dict of offsets would."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.acknowledgement_request import topics_with
from sharegroup.client.delivered import DeliveredRecords
from sharegroup.client.held_records import HeldRange, ReadRange, offset_of
from sharegroup.client.pending_acknowledgements import Acknowledgement, PendingAcknowledgements, RecordAcknowledgement
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.share_fetch import MAX_REDELIVERY_DELAY_MS, ShareAcknowledgeRequest

ACCEPT, RELEASE, REJECT, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
)


acknowledgements = st.builds(
    lambda first, size, kind, partition, reason, delay_ms: Acknowledgement(
        "topic-id", partition, first, first + size, kind, reason, "", delay_ms
    ),
    st.one_of(st.integers(0, 60), st.integers(2**62, 2**62 + 60)),
    st.one_of(st.integers(0, 2), st.integers(0, 20)),
    st.sampled_from([ACCEPT, RELEASE, REJECT, GAP, AcknowledgeType.UNREAD]),
    st.integers(0, 1),
    st.one_of(st.just(""), st.text(max_size=50)),
    st.one_of(st.none(), st.integers(0, MAX_REDELIVERY_DELAY_MS)),
)
"""Acknowledgements of any form; many of them continue each other."""


def run(first: int, last: int, kind: AcknowledgeType = ACCEPT, partition: int = 0, reason: str = "") -> Acknowledgement:
    return Acknowledgement("topic-id", partition, first, last, kind, reason)


@pytest.mark.parametrize(
    ("put", "expected"),
    [
        ([run(0, 9)], [run(0, 9)]),
        ([run(0, 4), run(5, 9)], [run(0, 9)]),
        ([run(5, 9), run(0, 4)], [run(0, 9)]),
        ([run(0, 4), run(6, 9)], [run(0, 4), run(6, 9)]),
        ([run(0, 4), run(6, 9), run(5, 5)], [run(0, 9)]),
        ([run(0, 4), run(5, 9, RELEASE)], [run(0, 4), run(5, 9, RELEASE)]),
        ([run(0, 9), run(3, 5, REJECT)], [run(0, 2), run(3, 5, REJECT), run(6, 9)]),
        ([run(0, 9), run(3, 5, REJECT), run(3, 5)], [run(0, 9)]),
        ([run(0, 9), run(0, 9, REJECT)], [run(0, 9, REJECT)]),
        ([run(0, 3), run(6, 9), run(2, 7, RELEASE)], [run(0, 1), run(2, 7, RELEASE), run(8, 9)]),
        ([run(0, 1, GAP, reason="a"), run(2, 3, GAP, reason="b")], [run(0, 1, GAP, 0, "a"), run(2, 3, GAP, 0, "b")]),
        ([run(0, 1, partition=1), run(2, 3, partition=0)], [run(0, 1, partition=1), run(2, 3, partition=0)]),
    ],
)
def test_of_two_words_for_a_record_the_last_one_counts(
    put: list[Acknowledgement], expected: list[Acknowledgement]
) -> None:
    pending = PendingAcknowledgements()
    for acknowledgement in put:
        pending.put(acknowledgement)
    assert list(pending) == expected


def test_what_comes_back_does_not_replace_later_acknowledgements() -> None:
    pending = PendingAcknowledgements()
    pending.put(run(2, 3, RELEASE))
    pending.put(run(6, 20, REJECT))
    pending.put_back([run(0, 9)])
    assert list(pending) == [run(0, 1), run(2, 3, RELEASE), run(4, 5), run(6, 20, REJECT)]


def test_what_is_too_much_for_one_request_stays() -> None:
    pending = PendingAcknowledgements()
    everything = [run(0, 0), run(2, 2), run(0, 0, partition=1), run(2, 2, partition=1)]
    for acknowledgement in everything:
        pending.put(acknowledgement)
    assert pending.take(800) == everything[:3]
    assert list(pending) == everything[3:]
    assert list(pending.partitions) == [("topic-id", 1)]
    assert pending.take(800) == everything[3:]
    assert not pending


@given(st.lists(acknowledgements, max_size=30), st.integers(2_000, 4_000))
def test_requests_have_all_acknowledgements_in_order_and_no_more_bytes_than_wanted(
    put: list[Acknowledgement], max_bytes: int
) -> None:
    pending = PendingAcknowledgements()
    for acknowledgement in put:
        pending.put(acknowledgement)
    everything = list(pending)
    sent: list[Acknowledgement] = []
    while pending:
        fits = pending.fits(max_bytes)
        taken = pending.take(max_bytes)
        assert taken
        assert fits is not bool(pending)
        request = ShareAcknowledgeRequest(share_session_epoch=1, topics=topics_with((), taken))
        assert len(request.model_dump_json(exclude={"share_session_epoch"}, exclude_defaults=True)) <= max_bytes
        assert received(request) == by_offset(taken)
        sent += taken
    assert sent == everything


def received(request: ShareAcknowledgeRequest) -> dict[tuple[int, int], RecordAcknowledgement]:
    """Partition and offset → its acknowledgement, as the leader reads them."""
    return {
        (partition.partition_index, offset): RecordAcknowledgement(kind, each.redelivery_delay_ms, each.reason)
        for topic in request.topics
        for partition in topic.partitions
        for each in partition.acknowledgement_batches
        for first, last, kind in each.batch.runs()
        for offset in range(first, last + 1)
    }


def by_offset(acknowledgements: Iterable[Acknowledgement]) -> dict[tuple[int, int], RecordAcknowledgement]:
    """Partition and offset → its acknowledgement."""
    return {(each.partition, offset): each.of_record for each in acknowledgements for offset in each.offsets}


def test_groups_that_are_sent_apart_share_no_request_with_others_of_their_partition() -> None:
    pending = PendingAcknowledgements()
    other = run(0, 0, partition=1)
    pending.put_apart([run(0, 4)])
    pending.put_apart([run(5, 9), run(20, 29)])
    pending.put(run(10, 19))
    pending.put(other)
    assert pending.partitions == {("topic-id", 0), ("topic-id", 1)}
    assert (len(pending), pending.fits(10_000)) == (5, False)
    assert pending.take(10_000) == [run(10, 19), other]
    assert pending.take(10_000) == [run(0, 4)]
    assert (pending.fits(500), pending.fits(400)) == (True, False)
    assert pending.take(400) == [run(5, 9)]
    assert pending.take(400) == [run(20, 29)]
    assert not pending
    assert not pending.partitions


def test_what_is_sent_apart_does_not_replace_later_acknowledgements() -> None:
    pending = PendingAcknowledgements()
    pending.put(run(0, 4, RELEASE))
    pending.put_apart([run(0, 9)])
    pending.put_apart([run(0, 1)])
    pending.put(run(8, 12, REJECT))
    assert list(pending) == [run(0, 4, RELEASE), run(8, 12, REJECT), run(5, 7)]


words = st.tuples(
    st.booleans(),
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from([ACCEPT, RELEASE, REJECT]),
    st.integers(0, 1),
)


@given(st.lists(words, max_size=25))
def test_runs_say_what_a_dict_would(words: list[tuple[bool, int, int, AcknowledgeType, int]]) -> None:
    pending = PendingAcknowledgements()
    model: dict[tuple[int, int], AcknowledgeType] = {}
    for is_put_back, first, size, kind, partition in words:
        acknowledgement = run(first, first + size, kind, partition)
        acknowledged = {(partition, offset): kind for offset in acknowledgement.offsets}
        if is_put_back:
            pending.put_back([acknowledgement])
            model = acknowledged | model
        else:
            pending.put(acknowledgement)
            model |= acknowledged
    runs = list(pending)
    assert {(r.partition, offset): r.acknowledge_type for r in runs for offset in r.offsets} == model
    for partition in (0, 1):
        of_partition = [r for r in runs if r.partition == partition]
        for before, after in pairwise(of_partition):
            assert before.last_offset < after.first_offset
            assert not continues(before, after)


def continues(before: Acknowledgement, after: Acknowledgement) -> bool:
    """Return True if the two should have been one run."""
    return before._replace(first_offset=after.first_offset, last_offset=after.last_offset) == after and (
        before.last_offset + 1 == after.first_offset
    )


def delivery(topic_id: str, offsets: Iterable[int]) -> list[ReadRange]:
    """Records of a poll, at these offsets of one partition."""
    records = [confluent_kafka.Message(topic="orders", partition=0, offset=offset) for offset in sorted(offsets)]
    first, last = (offset_of(records[0]), offset_of(records[-1])) if records else (0, 0)
    return [ReadRange(HeldRange(topic_id, "orders", 0, first, last, 1), records)]


RECORD_ACKNOWLEDGEMENTS = [
    RecordAcknowledgement(ACCEPT),
    RecordAcknowledgement(RELEASE),
    RecordAcknowledgement(RELEASE, 0),
    RecordAcknowledgement(RELEASE, 500),
    RecordAcknowledgement(REJECT),
    RecordAcknowledgement(AcknowledgeType.RENEW),
    None,
]


@given(st.dictionaries(st.integers(0, 40), st.sampled_from(RECORD_ACKNOWLEDGEMENTS)))
def test_delivered_records_leave_as_runs_once_they_are_acknowledged(
    wanted: dict[int, RecordAcknowledgement | None],
) -> None:
    delivered = DeliveredRecords()
    delivered.add(delivery("topic-id", wanted))
    for offset, kind in wanted.items():
        if kind is not None:
            assert delivered.acknowledge(("orders", 0, offset), kind)
    taken = delivered.take_acknowledged()
    by_offset = {offset: (r.acknowledge_type, r.redelivery_delay_ms) for r in taken for offset in r.offsets}
    assert by_offset == {offset: kind[:2] for offset, kind in wanted.items() if kind is not None}
    assert not any(continues(before, after) for before, after in pairwise(taken))
    assert {r.topic for r in taken} <= {"orders"}
    assert delivered.unacknowledged_count == sum(kind is None for kind in wanted.values())
    assert delivered.take_acknowledged() == []


def test_records_of_a_topic_that_was_created_again_replace_those_of_the_old_one() -> None:
    delivered = DeliveredRecords()
    delivered.add(delivery("old", range(10)))
    delivered.add(delivery("new", range(5)))
    assert delivered.unacknowledged_count == 5
    taken = delivered.take_acknowledged(accepts_rest=True)
    assert [(r.topic_id, r.first_offset, r.last_offset) for r in taken] == [("new", 0, 4)]
