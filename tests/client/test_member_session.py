"""The member's side of the share session, driven by hand: what it sends for which responses and at which times."""

from __future__ import annotations

import pytest

from sharegroup.client.held_records import Acquisition, HeldRange
from sharegroup.client.member_session import MAX_ACKNOWLEDGEMENT_BYTES
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
    CoordinatorLoadInProgressError,
    GroupQuarantinedError,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.share_fetch import (
    PartitionResponse,
    next_epoch,
)
from tests.client.session_driver import A0, A1, B0, Driver, acknowledged, acquired, results


def test_a_session_opens_with_all_its_partitions_and_counts_its_requests() -> None:
    driver = Driver(A0, A1)
    assert driver.sends() == ("F", 0, ["a0", "a1"], [], [])
    assert driver.sends() is None
    events = driver.receives(("a", acquired(0, 9)))
    assert events == [Acquisition((HeldRange("a", "", 0, 0, 9, 1),), 8_000, 8_000, requested_count=100)]
    assert driver.sends() == ("F", 1, [], [], [])


def test_nothing_is_fetched_without_room_or_without_partitions() -> None:
    assert Driver(A0).sends(wants_records=False) is None
    assert Driver().sends() is None


def test_partitions_that_change_are_named_in_the_next_fetch() -> None:
    driver = Driver(A0, A1)
    driver.sends()
    driver.receives(("a", acquired(0, 0)))
    driver.session.partitions = {A1, B0}
    assert driver.sends() == ("F", 1, ["b0"], ["a0"], [])
    driver.receives()
    assert driver.sends() == ("F", 2, [], [], [])


def test_a_parked_fetch_is_overtaken_when_the_partitions_change() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.session.partitions = {A0, B0}
    assert driver.sends() == ("F", 1, ["b0"], [], [])


def test_acknowledgements_ride_on_a_fetch_when_there_is_room_and_go_alone_when_not() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.acknowledge(0, 4)
    driver.acknowledge(5, 9, AcknowledgeType.RELEASE)
    assert driver.sends(wants_records=False) == ("A", 1, [], [], ["a0:0-4:ACCEPT", "a0:5-9:RELEASE"])
    assert results(driver.receives(("a", acknowledged()))) == [(0, 4, None), (5, 9, None)]
    driver.acknowledge(10, 19)
    assert driver.sends() == ("F", 2, [], [], ["a0:10-19:ACCEPT"])
    events = driver.receives(("a", acquired(20, 29, is_acknowledged=True)))
    assert results(events) == [(10, 19, None)]
    assert [event.ranges[0].first_offset for event in events if isinstance(event, Acquisition)] == [20]


def test_acknowledgements_of_partitions_that_are_not_fetched_go_alone() -> None:
    driver = Driver(A0, B0)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.session.partitions = {B0}
    driver.acknowledge(0, 9)
    assert driver.sends() == ("A", 1, [], [], ["a0:0-9:ACCEPT"])
    driver.receives(("a", acknowledged()))
    assert driver.sends() == ("F", 2, [], ["a0"], [])


def test_a_parked_fetch_is_overtaken_by_acknowledgements_and_they_by_nothing() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 9)
    assert driver.sends() == ("F", 1, [], [], ["a0:0-9:ACCEPT"])
    overtaking = driver.last
    driver.acknowledge(10, 19)
    assert driver.sends() is None
    assert driver.receives(to=parked) == []
    assert driver.sends() is None
    assert results(driver.receives(("a", acknowledged()), to=overtaking)) == [(0, 9, None)]
    assert driver.sends() == ("F", 2, [], [], ["a0:10-19:ACCEPT"])


def test_the_response_to_the_later_request_ends_the_parked_fetch_too() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 9)
    driver.sends()
    driver.receives(("a", acknowledged()))
    assert driver.sends() == ("F", 2, [], [], [])
    driver.receives()
    assert driver.receives(("a", acquired(10, 19)), to=parked) == []
    assert driver.sends(wants_records=False) == ("A", 3, [], [], ["a0:10-19:UNREAD"])


def test_a_response_that_comes_again_changes_nothing() -> None:
    driver = Driver(A0)
    driver.sends()
    first = driver.last
    assert len(driver.receives(("a", acquired(0, 9)), to=first)) == 1
    assert driver.receives(("a", acquired(0, 9)), to=first) == []
    driver.sends()
    assert driver.receives(("a", acquired(0, 9)), to=first) == []
    assert driver.session.unconfirmed_partitions == set()


def test_a_request_without_a_response_is_sent_again_as_it_was() -> None:
    driver = Driver(A0)
    assert driver.session.next_deadline_ms is None
    driver.sends()
    first = driver.last
    assert driver.session.next_deadline_ms == 3_000
    driver.now_ms = 2_999
    assert driver.sends() is None
    driver.now_ms = 3_000
    assert driver.sends() == ("F", 0, ["a0"], [], [])
    assert driver.last is first
    assert driver.session.next_deadline_ms == 6_000


