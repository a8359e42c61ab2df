from __future__ import annotations

import pytest

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.share_partition import SharePartition
from sharegroup.errors import ApiError, InvalidRecordStateError, InvalidRequestError
from tests.unit.core.notation import partition, shown, shown_records

GAP, ACCEPT, RELEASE, REJECT, RENEW, UNREAD, *_ = AcknowledgeType
LIMITS = SharePartitionLimits(lock_duration_ms=1_000, delivery_count_limit=5)
DEAD_LETTERS = SharePartitionLimits(lock_duration_ms=1_000, delivery_count_limit=5, has_dead_letter_queue=True)
NOW_MS = 50

Batch = tuple[int, int, tuple[AcknowledgeType, ...]]


def acknowledge(
    share_partition: SharePartition, *batches: Batch, member_id: str = "m1", limits: SharePartitionLimits = LIMITS
) -> list[str]:
    request = [AcknowledgementBatch(*batch) for batch in batches]
    return shown_records(share_partition.acknowledge(member_id, request, limits, NOW_MS))


HELD = ("0..0 ACQUIRED 1 m2 @99", "1..5 ACQUIRED 2 m1 @99")
HELD_FOR_THE_LAST_TIME = ("0..0 ACQUIRED 1 m2 @99", "1..5 ACQUIRED 5 m1 @99")


@pytest.mark.parametrize(
    ("runs", "acknowledge_type", "limits", "becomes"),
    [
        (HELD, GAP, LIMITS, "ARCHIVED 2"),
        (HELD, ACCEPT, LIMITS, "ACKNOWLEDGED 2"),
        (HELD, RELEASE, LIMITS, "AVAILABLE 2"),
        (HELD, REJECT, LIMITS, "ARCHIVED 2"),
        (HELD, RENEW, LIMITS, "ACQUIRED 2 m1 @1050"),
        (HELD, UNREAD, LIMITS, "AVAILABLE 1"),
        (HELD_FOR_THE_LAST_TIME, ACCEPT, LIMITS, "ACKNOWLEDGED 5"),
        (HELD_FOR_THE_LAST_TIME, RELEASE, LIMITS, "ARCHIVED 5"),
        (HELD_FOR_THE_LAST_TIME, RENEW, LIMITS, "ACQUIRED 5 m1 @1050"),
        (HELD_FOR_THE_LAST_TIME, UNREAD, LIMITS, "AVAILABLE 4"),
        (HELD, GAP, DEAD_LETTERS, "ARCHIVED 2"),
        (HELD, RELEASE, DEAD_LETTERS, "AVAILABLE 2"),
        (HELD, REJECT, DEAD_LETTERS, "ARCHIVING 2"),
        (HELD_FOR_THE_LAST_TIME, RELEASE, DEAD_LETTERS, "ARCHIVING 5"),
    ],
)
def test_what_each_type_makes_of_a_record(
    runs: tuple[str, ...], acknowledge_type: AcknowledgeType, limits: SharePartitionLimits, becomes: str
) -> None:
    share_partition = partition(*runs)
    acknowledge(share_partition, (1, 5, (acknowledge_type,)), limits=limits)
    assert shown(share_partition) == ["start 0", runs[0], f"1..5 {becomes}"]


def test_one_type_for_each_offset() -> None:
    share_partition = partition(*HELD)

    records = acknowledge(share_partition, (1, 5, (ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)))

    assert records == [
        "1..2 ACQUIRED->ACKNOWLEDGED 2 by accept",
        "3..3 ACQUIRED->AVAILABLE 2 by release",
        "4..4 ACQUIRED->ARCHIVED 2 by reject",
        "5..5 ACQUIRED->ACQUIRED 2 by renew",
    ]
    assert shown(share_partition) == [
        "start 0",
        "0..0 ACQUIRED 1 m2 @99",
        "1..2 ACKNOWLEDGED 2",
        "3..3 AVAILABLE 2",
        "4..4 ARCHIVED 2",
        "5..5 ACQUIRED 2 m1 @1050",
    ]


