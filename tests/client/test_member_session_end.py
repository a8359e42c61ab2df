"""How a share session closes, and that no acknowledgement is lost on any way there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.session_request import SessionRequest
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
    CoordinatorLoadInProgressError,
    GroupQuarantinedError,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    RequestTimedOutError,
    ShareSessionNotFoundError,
)
from tests.client.session_driver import A0, SETTINGS, Driver, acknowledged, acquired, results


class TestExpiry:
    """With `acknowledge_timeout_ms` 60,000."""

    @pytest.fixture
    def driver(self) -> Driver:
        """In a session, with an acquisition."""
        driver = Driver(A0, settings=replace(SETTINGS, acknowledge_timeout_ms=60_000))
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        return driver

    def expired(self, driver: Driver, now_ms: int) -> list[tuple[int, int, type[ApiError] | None]]:
        driver.now_ms = now_ms
        return results(driver.session.expire(now_ms))

    def test_what_gets_no_response_in_time_has_failed_and_the_session_opens_again(self, driver: Driver) -> None:
        driver.acknowledge(0, 9)
        assert driver.sends() == ("F", 1, [], [], ["a0:0-9:ACCEPT"])
        sent = driver.last
        assert self.expired(driver, 59_999) == []
        assert self.expired(driver, 60_000) == [(0, 9, RequestTimedOutError)]
        assert self.expired(driver, 60_000) == []
        assert driver.session.unconfirmed_partitions == set()
        assert driver.sends() == ("F", 0, ["a0"], [], [])
        assert driver.receives(("a", acknowledged()), to=sent) == [], "a response that comes late"

    def test_what_cannot_be_sent_has_failed_at_the_same_time(self, driver: Driver) -> None:
        driver.acknowledge(0, 4)
        driver.sends()
        driver.acknowledge(5, 9)
        assert self.expired(driver, 20_000) == []
        assert self.expired(driver, 60_000) == [(0, 4, RequestTimedOutError)]
        assert self.expired(driver, 79_999) == []
        assert self.expired(driver, 80_000) == [(5, 9, RequestTimedOutError)]

    def test_the_time_of_what_was_sent_late_runs_from_when_it_could_have_been_sent(self, driver: Driver) -> None:
        driver.acknowledge(0, 9)
        assert self.expired(driver, 10_000) == []
        driver.now_ms = 40_000
        assert driver.sends() is not None
        assert self.expired(driver, 69_999) == []
        assert self.expired(driver, 70_000) == [(0, 9, RequestTimedOutError)]

    def test_responses_restart_the_time_of_the_next_ones(self, driver: Driver) -> None:
        for now_ms in range(0, 300_000, 30_000):
            driver.acknowledge(0, 9)
            assert self.expired(driver, now_ms) == []
            assert driver.sends() is not None
            assert results(driver.receives(("a", acknowledged()))) == [(0, 9, None)]

    def test_without_a_limit_they_wait_for_ever(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        driver.acknowledge(0, 9)
        driver.sends()
        assert self.expired(driver, 10**9) == []


class TestClose:
    def test_a_session_that_was_never_opened_closes_without_a_word(self) -> None:
        driver = Driver(A0)
        driver.session.close()
        assert driver.sends() is None
        assert driver.session.is_closed

    def test_the_last_request_carries_the_last_acknowledgements(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        driver.acknowledge(0, 9)
        driver.session.close()
        assert driver.sends() == ("A", -1, [], [], ["a0:0-9:ACCEPT"])
        assert driver.session.is_final_sent
        assert results(driver.receives(("a", acknowledged()))) == [(0, 9, None)]
        assert driver.session.is_closed
        assert driver.sends() is None

    def test_a_parked_fetch_is_ended_first_so_that_its_records_can_be_returned(self) -> None:
        driver = Driver(A0)
        driver.sends()
        parked = driver.last
        driver.session.close()
        assert driver.sends() == ("A", 1, [], [], [])
        ending = driver.last
        events = driver.receives(("a", acquired(0, 9)), to=parked)
        assert len(events) == 1
        driver.acknowledge(0, 9, AcknowledgeType.UNREAD)
        assert driver.sends() is None
        driver.receives(to=ending)
        assert driver.sends() == ("A", -1, [], [], ["a0:0-9:UNREAD"])

    def test_a_lost_session_opens_once_more_for_the_last_acknowledgements(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        driver.acknowledge(0, 9)
        driver.session.close()
        driver.sends()
        driver.receives(error=ShareSessionNotFoundError())
        driver.now_ms = 100
        assert driver.sends() == ("F0", 0, ["a0"], [], [])
        driver.receives()
        assert driver.sends() == ("A", -1, [], [], ["a0:0-9:ACCEPT"])

    def test_a_session_that_is_lost_when_there_is_nothing_to_say_is_closed(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives()
        driver.session.close()
        driver.sends()
        driver.receives(error=ShareSessionNotFoundError())
        driver.now_ms = 100
        assert driver.sends() is None
        assert driver.session.is_closed

    def test_a_session_that_keeps_its_locks_says_the_last_but_does_not_close_at_the_leader(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        driver.acknowledge(0, 4)
        driver.session.close(keeps_locks=True)
        assert driver.sends() == ("A", 1, [], [], ["a0:0-4:ACCEPT"])
        assert results(driver.receives(("a", acknowledged()))) == [(0, 4, None)]
        assert driver.sends() is None
        assert driver.session.is_closed

    def test_who_cannot_wait_closes_at_once_with_what_was_not_sent(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        driver.acknowledge(0, 4)
        driver.sends()
        driver.acknowledge(5, 9)
        driver.session.close()
        last = driver.session.last_request()
        assert last is not None
        assert last.is_final
        assert [(ack.first_offset, ack.last_offset) for ack in last.acknowledgements] == [(5, 9)]
        assert driver.session.last_request() is None
        assert results(driver.session.give_up()) == [(0, 4, RequestTimedOutError), (5, 9, RequestTimedOutError)]

    def test_who_cannot_wait_sends_acknowledgements_although_the_session_is_lost(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(("a", acquired(0, 9)))
        driver.session.reopen(0)
        driver.acknowledge(0, 4)
        driver.session.close()
        last = driver.session.last_request()
        assert last is not None
        assert last.is_final
        assert [(ack.first_offset, ack.last_offset) for ack in last.acknowledgements] == [(0, 4)]

    def test_who_cannot_wait_has_nothing_to_close_before_there_is_a_session(self) -> None:
        driver = Driver(A0)
        driver.session.close()
        assert driver.session.last_request() is None

    def test_giving_up_fails_what_was_sent_and_what_was_not(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives()
        driver.acknowledge(0, 4)
        driver.sends()
        driver.acknowledge(5, 9)
        events = driver.session.give_up()
        assert results(events) == [(0, 4, RequestTimedOutError), (5, 9, RequestTimedOutError)]
        assert driver.receives(("a", acknowledged())) == []
        assert driver.session.give_up() == []

    def test_nothing_is_due_after_the_close(self) -> None:
        driver = Driver(A0)
        driver.sends()
        driver.receives(error=ShareSessionNotFoundError())
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
    acknowledged_count = 0

    def respond(request: SessionRequest, error: ApiError | None) -> None:
        carried = [("a", acknowledged(error=data.draw(st.sampled_from(PARTITION_ERRORS))))]
        events = driver.receives(*(carried if request.acknowledgements else []), error=error, to=request)
        settled.extend(offset for first, last, _ in results(events) for offset in range(first, last + 1))

    for step in data.draw(
        st.lists(st.sampled_from(["say", "send", "respond", "repeat", "refuse", "wait"]), max_size=60)
    ):
        if step == "say":
            size = data.draw(st.integers(1, 5))
            driver.acknowledge(acknowledged_count, acknowledged_count + size - 1)
            acknowledged_count += size
        elif step == "wait":
            driver.now_ms += data.draw(st.sampled_from([50, 1_000, 3_000]))
        elif step == "send":
            if driver.sends(wants_records=data.draw(st.booleans())) and driver.last not in in_air:
                assert driver.last is not None
                in_air.append(driver.last)
        elif in_air:
            refuses = step == "refuse"
            respond(in_air[0], data.draw(st.sampled_from(SESSION_ERRORS)) if refuses else None)
            if step != "repeat":
                in_air.pop(0)
    settled.extend(offset for first, last, _ in results(driver.session.give_up()) for offset in range(first, last + 1))
    assert sorted(settled) == list(range(acknowledged_count))


PARTITION_ERRORS = [None, InvalidRecordStateError(), CoordinatorLoadInProgressError()]
SESSION_ERRORS = [ShareSessionNotFoundError(), InvalidShareSessionEpochError(), GroupQuarantinedError()]