def test_of_two_requests_only_the_later_one_is_sent_again() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.acknowledge(0, 9)
    driver.sends()
    overtaking = driver.last
    driver.now_ms = 3_000
    driver.sends()
    assert driver.last is overtaking
    assert driver.sends() is None


def test_what_did_not_reach_the_log_is_sent_again_after_a_pause() -> None:
    driver = Driver(A0)
    driver.sends()
    first = driver.last
    driver.session.send_failed(driver.now_ms)
    assert driver.sends() is None
    assert driver.session.next_deadline_ms == 100
    driver.now_ms = 100
    driver.sends()
    assert driver.last is first


@pytest.mark.parametrize(
    "error", [InvalidShareSessionEpochError(), ShareSessionNotFoundError(), ShareSessionLimitReachedError()]
)
def test_after_an_error_of_the_session_it_opens_again_and_unconfirmed_acknowledgements_are_sent_again(
    error: ApiError,
) -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.acknowledge(0, 9)
    driver.sends()
    assert driver.receives(error=error) == []
    driver.acknowledge(5, 5, AcknowledgeType.REJECT)
    assert driver.sends() is None
    driver.now_ms = driver.session.next_deadline_ms or 0
    # The request that opens a session cannot carry them, and must not acquire their records again before they are sent.
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.receives()
    assert driver.sends() == ("F", 1, [], [], ["a0:0-4:ACCEPT", "a0:5-5:REJECT", "a0:6-9:ACCEPT"])
    assert results(driver.receives(("a", acknowledged()))) == [(0, 4, None), (5, 5, None), (6, 9, None)]


def test_a_session_that_is_lost_under_a_parked_fetch_takes_the_overtaking_request_with_it() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 9)
    driver.sends()
    overtaking = driver.last
    driver.receives(error=ShareSessionNotFoundError(), to=parked)
    assert driver.receives(error=ShareSessionNotFoundError(), to=overtaking) == []
    driver.now_ms = 100
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.receives()
    assert driver.sends() == ("F", 1, [], [], ["a0:0-9:ACCEPT"])


def test_a_session_that_is_lost_under_a_parked_fetch_leaves_later_acknowledgements() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 9)
    driver.sends()
    overtaking = driver.last
    driver.receives(error=ShareSessionNotFoundError(), to=parked)
    driver.acknowledge(10, 19)
    driver.now_ms = 100
    assert driver.sends() is None
    assert results(driver.receives(("a", acknowledged()), to=overtaking)) == [(0, 9, None)]
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.receives()
    assert driver.sends() == ("F", 1, [], [], ["a0:10-19:ACCEPT"])


def test_pauses_grow_with_failures_in_a_row_and_start_over_after_a_success() -> None:
    driver = Driver(A0)
    pauses = []
    for _ in range(6):
        driver.sends()
        driver.receives(error=ShareSessionLimitReachedError())
        pauses.append((driver.session.next_deadline_ms or 0) - driver.now_ms)
        driver.now_ms += pauses[-1]
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.sends()
    driver.receives(error=ShareSessionNotFoundError())
    assert (driver.session.next_deadline_ms or 0) - driver.now_ms == 100


def test_a_partition_that_cannot_be_fetched_does_not_make_a_busy_loop() -> None:
    driver = Driver(A0)
    driver.sends()
    failed = PartitionResponse(partition_index=0, error_code=UnknownTopicOrPartitionError.code)
    driver.receives(("a", failed))
    assert driver.sends() is None
    driver.now_ms = 100
    assert driver.sends() == ("F", 1, [], [], [])


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (acknowledged(), None),
        (acknowledged(error=InvalidRecordStateError()), InvalidRecordStateError),
        (acknowledged(error=UnknownTopicOrPartitionError()), UnknownTopicOrPartitionError),
        (PartitionResponse(partition_index=0, error_code=GroupQuarantinedError.code), GroupQuarantinedError),
        (PartitionResponse(partition_index=0), UnknownServerError),
        (PartitionResponse(partition_index=7, is_acknowledged=True), UnknownServerError),
    ],
)
def test_the_result_is_what_the_partitions_response_says(
    response: PartitionResponse, error: type[ApiError] | None
) -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives()
    driver.acknowledge(0, 9)
    driver.sends()
    assert results(driver.receives(("a", response))) == [(0, 9, error)]
    assert driver.session.unconfirmed_partitions == set()


def test_acknowledgements_that_a_loading_leader_refuses_are_sent_again() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives()
    driver.acknowledge(0, 9)
    driver.sends()
    assert driver.receives(("a", acknowledged(error=CoordinatorLoadInProgressError()))) == []
    assert driver.session.unconfirmed_partitions == {A0}
    assert driver.sends() is None
    driver.now_ms = 100
    assert driver.sends() == ("F", 2, [], [], ["a0:0-9:ACCEPT"])


def test_an_error_that_will_not_pass_fails_the_acknowledgements() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives()
    driver.acknowledge(0, 9)
    driver.sends()
    assert results(driver.receives(error=GroupQuarantinedError())) == [(0, 9, GroupQuarantinedError)]


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1), (-1, 0)])
def test_epochs_wrap_to_one(epoch: int, following: int) -> None:
    assert next_epoch(epoch) == following


