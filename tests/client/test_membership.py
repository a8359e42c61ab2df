"""Heartbeats, driven by hand: what a member sends for which responses and at which times."""

from __future__ import annotations

import itertools

import pytest

from sharegroup.client.membership import PUSHED_CORRELATION_ID, Membership, MemberState
from sharegroup.errors import (
    ApiError,
    CoordinatorLoadInProgressError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupQuarantinedError,
    InvalidRequestError,
    UnknownMemberIdError,
)
from sharegroup.protocol.group_messages import ShareGroupHeartbeatResponse, TopicPartitions

ORDERS = [TopicPartitions(topic_id="o", topic="orders", partitions=[0, 1])]
ORDERS_KEYS = {("o", 0): "orders", ("o", 1): "orders"}
Wire = tuple[int, str | None, list[str] | None]


class Driver:
    """A member, its clock, and a shorthand for its heartbeats."""

    def __init__(self, *topics: str) -> None:
        self.member = Membership("rack-1", 3_000, itertools.count(1))
        self.now_ms = 0
        self.correlation_id = 0
        self.error: ApiError | None = None
        """The error of the last response, for the application."""
        if topics:
            self.member.subscribe(topics)

    def sends(self) -> Wire | None:
        """(member epoch, rack, topics) of the heartbeat that is sent now."""
        request = self.member.next_request(self.now_ms)
        if request is None:
            return None
        self.correlation_id = request.correlation_id
        return request.body.member_epoch, request.body.rack_id, request.body.subscribed_topic_names

    def receives(
        self,
        epoch: int = 0,
        assignment: list[TopicPartitions] | None = None,
        error: ApiError | None = None,
        correlation_id: int | None = None,
    ) -> None:
        response = ShareGroupHeartbeatResponse(
            error_code=error.code if error else 0,
            error_message=error.message if error else "",
            member_epoch=epoch,
            heartbeat_interval_ms=5_000,
            assignment=assignment,
        )
        self.error = self.member.receive(correlation_id or self.correlation_id, response, self.now_ms)

    def joined(self) -> Driver:
        assert self.sends() == (0, "rack-1", ["orders"])
        self.receives(2, ORDERS)
        return self


def test_a_member_joins_with_everything_and_goes_on_with_its_epoch_only() -> None:
    driver = Driver("orders")
    assert driver.sends() == (0, "rack-1", ["orders"])
    assert driver.sends() is None
    driver.receives(2, [])
    assert driver.member.assignment == {}
    assert driver.member.next_deadline_ms == 5_000
    driver.now_ms = 4_999
    assert driver.sends() is None
    driver.now_ms = 5_000
    assert driver.sends() == (2, None, None)
    driver.receives(3, ORDERS)
    assert driver.member.assignment == ORDERS_KEYS
    driver.now_ms = 10_000
    assert driver.sends() == (3, None, None)
    driver.receives(3)
    assert driver.member.assignment == ORDERS_KEYS


def test_a_member_that_has_no_epoch_yet_says_everything_again() -> None:
    driver = Driver("orders")
    driver.sends()
    driver.receives(0)
    driver.now_ms = 5_000
    assert driver.sends() == (0, "rack-1", ["orders"])


def test_a_new_subscription_is_sent_at_once() -> None:
    driver = Driver("orders").joined()
    driver.member.subscribe(["orders", "returns"])
    assert driver.sends() == (2, None, ["orders", "returns"])
    assert driver.sends() is None
    driver.receives(3)
    assert driver.sends() is None


def test_a_subscription_that_changes_while_a_response_is_awaited_is_sent_after_it() -> None:
    driver = Driver("orders").joined()
    driver.now_ms = 5_000
    driver.sends()
    driver.member.subscribe(["returns"])
    assert driver.sends() is None
    driver.receives(2)
    assert driver.sends() == (2, None, ["returns"])


class TestPushedAssignments:
    def test_a_pushed_assignment_counts_as_one_of_a_response(self) -> None:
        driver = Driver("orders").joined()
        driver.receives(3, [], correlation_id=PUSHED_CORRELATION_ID)
        assert driver.member.assignment == {}
        driver.now_ms = 5_000
        assert driver.sends() == (3, None, None)

    def test_one_that_overtakes_the_response_to_the_join_is_kept(self) -> None:
        driver = Driver("orders")
        driver.sends()
        driver.receives(3, ORDERS, correlation_id=PUSHED_CORRELATION_ID)
        driver.receives(2, [])
        assert driver.member.assignment == ORDERS_KEYS
        driver.now_ms = 5_000
        assert driver.sends() == (3, None, None)

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_an_outdated_one_changes_nothing(self, epoch: int) -> None:
        driver = Driver("orders").joined()
        driver.receives(epoch, [], correlation_id=PUSHED_CORRELATION_ID)
        assert driver.member.assignment == ORDERS_KEYS

    def test_one_for_a_member_that_left_changes_nothing(self) -> None:
        driver = Driver("orders").joined()
        driver.member.leave()
        driver.receives(3, ORDERS, correlation_id=PUSHED_CORRELATION_ID)
        assert driver.member.assignment == {}


def test_a_response_that_comes_again_changes_nothing() -> None:
    driver = Driver("orders").joined()
    first = driver.correlation_id
    driver.now_ms = 5_000
    driver.sends()
    driver.receives(9, [], correlation_id=first)
    driver.receives(2)
    assert driver.member.assignment == ORDERS_KEYS
    driver.now_ms = 10_000
    assert driver.sends() == (2, None, None)