def test_a_range_may_cover_runs_of_different_count_and_deadline() -> None:
    share_partition = partition("0..1 ACQUIRED 1 m1 @99", "2..3 ACQUIRED 4 m1 @99", "4..5 ACQUIRED 4 m1 @77")
    acknowledge(share_partition, (1, 5, (RELEASE,)))
    assert shown(share_partition) == ["start 0", "0..0 ACQUIRED 1 m1 @99", "1..1 AVAILABLE 1", "2..5 AVAILABLE 4"]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(0, 3, (ACCEPT,))], ["start 4", "4..9 ACQUIRED 1 m1 @99"]),
        ([(4, 9, (ACCEPT,))], ["start 0", "0..3 ACQUIRED 1 m1 @99", "4..9 ACKNOWLEDGED 1"]),
        ([(4, 9, (ACCEPT,)), (0, 3, (REJECT,))], ["start 10"]),
        ([(0, 9, (ACCEPT, RELEASE) * 5)], ["start 1", "1..1 AVAILABLE 1", "2..2 ACKNOWLEDGED 1"]),
    ],
    ids=["a prefix", "a tail", "everything", "up to the first that is open"],
)
def test_the_start_offset_passes_the_finished_prefix(batches: list[Batch], expected: list[str]) -> None:
    share_partition = partition("0..9 ACQUIRED 1 m1 @99")
    acknowledge(share_partition, *batches)
    assert shown(share_partition)[:3] == expected


def test_the_move_of_the_start_offset_is_a_record_of_its_own() -> None:
    assert acknowledge(partition("0..9 ACQUIRED 1 m1 @99"), (0, 3, (ACCEPT,))) == [
        "0..3 ACQUIRED->ACKNOWLEDGED 1 by accept",
        "start 4",
    ]


def test_the_delivery_complete_count_counts_finished_records_from_the_start_offset_on() -> None:
    share_partition = partition("0..9 ACQUIRED 1 m1 @99")
    acknowledge(share_partition, (4, 6, (ACCEPT,)), (8, 8, (REJECT,)))
    assert share_partition.delivery_complete_count == 4
    acknowledge(share_partition, (0, 3, (ACCEPT,)))
    assert share_partition.start_offset == 7
    assert share_partition.delivery_complete_count == 1


IN_FLIGHT = (
    "10..14 ACQUIRED 1 m1 @99",
    "15..16 ACQUIRED 1 m2 @99",
    "17..17 AVAILABLE 1",
    "18..18 ACKNOWLEDGED 1",
    "19..24 ACQUIRED 1 m1 @99",
)


@pytest.mark.parametrize(
    ("batches", "error", "words"),
    [
        ([(15, 15, (ACCEPT,))], InvalidRecordStateError, "15..15 are ACQUIRED by another member"),
        ([(13, 15, (ACCEPT,))], InvalidRecordStateError, "15..15 are ACQUIRED by another member"),
        ([(15, 16, (RENEW,))], InvalidRecordStateError, "15..16 are ACQUIRED by another member"),
        ([(17, 17, (ACCEPT,))], InvalidRecordStateError, "17..17 are AVAILABLE"),
        ([(18, 18, (ACCEPT,))], InvalidRecordStateError, "18..18 are ACKNOWLEDGED"),
        ([(24, 25, (ACCEPT,))], InvalidRequestError, "ends past the last offset in flight, 24"),
        ([(30, 31, (ACCEPT,))], InvalidRequestError, "ends past the last offset in flight, 24"),
        ([(12, 11, (ACCEPT,))], InvalidRequestError, "12..11 is not an ascending range"),
        ([(-1, 11, (ACCEPT,))], InvalidRequestError, "-1..11 is not an ascending range"),
        ([(10, 12, ())], InvalidRequestError, "has 0 types; it needs 1 or 3"),
        ([(10, 12, (ACCEPT, ACCEPT))], InvalidRequestError, "has 2 types; it needs 1 or 3"),
        ([(10, 12, (ACCEPT,)), (12, 13, (ACCEPT,))], InvalidRecordStateError, "12..12 are acknowledged twice"),
        ([(10, 12, (ACCEPT,)), (12, 13, (RENEW,))], InvalidRecordStateError, "12..12 are acknowledged twice"),
        ([(10, 14, (ACCEPT,)), (19, 20, (RENEW,)), (24, 25, (ACCEPT,))], InvalidRequestError, "ends past"),
        ([(10, 14, (ACCEPT,)), (15, 15, (ACCEPT,))], InvalidRecordStateError, "15..15"),
    ],
)
def test_one_bad_batch_leaves_everything_as_it_was(batches: list[Batch], error: type[ApiError], words: str) -> None:
    share_partition = partition(*IN_FLIGHT)
    before = shown(share_partition)
    with pytest.raises(error) as raised:
        acknowledge(share_partition, *batches)
    assert words in str(raised.value)
    assert shown(share_partition) == before