def test_records_of_a_large_poll_that_are_acknowledged_differently_go_with_one_request() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives()
    for offset in range(100_000):
        driver.acknowledge(offset, offset, AcknowledgeType.UNREAD if offset % 2 else AcknowledgeType.REJECT)
    sent = driver.sends()
    assert sent is not None
    assert len(sent[4]) == 100_000
    assert len(results(driver.receives(("a", acknowledged())))) == 100_000
    assert not driver.session.pending


def test_what_a_request_has_no_room_for_goes_with_the_next_ones() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives()
    offsets = range(2**60, 2**60 + 24_000, 2)
    for offset in offsets:
        driver.acknowledge(offset, offset)
    requests: list[list[int]] = []
    while driver.session.unconfirmed_partitions:
        assert driver.sends() is not None
        assert driver.last is not None
        assert len(driver.last.request.body.model_dump_json(exclude_defaults=True)) <= MAX_ACKNOWLEDGEMENT_BYTES
        requests.append([first for first, _, _ in results(driver.receives(("a", acknowledged())))])
    assert [offset for sent in requests for offset in sent] == list(offsets)
    assert len(requests) == 3


def test_records_that_are_acquired_again_before_their_acknowledgements_are_sent_are_not_delivered_again() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.acknowledge(2, 3)
    driver.acknowledge(8, 20)
    (acquisition,) = driver.receives(("a", acquired(0, 9)))
    assert isinstance(acquisition, Acquisition)
    assert [(held.first_offset, held.last_offset) for held in acquisition.ranges] == [(0, 1), (4, 7)]
    assert driver.sends() == ("F", 1, [], [], ["a0:2-3:ACCEPT", "a0:8-20:ACCEPT"])


def test_records_that_are_acquired_again_before_their_acknowledgements_are_answered_are_not_delivered_again() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 3)
    assert driver.sends(wants_records=False) == ("A", 1, [], [], ["a0:0-3:ACCEPT"])
    driver.acknowledge(2, 5)
    (acquisition,) = driver.receives(("a", acquired(0, 9)), to=parked)
    assert isinstance(acquisition, Acquisition)
    assert [(held.first_offset, held.last_offset) for held in acquisition.ranges] == [(6, 9)]


def test_records_of_a_late_response_go_back_without_those_that_are_acknowledged() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.session.reopen(0)
    driver.acknowledge(2, 3)
    assert driver.receives(("a", acquired(0, 4)), to=parked) == []
    driver.sends(wants_records=False)
    driver.receives()
    assert driver.sends(wants_records=False) == (
        "A", 1, [], [], ["a0:0-1:UNREAD", "a0:2-3:ACCEPT", "a0:4-4:UNREAD"],
    )  # fmt: skip


def test_after_a_takeover_a_fetch_under_way_is_lost_and_the_session_opens_at_once() -> None:
    driver = Driver(A0, A1)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    assert driver.sends() == ("F", 1, [], [], [])
    lost = driver.last
    driver.session.reopen(driver.now_ms)
    assert driver.sends() == ("F", 0, ["a0", "a1"], [], [])
    assert driver.receives(("a", acquired(10, 19)), to=lost) == []
    driver.receives(("a", acquired(20, 29)))
    assert driver.sends() == ("F", 1, [], [], ["a0:10-19:UNREAD"])


def test_after_a_takeover_acknowledgements_under_way_are_repeated_before_the_session_opens() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.acknowledge(0, 4)
    driver.sends()
    asked = driver.last
    driver.acknowledge(5, 9)
    driver.session.reopen(driver.now_ms)
    assert driver.sends() == ("F", 1, [], [], ["a0:0-4:ACCEPT"])
    assert driver.last is asked
    assert driver.sends() is None
    assert results(driver.receives(("a", acknowledged()))) == [(0, 4, None)]
    assert driver.receives(("a", acknowledged()), to=asked) == []
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.receives()
    assert driver.sends() == ("F", 1, [], [], ["a0:5-9:ACCEPT"])


def test_after_a_takeover_acknowledgements_that_were_not_applied_go_with_the_new_session() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.acknowledge(0, 9)
    driver.sends()
    driver.session.reopen(driver.now_ms)
    driver.sends()
    assert driver.receives(error=ShareSessionNotFoundError("")) == []
    driver.now_ms += 100
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.receives()
    assert driver.sends() == ("F", 1, [], [], ["a0:0-9:ACCEPT"])


def test_a_takeover_ends_a_pause() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives(error=CoordinatorLoadInProgressError(""))
    assert driver.sends() is None
    driver.session.reopen(driver.now_ms)
    assert driver.sends() == ("F", 0, ["a0"], [], [])


def test_a_close_under_way_is_repeated_after_a_takeover() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.receives(("a", acquired(0, 9)))
    driver.session.close()
    closing = driver.sends()
    driver.session.reopen(driver.now_ms)
    assert driver.sends() == closing
    driver.receives(error=ShareSessionNotFoundError(""))
    driver.now_ms += 100
    assert driver.sends() is None
    assert driver.session.is_closed