def test_a_heartbeat_without_a_response_is_sent_again() -> None:
    driver = Driver("orders")
    driver.sends()
    first = driver.correlation_id
    driver.now_ms = 2_999
    assert driver.sends() is None
    driver.now_ms = 3_000
    assert driver.sends() == (0, "rack-1", ["orders"])
    assert driver.correlation_id != first
    driver.receives(9, ORDERS, correlation_id=first)
    assert driver.member.assignment == {}


def test_what_did_not_reach_the_log_is_sent_again_after_a_pause() -> None:
    driver = Driver("orders")
    driver.sends()
    driver.member.send_failed(driver.now_ms)
    assert driver.sends() is None
    driver.now_ms = 100
    assert driver.sends() == (0, "rack-1", ["orders"])


@pytest.mark.parametrize("error", [UnknownMemberIdError(), FencedMemberEpochError()])
def test_a_member_that_is_not_known_any_more_joins_again(error: ApiError) -> None:
    driver = Driver("orders").joined()
    driver.now_ms = 5_000
    driver.sends()
    driver.receives(error=error)
    assert driver.member.assignment == {}
    assert driver.sends() == (0, "rack-1", ["orders"])
    assert driver.error is None


def test_a_retriable_error_is_tried_again_after_a_pause() -> None:
    driver = Driver("orders").joined()
    driver.now_ms = 5_000
    driver.sends()
    driver.receives(error=CoordinatorLoadInProgressError())
    assert driver.member.assignment == ORDERS_KEYS
    assert driver.sends() is None
    driver.now_ms = 5_100
    assert driver.sends() == (2, None, None)
    assert driver.error is None


@pytest.mark.parametrize(
    "error", [GroupMaxSizeReachedError("full"), GroupIdNotFoundError("no"), InvalidRequestError("?")]
)
def test_any_other_error_ends_the_membership_and_is_raised_once(error: ApiError) -> None:
    driver = Driver("orders")
    driver.sends()
    driver.receives(error=error)
    assert driver.member.state is MemberState.FAILED
    assert driver.member.is_outside
    raised = driver.error
    assert type(raised) is type(error)
    assert str(raised) == str(error)
    driver.now_ms = 60_000
    assert driver.sends() is None
    driver.member.subscribe(["orders"])
    assert driver.sends() == (0, "rack-1", ["orders"])


def test_a_quarantined_group_is_reported_and_asked_again() -> None:
    driver = Driver("orders").joined()
    driver.now_ms = 5_000
    driver.sends()
    driver.receives(error=GroupQuarantinedError())
    assert isinstance(driver.error, GroupQuarantinedError)
    assert driver.member.assignment == ORDERS_KEYS


class TestLeave:
    def test_a_member_leaves_with_epoch_minus_one(self) -> None:
        driver = Driver("orders").joined()
        driver.member.leave()
        assert driver.member.assignment == {}
        assert not driver.member.is_outside
        assert driver.sends() == (-1, None, None)
        driver.member.leave()
        assert driver.sends() is None
        driver.receives(-1)
        assert driver.member.is_outside
        assert driver.member.next_deadline_ms is None

    def test_no_topics_is_to_leave_and_topics_after_that_to_join(self) -> None:
        driver = Driver("orders").joined()
        driver.member.subscribe([])
        assert driver.sends() == (-1, None, None)
        driver.member.subscribe(["orders"])
        assert driver.sends() == (0, "rack-1", ["orders"])

    def test_a_member_whose_join_is_on_its_way_leaves_too(self) -> None:
        driver = Driver("orders")
        driver.sends()
        driver.member.leave()
        assert driver.sends() == (-1, None, None)

    def test_a_member_that_never_joined_leaves_without_a_word(self) -> None:
        driver = Driver("orders")
        driver.member.leave()
        assert driver.member.is_outside
        assert driver.sends() is None

    def test_a_member_that_left_and_did_not_join_again_neither(self) -> None:
        driver = Driver("orders").joined()
        driver.member.leave()
        driver.sends()
        driver.receives(-1)
        driver.member.subscribe(["orders"])
        driver.member.leave()
        assert driver.sends() is None

    def test_a_coordinator_that_does_not_know_it_is_fine(self) -> None:
        driver = Driver("orders").joined()
        driver.member.leave()
        driver.sends()
        driver.receives(error=UnknownMemberIdError())
        assert driver.member.is_outside


@pytest.mark.parametrize(("assignment", "expected"), [(ORDERS, True), ([], False)], ids=["known group", "new group"])
def test_the_first_assignment_shows_whether_the_group_is_new(assignment: list[TopicPartitions], expected: bool) -> None:
    driver = Driver("orders")
    assert not driver.member.joined_with_partitions
    driver.sends()
    # The coordinator defers the assignment.
    driver.receives(epoch=0, assignment=[])
    driver.now_ms += 5_000
    driver.sends()
    driver.receives(epoch=1, assignment=assignment)
    assert driver.member.joined_with_partitions is expected
    driver.receives(epoch=2, assignment=ORDERS, correlation_id=PUSHED_CORRELATION_ID)
    assert driver.member.joined_with_partitions is expected
