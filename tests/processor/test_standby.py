"""The decision of a standby: by cases, and for any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.processor.standby.standby import (
    CALM_S,
    FIRST_PATIENCE_S,
    LONGEST_PATIENCE_S,
    PROBE_INTERVAL_S,
    RETURN_GRACE_S,
    Standby,
)
from sharegroup.protocol.standby_messages import ProcessorState

EPOCH = 7
ACTIVE, FOLDING, LEAVING = ProcessorState.ACTIVE, ProcessorState.FOLDING, ProcessorState.LEAVING


class Driver:
    """A standby with its clock.

    Attributes:
        now_s: the time.
    """

    def __init__(self) -> None:
        self.standby = Standby()
        self.now_s = 1_000.0
        self.standby.step(self.now_s)
        self.standby.table_read(EPOCH)
        self.probe(responds=True)

    def probe(self, returns: bool = True, responds: bool = False, state: ProcessorState = ACTIVE) -> int:
        """Send the next probe once it is due; it returns and gets a response, or not."""
        number = None
        while number is None:
            self.standby.step(self.now_s)
            number = self.standby.due_probe(self.now_s)
            self.now_s += PROBE_INTERVAL_S / 4
        if returns:
            self.standby.probe_returned(number, self.now_s)
        if responds:
            self.standby.response_received(number, self.standby.leader_epoch, state, self.now_s)
        return number

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps, without any event."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + PROBE_INTERVAL_S / 4)
            self.standby.step(self.now_s)

    @property
    def is_due(self) -> bool:
        return self.standby.is_due(self.now_s)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.mark.parametrize(
    ("returned", "seconds", "is_due"),
    [
        (2, LONGEST_PATIENCE_S, False),
        (3, 0.0, False),
        (3, FIRST_PATIENCE_S, True),
        (10, 0.0, True),
    ],
    ids=["two probes", "three probes, too soon", "three probes, and the patience is over", "many probes"],
)
def test_silence(driver: Driver, returned: int, seconds: float, is_due: bool) -> None:
    for _ in range(returned):
        driver.probe()
    driver.wait(seconds)
    assert driver.is_due == is_due


def test_probes_that_do_not_come_back_do_not_count(driver: Driver) -> None:
    for _ in range(20):
        driver.probe(returns=False)
    assert not driver.is_due


def test_a_response_that_is_read_before_its_probe_counts(driver: Driver) -> None:
    numbers = [driver.probe(returns=False) for _ in range(3)]
    driver.standby.response_received(numbers[-1], EPOCH, ACTIVE, driver.now_s)
    for number in numbers:
        driver.standby.probe_returned(number, driver.now_s)
    driver.wait(LONGEST_PATIENCE_S)
    assert not driver.is_due


def test_a_response_to_an_old_probe_is_a_sign_of_life(driver: Driver) -> None:
    old = driver.probe()
    for _ in range(5):
        driver.probe()
    driver.standby.response_received(old, EPOCH, ACTIVE, driver.now_s)
    assert not driver.is_due
    driver.wait(FIRST_PATIENCE_S)
    assert driver.is_due


def test_commits_are_signs_of_life_from_the_poll_before_on(driver: Driver) -> None:
    polled_s = driver.now_s
    for _ in range(4):
        driver.probe()
    driver.standby.processor_committed(driver.now_s - 1.0)
    assert not driver.is_due
    driver.wait(FIRST_PATIENCE_S - 1.0)
    assert driver.is_due
    driver.standby.processor_committed(polled_s)
    assert driver.is_due


def test_a_processor_that_leaves_is_over_at_once(driver: Driver) -> None:
    driver.probe(responds=True, state=LEAVING)
    assert driver.is_due


@pytest.mark.parametrize(("epoch", "is_due"), [(EPOCH - 1, False), (EPOCH, True), (EPOCH + 1, False)])
def test_the_end_of_the_active_process_alone_counts(driver: Driver, epoch: int, is_due: bool) -> None:
    driver.standby.processor_ended(epoch)
    assert driver.is_due == is_due


def test_responses_of_an_earlier_processor_do_not_count(driver: Driver) -> None:
    driver.standby.table_read(EPOCH + 1)
    for _ in range(6):
        driver.standby.response_received(driver.probe(), EPOCH, LEAVING, driver.now_s)
    driver.wait(FIRST_PATIENCE_S)
    assert driver.is_due


def test_a_fold_is_no_silence(driver: Driver) -> None:
    driver.standby.processor_ended(EPOCH)
    driver.standby.processor_started(EPOCH + 1)
    for _ in range(100):
        driver.probe(responds=True, state=FOLDING)
        assert not driver.is_due


@pytest.mark.parametrize("fault", [Standby.log_away, Standby.table_away], ids=["log", "table"])
def test_nobody_takes_over_what_is_away(driver: Driver, fault: object) -> None:
    assert callable(fault)
    driver.standby.processor_ended(EPOCH)
    fault(driver.standby, driver.now_s)
    assert not driver.is_due
    driver.standby.table_read(EPOCH)
    driver.probe()
    assert driver.is_due, "it is over for certain"


def test_silence_counts_again_some_time_after_an_outage(driver: Driver) -> None:
    driver.standby.log_away(driver.now_s)
    returned_s = driver.now_s
    while driver.now_s < returned_s + RETURN_GRACE_S + FIRST_PATIENCE_S - PROBE_INTERVAL_S:
        driver.probe()
        assert not driver.is_due
    for _ in range(4):
        driver.probe()
    assert driver.is_due


def test_a_standby_that_stood_still_itself_counts_from_then_on(driver: Driver) -> None:
    for _ in range(3):
        driver.probe()
    driver.now_s += 100.0
    driver.standby.step(driver.now_s)
    assert not driver.is_due


def test_the_patience_doubles_with_each_loss_and_starts_again_after_a_calm_time(driver: Driver) -> None:
    seen = []
    for loss in range(1, 8):
        driver.standby.lost(EPOCH + loss, driver.now_s)
        seen.append(driver.standby.patience_s / FIRST_PATIENCE_S)
    assert seen == [2, 4, 8, 16, 32, 32, 32]
    driver.wait(CALM_S + 1)
    assert driver.standby.patience_s == FIRST_PATIENCE_S


def test_a_takeover_that_failed_is_tried_again_after_the_patience(driver: Driver) -> None:
    driver.standby.processor_ended(EPOCH)
    driver.standby.failed(EPOCH, driver.now_s)
    assert not driver.is_due
    driver.wait(FIRST_PATIENCE_S)
    assert driver.is_due


def test_another_table_has_other_epochs(driver: Driver) -> None:
    driver.standby.table_read(1)
    driver.probe(responds=True)
    assert driver.standby.leader_epoch == 1
    assert not driver.is_due


def test_the_wait_ends_when_a_probe_or_the_takeover_is_due(driver: Driver) -> None:
    for _ in range(20):
        driver.now_s += driver.standby.wait_s(driver.now_s)
        driver.standby.step(driver.now_s)
        if driver.is_due:
            break
        number = driver.standby.due_probe(driver.now_s)
        if number is not None:
            driver.standby.probe_returned(number, driver.now_s)
    assert driver.is_due


EVENTS = st.lists(
    st.sampled_from(("responded", "silent", "lost probe", "committed", "log away", "table away", "paused", "started")),
    max_size=60,
)


@given(EVENTS)
def test_without_silence_nobody_takes_over(events: list[str]) -> None:
    """Return due only after three probes in a row that came back, with nothing heard of the active processor."""
    driver, silent = Driver(), 0
    for event in events:
        match event:
            case "responded" | "silent" | "lost probe":
                driver.probe(returns=event != "lost probe", responds=event == "responded")
            case "committed":
                driver.standby.processor_committed(driver.now_s)
            case "log away":
                driver.standby.log_away(driver.now_s)
            case "table away":
                driver.standby.table_away(driver.now_s)
                driver.standby.table_read(driver.standby.leader_epoch)
            case "paused":
                driver.now_s += 100.0
                driver.standby.step(driver.now_s)
            case "started":
                driver.standby.processor_started(driver.standby.leader_epoch + 1)
        silent = silent + 1 if event == "silent" else silent if event == "lost probe" else 0
        assert not driver.is_due or silent >= 3


@given(EVENTS)
def test_a_silent_processor_is_followed_whatever_came_before(events: list[str]) -> None:
    driver = Driver()
    for event in events:
        if event == "log away":
            driver.standby.log_away(driver.now_s)
        elif event == "started":
            driver.standby.lost(driver.standby.leader_epoch + 1, driver.now_s)
        else:
            driver.probe(responds=event == "responded")
    begun_s = driver.now_s
    while not driver.is_due:
        driver.probe()
        assert driver.now_s - begun_s <= RETURN_GRACE_S + LONGEST_PATIENCE_S + 4 * PROBE_INTERVAL_S
