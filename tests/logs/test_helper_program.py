"""When the helper process gives signs of life."""

from __future__ import annotations

import pytest

from sharegroup.logs.helper_process import ReportedState
from sharegroup.logs.helper_program import HelpedMember, HelpedMembers


class Helper:
    """A helper, and the seconds at which it gives signs of life."""

    def __init__(self, *names: str) -> None:
        self.members = HelpedMembers()
        self.now_s = 100.0
        for number, name in enumerate(names):
            self.members.join(number, HelpedMember({}, "requests", 0, "g", name, ""))

    def signs(self, duration_s: float, *, sends_every_s: float = 0) -> list[tuple[float, str]]:
        """Let time pass, in which the first member sends requests; (time, member) of the signs of life."""
        signs = []
        until_s = self.now_s + duration_s
        sends_s = self.now_s + (sends_every_s or duration_s + 1)
        while (next_s := min(sends_s, self.members.next_due_s or until_s, until_s)) < until_s:
            self.now_s = next_s
            signs += [(self.now_s, member.alive) for member in self.members.take_due(self.now_s)]
            if self.now_s == sends_s:
                self.members.hold(0, self.now_s)
                sends_s += sends_every_s
        self.now_s = until_s
        return signs


def test_signs_begin_after_two_seconds_and_come_each_second() -> None:
    helper = Helper("anna")
    helper.members.hold(0, helper.now_s)
    assert helper.signs(4.5) == [(102.0, "anna"), (103.0, "anna"), (104.0, "anna")]


def test_a_member_that_sends_requests_itself_needs_no_signs() -> None:
    helper = Helper("anna")
    helper.members.hold(0, helper.now_s)
    assert helper.signs(10, sends_every_s=0.5) == []
    # Its last request was at 109.5.
    assert helper.signs(2.2) == [(110.5, "anna"), (111.5, "anna")]


def test_requests_do_not_bring_the_first_sign_forward() -> None:
    helper = Helper("anna")
    helper.members.hold(0, helper.now_s)
    helper.now_s += 0.6
    helper.members.hold(0, helper.now_s)
    assert helper.signs(2) == [(102.0, "anna")]


def test_a_member_without_records_needs_no_signs() -> None:
    helper = Helper("anna", "ben")
    assert helper.members.next_due_s is None
    helper.members.hold(0, helper.now_s)
    helper.members.hold(1, helper.now_s)
    helper.members.release(0)
    assert helper.signs(2.5) == [(102.0, "ben")]
    helper.members.release(1)
    assert helper.members.next_due_s is None
    helper.members.hold(0, helper.now_s)
    assert helper.signs(2.5) == [(104.5, "anna")]


def test_a_member_that_has_left_is_forgotten() -> None:
    helper = Helper("anna", "ben")
    helper.members.hold(0, helper.now_s)
    helper.members.leave(0)
    assert helper.signs(5) == []
    assert [member.alive for member in helper.members.by_number.values()] == ["ben"]


def test_signs_that_are_late_are_given_once() -> None:
    helper = Helper("anna")
    helper.members.hold(0, helper.now_s)
    assert len(helper.members.take_due(helper.now_s + 30)) == 1
    assert helper.members.next_due_s == helper.now_s + 31


@pytest.mark.parametrize(
    ("states", "reported"),
    [
        pytest.param([(0.0, True, False), (0.1, True, True)], [0.0], id="the first records at once"),
        pytest.param([(0.0, True, False), (0.6, True, False)], [0.0], id="no more while nothing is sent"),
        pytest.param([(0.0, True, True), (0.6, True, True), (0.7, True, True)], [0.0, 0.6], id="requests"),
        pytest.param([(0.0, False, True), (9.0, False, True)], [], id="nothing without records"),
        pytest.param([(0.0, True, False), (0.1, False, False), (0.6, False, False)], [0.0, 0.6], id="the last records"),
        pytest.param([(0.0, True, False), (0.1, False, False), (0.2, True, False)], [0.0], id="new ones meanwhile"),
        pytest.param([(0.0, True, False), (0.6, False, False), (0.7, True, False)], [0.0, 0.6, 0.7], id="new ones"),
    ],
)
def test_reports_to_the_helper(states: list[tuple[float, bool, bool]], reported: list[float]) -> None:
    state = ReportedState()
    due = [
        now_s
        for now_s, holds_records, has_sent in states
        if state.is_due(holds_records=holds_records, has_sent=has_sent, now_s=now_s)
    ]
    assert due == reported