def test_the_first_bad_batch_names_the_error() -> None:
    with pytest.raises(InvalidRecordStateError):
        acknowledge(partition(*IN_FLIGHT), (15, 15, (ACCEPT,)), (24, 25, (ACCEPT,)))


def test_with_nothing_in_flight_no_record_can_be_acknowledged() -> None:
    with pytest.raises(InvalidRecordStateError, match=r"nothing is in flight at or after .* 10"):
        acknowledge(SharePartition(10), (8, 12, (ACCEPT,)))


@pytest.mark.parametrize("member_id", ["m1", "stranger"])
def test_offsets_below_the_start_offset_take_any_acknowledgement_without_effect(member_id: str) -> None:
    share_partition = partition(*IN_FLIGHT)
    assert acknowledge(share_partition, (0, 9, (ACCEPT,)), (3, 4, (RENEW,)), member_id=member_id) == []
    assert acknowledge(SharePartition(10), (0, 9, (ACCEPT,)), member_id=member_id) == []


def test_a_range_that_begins_below_the_start_offset_counts_from_there() -> None:
    share_partition = partition(*IN_FLIGHT)
    acknowledge(share_partition, (8, 11, (REJECT, REJECT, ACCEPT, RELEASE)))
    assert shown(share_partition)[:3] == ["start 11", "11..11 AVAILABLE 1", "12..14 ACQUIRED 1 m1 @99"]


def test_a_renewed_record_may_be_acknowledged_in_the_same_request() -> None:
    share_partition = partition(*HELD)
    assert acknowledge(share_partition, (1, 5, (RENEW,)), (2, 3, (ACCEPT,))) == [
        "1..5 ACQUIRED->ACQUIRED 2 by renew",
        "2..3 ACQUIRED->ACKNOWLEDGED 2 by accept",
    ]
    assert shown(share_partition)[2:] == [
        "1..1 ACQUIRED 2 m1 @1050",
        "2..3 ACKNOWLEDGED 2",
        "4..5 ACQUIRED 2 m1 @1050",
    ]


def test_renewing_can_be_switched_off() -> None:
    limits = SharePartitionLimits(is_renew_enabled=False)
    share_partition = partition(*HELD)
    with pytest.raises(InvalidRecordStateError, match=r"share\.renew\.acknowledge\.enable is false"):
        acknowledge(share_partition, (1, 2, (ACCEPT,)), (3, 3, (RENEW,)), limits=limits)
    assert shown(share_partition)[1:] == list(HELD)


def test_an_unread_record_is_as_if_it_had_not_been_delivered() -> None:
    share_partition = partition("0..0 ACQUIRED 1 m2 @99", "1..2 ACQUIRED 1 m1 @99", "3..4 ACQUIRED 3 m1 @99")
    acknowledge(share_partition, (2, 4, (UNREAD,)))
    assert shown(share_partition)[2:] == ["1..1 ACQUIRED 1 m1 @99", "2..2 AVAILABLE 0", "3..4 AVAILABLE 2"]
    assert share_partition.next_fetch_offset(NOW_MS) == 2


@pytest.mark.parametrize(
    ("acknowledge_type", "is_persisted"),
    [(GAP, True), (ACCEPT, True), (RELEASE, True), (REJECT, True), (RENEW, False), (UNREAD, False)],
)
def test_kafka_would_persist_what_outlives_a_lock(acknowledge_type: AcknowledgeType, is_persisted: bool) -> None:
    share_partition = partition(*HELD)
    records = share_partition.acknowledge("m1", [AcknowledgementBatch(1, 5, (acknowledge_type,))], LIMITS, NOW_MS)
    assert [getattr(record, "is_persisted_by_kafka", None) for record in records] == [is_persisted]
