"""Which parts of which writes a commit has, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Iterable

import confluent_kafka
import pytest

from sharegroup.client.handed_out import HandedOutWrites, PlannedPart
from sharegroup.client.held_records import HeldRange, ReadRange
from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.sink_commits import CLOSING_PART
from sharegroup.core.record_state import AcknowledgeType

ACCEPT, GAP, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.GAP, AcknowledgeType.REJECT
RELEASE, UNREAD = AcknowledgeType.RELEASE, AcknowledgeType.UNREAD

Named = list[tuple[int, int, AcknowledgeType]]


def write_of(version: int, record_count: int = 10) -> HeldWrite:
    return HeldWrite(f"app/{version}", version, "table", "/sink", 3, record_count)


def held(write: HeldWrite, first: int, last: int) -> HeldRange:
    return HeldRange("t", "orders", 0, first, last, 1, write=write)


def read(write: HeldWrite, first: int, last: int, missing: Iterable[int] = ()) -> ReadRange:
    """Records of a write, without those that the log does not have."""
    absent = set(missing)
    records = [confluent_kafka.Message(topic="orders", partition=0, offset=o) for o in range(first, last + 1)]
    gaps = [held(write, offset, offset).acknowledgement(GAP) for offset in sorted(absent)]
    return ReadRange(held(write, first, last), [r for r in records if r.offset() not in absent], gaps)


def ack(first: int, last: int, kind: AcknowledgeType = ACCEPT) -> Acknowledgement:
    """Of the application, which knows no writes."""
    return Acknowledgement("t", 0, first, last, kind, topic="orders")


def waits_for(*versions: int) -> set[int]:
    return set(versions)


def named(planned: PlannedPart) -> Named:
    return [
        (each.first_offset, each.last_offset, each.acknowledge_type)
        for partition in planned.part.partitions
        for each in partition.ranges
    ]


@pytest.fixture
def writes() -> HandedOutWrites:
    return HandedOutWrites()


def test_a_whole_acquisition_names_what_is_not_accepted(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7), 0, 4), read(write_of(7), 5, 9, missing=[8])])
    assert [(each.first_offset, each.acknowledge_type) for each in writes.missing] == [(8, GAP)]
    ended = [ack(0, 1), ack(2, 2, REJECT), ack(3, 7), ack(9, 9), *writes.missing]
    (planned,) = writes.plan(ended, waits_for().__contains__)
    assert (planned.part.part, planned.part.after, planned.part.names_all) == (CLOSING_PART, None, False)
    assert named(planned) == [(2, 2, REJECT), (8, 8, GAP)]
    assert {each.write_version for each in planned.settles} == {7}
    assert planned.part.accepted == [("t", 0, 0, 1), ("t", 0, 3, 7), ("t", 0, 9, 9)]
    writes.committed([planned])
    assert writes.plan([ack(0, 9)], waits_for().__contains__) == []


def test_pieces_of_an_acquisition_are_parts_that_name_their_records(writes: HandedOutWrites) -> None:
    write = write_of(7)
    parts = []
    for first, last, waiting in ((0, 2, waits_for(7)), (3, 5, waits_for(7)), (6, 9, waits_for())):
        writes.add([read(write, first, last)])
        (planned,) = writes.plan([ack(first, last)], waiting.__contains__)
        parts.append((planned.part.part, planned.part.after, planned.part.names_all, named(planned)))
        writes.committed([planned])
    # After the last one nothing is left that could be accepted by mistake.
    assert parts == [
        (0, None, True, [(0, 2, ACCEPT)]),
        (1, 0, True, [(3, 5, ACCEPT)]),
        (CLOSING_PART, 1, False, []),
    ]


def test_a_rest_that_was_lost_after_a_part_is_not_accepted_with_the_others(writes: HandedOutWrites) -> None:
    write = write_of(7)
    writes.add([read(write, 0, 2)])
    writes.committed(writes.plan([ack(0, 2)], waits_for(7).__contains__))
    writes.add([read(write, 3, 8)])
    (planned,) = writes.plan([ack(3, 8)], waits_for().__contains__)
    assert (planned.part.part, planned.part.names_all) == (CLOSING_PART, True)


def test_acknowledgements_that_do_not_fit_into_one_commit_are_parts_before_it(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7), 0, 9)])
    ended = [ack(offset, offset, REJECT if offset % 2 else ACCEPT) for offset in range(10)]
    portion = [each for each in ended if each.acknowledge_type is REJECT][:3]
    (first,) = writes.plan(portion, lambda _: True)
    assert (first.part.part, named(first)) == (0, [(1, 1, REJECT), (3, 3, REJECT), (5, 5, REJECT)])
    writes.committed([first])
    (last,) = writes.plan(ended, waits_for().__contains__)
    assert (last.part.part, last.part.names_all) == (CLOSING_PART, False)
    assert named(last) == [(7, 7, REJECT), (9, 9, REJECT)]


def test_a_rest_that_was_lost_is_not_accepted_with_the_others(writes: HandedOutWrites) -> None:
    # Its locks ended while it waited: nobody waits for it, and the application has never seen it.
    writes.add([read(write_of(7), 0, 5)])
    (planned,) = writes.plan([ack(0, 5)], waits_for().__contains__)
    assert planned.part.part == CLOSING_PART
    assert planned.part.names_all
    assert named(planned) == [(0, 5, ACCEPT)]


def test_records_to_be_renewed_keep_their_write_open(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7), 0, 9)])
    (planned,) = writes.plan([ack(0, 3), ack(6, 9)], waits_for().__contains__)
    assert (planned.part.part, planned.part.names_all) == (0, True)
    writes.committed([planned])
    (last,) = writes.plan([ack(4, 5)], waits_for().__contains__)
    assert (last.part.part, last.part.after, named(last)) == (CLOSING_PART, 0, [])


def test_several_acquisitions_are_parts_of_one_commit(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7), 0, 9), read(write_of(8), 10, 14)])
    planned = writes.plan([ack(0, 14)], waits_for(8).__contains__)
    assert [(each.part.write.version, each.part.part) for each in planned] == [(7, CLOSING_PART), (8, 0)]


def test_a_write_whose_parts_are_used_up_is_closed(writes: HandedOutWrites) -> None:
    write = write_of(7, record_count=2_000)
    numbers = []
    for offset in range(1_023):
        writes.add([read(write, offset, offset)])
        (planned,) = writes.plan([ack(offset, offset)], waits_for(7).__contains__)
        writes.committed([planned])
        numbers.append(planned.part.part)
    assert numbers == [*range(1_022), CLOSING_PART]


def test_a_write_without_a_record_needs_no_commit(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7, 3), 0, 2, missing=[0, 1, 2]), read(write_of(8), 3, 3, missing=[3])])
    gaps = writes.take_without_records(waits_for(8).__contains__)
    assert [(each.first_offset, each.acknowledge_type, each.is_begun) for each in gaps] == [
        (0, GAP, False),
        (1, GAP, False),
        (2, GAP, False),
    ]
    # The rest of the other one may have records.
    writes.add([read(write_of(8), 4, 12)])
    (planned,) = writes.plan([ack(4, 12), *writes.missing], waits_for().__contains__)
    assert named(planned) == [(3, 3, GAP)]


def test_what_was_not_begun_is_released_as_a_whole(writes: HandedOutWrites) -> None:
    write = write_of(7)
    writes.add([read(write, 0, 4, missing=[2])])
    (given_up,) = writes.give_up(lambda version: [held(write, 5, 9)], is_begun=False)
    assert sorted((a.first_offset, a.last_offset, a.acknowledge_type) for a in given_up.acknowledgements) == [
        (0, 1, RELEASE),
        (2, 2, GAP),
        (3, 4, RELEASE),
        (5, 9, UNREAD),
    ]
    assert {(a.write_version, a.is_begun) for a in given_up.acknowledgements} == {(7, False)}
    assert list(writes.give_up(lambda version: [], is_begun=False)) == []


def test_what_may_be_in_the_sink_is_in_doubt(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7), 0, 4), read(write_of(8), 10, 19)])
    first = writes.plan([ack(0, 4)], waits_for(7).__contains__)
    writes.committed(first)
    writes.add([read(write_of(7), 5, 9)])
    given_up = {each.write.version: each for each in writes.give_up(lambda version: [], is_begun=False)}
    # A part of the one is in the sink, and nothing of the other.
    assert {version: each.is_begun for version, each in given_up.items()} == {7: True, 8: False}
    assert [(a.first_offset, a.last_offset, a.is_begun) for a in given_up[7].acknowledgements] == [(5, 9, True)]
    writes.add([read(write_of(9), 0, 9)])
    (tried,) = writes.give_up(lambda version: [], is_begun=True)
    assert tried.is_begun


def test_renewals_name_the_latest_write_of_a_record(writes: HandedOutWrites) -> None:
    writes.add([read(write_of(7), 0, 9), read(write_of(8), 5, 5)])
    renewals = writes.of_writes([ack(4, 6, AcknowledgeType.RENEW)])
    assert [(a.first_offset, a.last_offset, a.write_version) for a in renewals] == [(4, 4, 7), (5, 5, 8), (6, 6, 7)]
    writes.lost(renewals)
    (planned,) = writes.plan([ack(0, 9)], waits_for().__contains__)
    assert [(a.first_offset, a.last_offset) for a in planned.settles] == [(0, 3), (5, 5), (7, 9)]
