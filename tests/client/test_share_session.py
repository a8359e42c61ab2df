"""The member's side of the share session, driven by hand: what it sends for which answers and at which times."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.session_events import Acknowledged, Acquired, SessionEvent
from sharegroup.client.session_events import AcquiredRecords as HeldRecords
from sharegroup.client.settings import FetchSettings
from sharegroup.client.share_session import MAX_RANGES_PER_REQUEST, SessionRequest, ShareSession, epoch_after
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
    CoordinatorLoadInProgressError,
    GroupQuarantinedError,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    RequestTimedOutError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.share_fetch import (
    AcquiredRecords,
    PartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    TopicResponse,
)

SETTINGS = FetchSettings(max_records=100, batch_size=100, max_wait_ms=500, request_timeout_ms=3_000)
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)

Wire = tuple[str, int, list[str], list[str], list[str]]


class Driver:
    """A session, its clock, and a shorthand for what goes over the wire."""

    def __init__(self, *partitions: tuple[str, int]) -> None:
        self.session = ShareSession(SETTINGS, itertools.count(1))
        self.session.set_partitions(partitions)
        self.now_ms = 0
        self.last: SessionRequest | None = None

    def sends(self, wants_records: bool = True) -> Wire | None:
        """(F or A or open, epoch, partitions added, partitions forgotten, acknowledgements) of what is sent now."""
        request = self.session.next_request(self.now_ms, wants_records)
        if request is None:
            return None
        self.last = request
        body = request.body
        partitions = [(topic.topic_id, p) for topic in body.topics for p in topic.partitions]
        added = [f"{t}{p.partition_index}" for t, p in partitions if not p.acknowledgement_batches]
        said = [
            f"{t}{p.partition_index}:{r.first_offset}-{r.last_offset}:{r.acknowledge_types[0].name}"
            for t, p in partitions
            for r in p.acknowledgement_batches
        ]
        if not isinstance(body, ShareFetchRequest):
            return "A", body.share_session_epoch, added, [], said
        forgotten = [f"{topic.topic_id}{p}" for topic in body.forgotten_topics_data for p in topic.partitions]
        return "F" if body.max_records else "F0", body.share_session_epoch, added, forgotten, said

    def acknowledge(
        self, first: int, last: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT, key: tuple[str, int] = A0
    ) -> None:
        self.session.acknowledge(Acknowledgement(*key, first, last, kind))

    def answered(
        self,
        *partitions: tuple[str, PartitionResponse],
        error: ApiError | None = None,
        to: SessionRequest | None = None,
    ) -> list[SessionEvent]:
        request = to or self.last
        assert request is not None
        response = ShareFetchResponse(
            error_code=error.code if error else 0,
            lock_deadline_ms=9_000,
            acquisition_lock_timeout_ms=8_000,
            responses=[TopicResponse(topic_id=topic_id, partitions=[p]) for topic_id, p in partitions],
        )
        return self.session.receive(request.correlation_id, response, self.now_ms)


def acknowledged(index: int = 0, error: ApiError | None = None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, is_acknowledged=True, acknowledge_error_code=error.code if error else 0
    )


def acquired(first: int, last: int, index: int = 0, is_acknowledged: bool = False) -> PartitionResponse:
    records = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)]
    return PartitionResponse(partition_index=index, acquired_records=records, is_acknowledged=is_acknowledged)


def results(events: list[SessionEvent]) -> list[tuple[int, int, type[ApiError] | None]]:
    """(first offset, last offset, error) of all that was settled."""
    return [
        (a.first_offset, a.last_offset, type(event.error) if event.error else None)
        for event in events
        if isinstance(event, Acknowledged)
        for a in event.acknowledgements
    ]


def test_a_session_opens_with_all_its_partitions_and_counts_its_requests() -> None:
    driver = Driver(A0, A1)
    assert driver.sends() == ("F", 0, ["a0", "a1"], [], [])
    assert driver.sends() is None
    events = driver.answered(("a", acquired(0, 9)))
    assert events == [Acquired((HeldRecords("a", 0, 0, 9, 1),), 9_000, 8_000)]
    assert driver.sends() == ("F", 1, [], [], [])


def test_nothing_is_fetched_without_room_or_without_partitions() -> None:
    assert Driver(A0).sends(wants_records=False) is None
    assert Driver().sends() is None


def test_partitions_that_change_are_named_in_the_next_fetch() -> None:
    driver = Driver(A0, A1)
    driver.sends()
    driver.answered(("a", acquired(0, 0)))
    driver.session.set_partitions([A1, B0])
    assert driver.sends() == ("F", 1, ["b0"], ["a0"], [])
    driver.answered()
    assert driver.sends() == ("F", 2, [], [], [])


def test_a_parked_fetch_is_overtaken_when_the_partitions_change() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.session.set_partitions([A0, B0])
    assert driver.sends() == ("F", 1, ["b0"], [], [])


def test_acknowledgements_ride_on_a_fetch_when_there_is_room_and_go_alone_when_not() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.answered(("a", acquired(0, 9)))
    driver.acknowledge(0, 4)
    driver.acknowledge(5, 9, AcknowledgeType.RELEASE)
    assert driver.sends(wants_records=False) == ("A", 1, [], [], ["a0:0-4:ACCEPT", "a0:5-9:RELEASE"])
    assert results(driver.answered(("a", acknowledged()))) == [(0, 4, None), (5, 9, None)]
    driver.acknowledge(10, 19)
    assert driver.sends() == ("F", 2, [], [], ["a0:10-19:ACCEPT"])
    events = driver.answered(("a", acquired(20, 29, is_acknowledged=True)))
    assert results(events) == [(10, 19, None)]
    assert [event.records[0].first_offset for event in events if isinstance(event, Acquired)] == [20]


def test_acknowledgements_of_partitions_that_are_not_fetched_go_alone() -> None:
    driver = Driver(A0, B0)
    driver.sends()
    driver.answered(("a", acquired(0, 9)))
    driver.session.set_partitions([B0])
    driver.acknowledge(0, 9)
    assert driver.sends() == ("A", 1, [], [], ["a0:0-9:ACCEPT"])
    driver.answered(("a", acknowledged()))
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
    assert driver.answered(to=parked) == []
    assert driver.sends() is None
    assert results(driver.answered(("a", acknowledged()), to=overtaking)) == [(0, 9, None)]
    assert driver.sends() == ("F", 2, [], [], ["a0:10-19:ACCEPT"])


def test_the_answer_to_the_later_request_ends_the_parked_fetch_too() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 9)
    driver.sends()
    driver.answered(("a", acknowledged()))
    assert driver.sends() == ("F", 2, [], [], [])
    driver.answered()
    assert driver.answered(("a", acquired(10, 19)), to=parked) == []
    assert driver.sends(wants_records=False) == ("A", 3, [], [], ["a0:10-19:UNREAD"])


def test_an_answer_that_comes_again_changes_nothing() -> None:
    driver = Driver(A0)
    driver.sends()
    first = driver.last
    assert len(driver.answered(("a", acquired(0, 9)), to=first)) == 1
    assert driver.answered(("a", acquired(0, 9)), to=first) == []
    driver.sends()
    assert driver.answered(("a", acquired(0, 9)), to=first) == []
    assert driver.session.unanswered_partitions == set()


def test_a_request_without_an_answer_is_sent_again_as_it_was() -> None:
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
def test_after_an_error_of_the_session_it_opens_anew_and_what_was_not_judged_is_sent_again(error: ApiError) -> None:
    driver = Driver(A0)
    driver.sends()
    driver.answered(("a", acquired(0, 9)))
    driver.acknowledge(0, 9)
    driver.sends()
    assert driver.answered(error=error) == []
    driver.acknowledge(5, 5, AcknowledgeType.REJECT)
    assert driver.sends() is None
    driver.now_ms = driver.session.next_deadline_ms or 0
    # The request that opens a session cannot carry them, and must not acquire their records anew before they are sent.
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.answered()
    assert driver.sends() == ("F", 1, [], [], ["a0:0-4:ACCEPT", "a0:5-5:REJECT", "a0:6-9:ACCEPT"])
    assert results(driver.answered(("a", acknowledged()))) == [(0, 4, None), (5, 5, None), (6, 9, None)]


def test_a_session_that_is_lost_under_a_parked_fetch_takes_the_overtaking_request_with_it() -> None:
    driver = Driver(A0)
    driver.sends()
    parked = driver.last
    driver.acknowledge(0, 9)
    driver.sends()
    overtaking = driver.last
    driver.answered(error=ShareSessionNotFoundError(), to=parked)
    assert driver.answered(error=ShareSessionNotFoundError(), to=overtaking) == []
    driver.now_ms = 100
    assert driver.sends() == ("F0", 0, ["a0"], [], [])
    driver.answered()
    assert driver.sends() == ("F", 1, [], [], ["a0:0-9:ACCEPT"])


def test_pauses_grow_with_failures_in_a_row_and_start_over_after_a_success() -> None:
    driver = Driver(A0)
    pauses = []
    for _ in range(6):
        driver.sends()
        driver.answered(error=ShareSessionLimitReachedError())
        pauses.append((driver.session.next_deadline_ms or 0) - driver.now_ms)
        driver.now_ms += pauses[-1]
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    driver.sends()
    driver.answered(("a", acquired(0, 9)))
    driver.sends()
    driver.answered(error=ShareSessionNotFoundError())
    assert (driver.session.next_deadline_ms or 0) - driver.now_ms == 100


def test_a_partition_that_cannot_be_fetched_does_not_make_a_busy_loop() -> None:
    driver = Driver(A0)
    driver.sends()
    failed = PartitionResponse(partition_index=0, error_code=UnknownTopicOrPartitionError.code)
    driver.answered(("a", failed))
    assert driver.sends() is None
    driver.now_ms = 100
    assert driver.sends() == ("F", 1, [], [], [])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (acknowledged(), None),
        (acknowledged(error=InvalidRecordStateError()), InvalidRecordStateError),
        (acknowledged(error=UnknownTopicOrPartitionError()), UnknownTopicOrPartitionError),
        (PartitionResponse(partition_index=0, error_code=GroupQuarantinedError.code), GroupQuarantinedError),
        (PartitionResponse(partition_index=0), UnknownServerError),
        (PartitionResponse(partition_index=7, is_acknowledged=True), UnknownServerError),
    ],
)
def test_the_result_is_what_the_partitions_answer_says(answer: PartitionResponse, error: type[ApiError] | None) -> None:
    driver = Driver(A0)
    driver.sends()
    driver.answered()
    driver.acknowledge(0, 9)
    driver.sends()
    assert results(driver.answered(("a", answer))) == [(0, 9, error)]
    assert driver.session.unanswered_partitions == set()


def test_acknowledgements_that_a_loading_leader_refuses_are_sent_again() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.answered()
    driver.acknowledge(0, 9)
    driver.sends()
    assert driver.answered(("a", acknowledged(error=CoordinatorLoadInProgressError()))) == []
    assert driver.session.unanswered_partitions == {A0}
    assert driver.sends() is None
    driver.now_ms = 100
    assert driver.sends() == ("F", 2, [], [], ["a0:0-9:ACCEPT"])


def test_an_error_that_will_not_pass_fails_the_acknowledgements() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.answered()
    driver.acknowledge(0, 9)
    driver.sends()
    assert results(driver.answered(error=GroupQuarantinedError())) == [(0, 9, GroupQuarantinedError)]


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1), (-1, 0)])
def test_epochs_wrap_to_one(epoch: int, following: int) -> None:
    assert epoch_after(epoch) == following


def test_a_request_carries_a_limited_number_of_ranges() -> None:
    driver = Driver(A0)
    driver.sends()
    driver.answered()
    for offset in range(0, 2 * (MAX_RANGES_PER_REQUEST + 1), 2):
        driver.acknowledge(offset, offset)
    first = driver.sends()
    assert first is not None
    assert len(first[4]) == MAX_RANGES_PER_REQUEST
    assert len(results(driver.answered(("a", acknowledged())))) == MAX_RANGES_PER_REQUEST
    second = driver.sends()
    assert second is not None
    assert len(second[4]) == 1


class TestClose:
    def test_a_session_that_was_never_opened_closes_without_a_word(self) -> None:
        driver = Driver(A0)
        driver.session.close()
        assert driver.sends() is None
        assert driver.session.is_closed

    def test_the_last_request_carries_the_last_acknowledgements(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.answered(("a", acquired(0, 9)))
        driver.acknowledge(0, 9)
        driver.session.close()
        assert driver.sends() == ("A", -1, [], [], ["a0:0-9:ACCEPT"])
        assert driver.session.is_final_sent
        assert results(driver.answered(("a", acknowledged()))) == [(0, 9, None)]
        assert driver.session.is_closed
        assert driver.sends() is None

    def test_a_parked_fetch_is_ended_first_so_that_its_records_can_be_returned(self) -> None:
        driver = Driver(A0)
        driver.sends()
        parked = driver.last
        driver.session.close()
        assert driver.sends() == ("A", 1, [], [], [])
        ending = driver.last
        events = driver.answered(("a", acquired(0, 9)), to=parked)
        assert len(events) == 1
        driver.acknowledge(0, 9, AcknowledgeType.UNREAD)
        assert driver.sends() is None
        driver.answered(to=ending)
        assert driver.sends() == ("A", -1, [], [], ["a0:0-9:UNREAD"])

    def test_a_lost_session_opens_once_more_for_the_last_acknowledgements(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.answered(("a", acquired(0, 9)))
        driver.acknowledge(0, 9)
        driver.session.close()
        driver.sends()
        driver.answered(error=ShareSessionNotFoundError())
        driver.now_ms = 100
        assert driver.sends() == ("F0", 0, ["a0"], [], [])
        driver.answered()
        assert driver.sends() == ("A", -1, [], [], ["a0:0-9:ACCEPT"])

    def test_a_session_that_is_lost_when_there_is_nothing_to_say_is_closed(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.answered()
        driver.session.close()
        driver.sends()
        driver.answered(error=ShareSessionNotFoundError())
        driver.now_ms = 100
        assert driver.sends() is None
        assert driver.session.is_closed

    def test_giving_up_fails_what_was_sent_and_what_was_not(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.answered()
        driver.acknowledge(0, 4)
        driver.sends()
        driver.acknowledge(5, 9)
        events = driver.session.give_up()
        assert results(events) == [(0, 4, RequestTimedOutError), (5, 9, RequestTimedOutError)]
        assert driver.answered(("a", acknowledged())) == []
        assert driver.session.give_up() == []

    def test_nothing_is_due_after_the_close(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.answered(error=ShareSessionNotFoundError())
        driver.session.give_up()
        driver.now_ms = 60_000
        assert driver.session.next_deadline_ms is None
        assert driver.sends() is None


@given(st.data())
def test_every_acknowledged_record_gets_exactly_one_result(data: st.DataObject) -> None:
    """Whatever is lost, late, refused or repeated on the way; the records of one partition, each acknowledged once."""
    driver = Driver(A0)
    in_air: list[SessionRequest] = []
    settled: list[int] = []
    said = 0

    def answer(request: SessionRequest, error: ApiError | None) -> None:
        carried = [("a", acknowledged(error=data.draw(st.sampled_from(PARTITION_ERRORS))))]
        events = driver.answered(*(carried if request.acknowledgements else []), error=error, to=request)
        settled.extend(offset for first, last, _ in results(events) for offset in range(first, last + 1))

    for step in data.draw(
        st.lists(st.sampled_from(["say", "send", "answer", "repeat", "refuse", "wait"]), max_size=60)
    ):
        if step == "say":
            size = data.draw(st.integers(1, 5))
            driver.acknowledge(said, said + size - 1)
            said += size
        elif step == "wait":
            driver.now_ms += data.draw(st.sampled_from([50, 1_000, 3_000]))
        elif step == "send":
            if driver.sends(wants_records=data.draw(st.booleans())) and driver.last not in in_air:
                assert driver.last is not None
                in_air.append(driver.last)
        elif in_air:
            refuses = step == "refuse"
            answer(in_air[0], data.draw(st.sampled_from(SESSION_ERRORS)) if refuses else None)
            if step != "repeat":
                in_air.pop(0)
    settled.extend(offset for first, last, _ in results(driver.session.give_up()) for offset in range(first, last + 1))
    assert sorted(settled) == list(range(said))


PARTITION_ERRORS = [None, InvalidRecordStateError(), CoordinatorLoadInProgressError()]
SESSION_ERRORS = [ShareSessionNotFoundError(), InvalidShareSessionEpochError(), GroupQuarantinedError()]
