"""Which records a failed handler costs; handlers are functions of offsets here. No Spark."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.offset_ranges import consecutive
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.spark.call_history import CallHistory
from sharegroup.spark.failure_search import MAX_CALLS, FailureSearch, Outcome

ACCEPT, RELEASE, UNREAD, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.UNREAD,
    AcknowledgeType.GAP,
)
ALWAYS = range(1_000_000)
NEVER = range(0)


def held(first: int, last: int, partition: int = 0) -> HeldRange:
    return HeldRange("topic-id", "topic", partition, first, last, 1)


def offsets(ranges: Iterable[HeldRange]) -> list[int]:
    return [offset for r in ranges for offset in range(r.first_offset, r.last_offset + 1)]


class HandlerOf:
    """Accepts records; raises with a bad one, and in an outage: a range of the numbers of its calls."""

    def __init__(self, bad: Iterable[int] = (), outage: range = NEVER) -> None:
        self.bad = frozenset(bad)
        self.outage = outage
        self.calls: list[list[int]] = []

    def __call__(self, ranges: list[HeldRange]) -> list[Acknowledgement]:
        self.calls.append(offsets(ranges))
        if len(self.calls) - 1 in self.outage or self.bad.intersection(self.calls[-1]):
            raise ValueError("cannot do it")
        return [r.acknowledgement(ACCEPT) for r in ranges]


def without_gaps(ranges: list[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
    return ranges, []


def of_type(outcome: Outcome, acknowledge_type: AcknowledgeType) -> list[int]:
    return sorted(
        offset for a in outcome.acknowledgements if a.acknowledge_type is acknowledge_type for offset in a.offsets
    )


def delays(outcome: Outcome) -> set[int | None]:
    return {a.redelivery_delay_ms for a in outcome.acknowledgements if a.acknowledge_type is UNREAD}


@pytest.mark.parametrize(
    ("count", "bad", "calls", "released", "unread", "delay_ms"),
    [
        (10_000, [], 1, [], [], None),
        (1, [0], 1, [], [0], 1_000),
        (2, [0], 4, [0], [], None),
        (2, [1], 3, [], [1], None),
        (8, [0], 10, [0], [], None),
        (8, [3], 8, [3], [], None),
        (8, [7], 8, [7], [], None),
        (8, [1, 4], 13, [1, 4], [], None),
        (500, [499], 20, [499], [], None),
        (5, range(5), 7, [], range(5), 1_000),
        (1_000, range(1_000), MAX_CALLS, [], range(1_000), 1_000),
    ],
    ids=[
        "all good",
        "one bad record alone",
        "the first of two",
        "the last of two: nothing is accepted after it",
        "the first of eight",
        "one of eight",
        "the last of eight",
        "two of eight",
        "the last of many",
        "five bad ones",
        "each one bad",
    ],
)
def test_records_at_fault_are_released(
    count: int, bad: Iterable[int], calls: int, released: list[int], unread: Iterable[int], delay_ms: int | None
) -> None:
    handler = HandlerOf(bad)
    outcome = FailureSearch(handler, without_gaps, CallHistory()).run([held(0, count - 1)])
    assert (of_type(outcome, RELEASE), of_type(outcome, UNREAD)) == (released, list(unread))
    assert of_type(outcome, ACCEPT) == [o for o in range(count) if o not in released and o not in unread]
    assert delays(outcome) <= {delay_ms}
    assert (outcome.call_count, len(handler.calls)) == (calls, calls)
    assert outcome.delayed_count == (len(list(unread)) if delay_ms else 0)


@pytest.mark.parametrize("count", [2, 3, 20, 100])
def test_a_single_record_at_fault_is_released_at_once_but_for_one_position(count: int) -> None:
    outcomes = [
        FailureSearch(HandlerOf([o]), without_gaps, CallHistory()).run([held(0, count - 1)]) for o in range(count)
    ]
    assert sum(of_type(outcome, RELEASE) == [o] for o, outcome in enumerate(outcomes)) == count - 1


def test_an_outage_is_tried_by_halves_and_then_at_positions_that_are_spread() -> None:
    handler = HandlerOf(outage=ALWAYS)
    outcome = FailureSearch(handler, without_gaps, CallHistory()).run([held(0, 299), held(300, 511)])
    assert [len(call) for call in handler.calls] == [512, 256, 128, 64, 32, 16, 8, 4, 2, 1] + [1] * (MAX_CALLS - 10)
    tried = sorted(call[0] for call in handler.calls if len(call) == 1)
    assert max(later - earlier for earlier, later in pairwise([*tried, 512])) <= 32
    assert of_type(outcome, UNREAD) == list(range(512))


def test_each_record_is_tried_in_the_end() -> None:
    handler, history = HandlerOf(set(range(300)) - {123}), CallHistory()
    for _ in range(6):
        FailureSearch(handler, without_gaps, history).run([held(0, 299)])
    assert [123] in handler.calls


def test_the_delay_doubles_until_a_record_is_accepted() -> None:
    history = CallHistory()
    delay_ms: list[int | None] = []
    for first in range(8):
        outcome = FailureSearch(HandlerOf(outage=ALWAYS), without_gaps, history).run([held(first, first)])
        delay_ms += delays(outcome)
        assert history.is_failing
    assert delay_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    FailureSearch(HandlerOf(), without_gaps, history).run([held(9, 9)])
    assert not history.is_failing
    assert delays(FailureSearch(HandlerOf([9]), without_gaps, history).run([held(9, 9)])) == {1_000}


class Worker:
    """Processes a topic: its first records come first, and those with a delay after all others."""

    def __init__(self, handler: HandlerOf, size: int) -> None:
        self.handler = handler
        self.history = CallHistory()
        self.size = size
        self.queue: deque[int] = deque()
        self.released: Counter[int] = Counter()
        self.accepted: set[int] = set()

    def work(self) -> None:
        """Process one acquisition."""
        acquired = sorted(self.queue.popleft() for _ in range(min(self.size, len(self.queue))))
        before = len(self.handler.calls)
        ranges = [held(first, last) for first, last in consecutive(acquired)]
        outcome = FailureSearch(self.handler, without_gaps, self.history).run(ranges)
        assert len(self.handler.calls) - before <= MAX_CALLS
        assert sorted(o for kind in (ACCEPT, RELEASE, UNREAD) for o in of_type(outcome, kind)) == acquired
        self.accepted.update(of_type(outcome, ACCEPT))
        self.released.update(of_type(outcome, RELEASE))
        returned = of_type(outcome, RELEASE) + of_type(outcome, UNREAD)
        if outcome.delayed_count:
            self.queue.extend(returned)
        else:
            self.queue.extendleft(reversed(returned))


@given(
    count=st.integers(1, 40),
    bad=st.sets(st.integers(0, 39), max_size=40),
    size=st.integers(1, 20),
    begin=st.integers(0, 60),
    duration=st.integers(0, 100),
)
def test_no_good_record_counts_in_an_outage_and_each_bad_one_does_once_another_is_accepted(
    count: int, bad: set[int], size: int, begin: int, duration: int
) -> None:
    bad = {offset for offset in bad if offset < count}
    worker = Worker(HandlerOf(bad, range(begin, begin + duration)), size)
    worker.queue.extend(range(count))
    # Records that are appended later are good; one comes with each acquisition.
    for later in range(count, count + 400):
        worker.work()
        assert worker.released.keys() <= bad
        if worker.released.keys() == bad and worker.accepted >= set(range(count)) - bad:
            break
        worker.queue.append(later)
    assert worker.released.keys() == bad
    assert worker.accepted >= set(range(count)) - bad


@given(outage=st.integers(1, 2_000), size=st.integers(1, 100))
def test_an_outage_of_any_length_costs_no_delivery(outage: int, size: int) -> None:
    worker = Worker(HandlerOf(outage=range(outage)), size)
    worker.queue.extend(range(200))
    while worker.queue:
        worker.work()
    assert worker.accepted == set(range(200))
    assert not worker.released


def test_bad_records_only_wait_until_another_one_is_accepted() -> None:
    worker = Worker(HandlerOf(range(10)), 10)
    worker.queue.extend(range(10))
    for _ in range(20):
        worker.work()
    assert not worker.released
    worker.queue.appendleft(10)
    for _ in range(3):
        worker.work()
    assert worker.accepted == {10}
    assert worker.released == Counter(range(10))


def test_each_delivery_that_counts_needs_an_accepted_record_after_the_one_before() -> None:
    history = CallHistory()

    def counts(handler: HandlerOf, offset: int) -> bool:
        return bool(of_type(FailureSearch(handler, without_gaps, history).run([held(offset, offset)]), RELEASE))

    away, bad, good = HandlerOf(outage=ALWAYS), HandlerOf([0]), HandlerOf()
    assert [counts(bad, 0), counts(good, 1), counts(bad, 0)] == [False, False, True]
    assert [counts(away, 0), counts(away, 0), counts(away, 2)] == [False, False, False]
    assert [counts(good, 1), counts(bad, 0), counts(bad, 0)] == [False, True, False]


def test_an_accepted_record_is_suspected_no_more() -> None:
    history = CallHistory()
    for handler, offset in [(HandlerOf([0]), 0), (HandlerOf(), 0), (HandlerOf(), 1)]:
        FailureSearch(handler, without_gaps, history).run([held(offset, offset)])
    assert of_type(FailureSearch(HandlerOf([0]), without_gaps, history).run([held(0, 0)]), UNREAD) == [0]


def test_only_a_call_that_began_after_the_failure_proves_that_the_handler_works() -> None:
    history = CallHistory()
    early = history.begin()
    failed = history.begin()
    ended = history.failed()
    assert not history.failed_alone(failed, ended, [held(0, 0)])
    history.succeeded(early, [held(1, 1).acknowledgement(ACCEPT)])
    assert not history.accepted_since(ended)
    late = history.begin()
    again = history.begin()
    history.succeeded(late, [held(2, 2).acknowledgement(ACCEPT)])
    assert history.accepted_since(ended)
    # It was accepted while the second call was under way: an outage may have begun before, or after that.
    assert not history.failed_alone(again, history.failed(), [held(0, 0)])
    last = history.begin()
    assert history.failed_alone(last, history.failed(), [held(0, 0)])


@pytest.mark.parametrize("kind", [RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW, GAP])
def test_a_record_that_is_not_accepted_proves_nothing(kind: AcknowledgeType) -> None:
    history = CallHistory()
    ended = history.failed()
    assert not history.succeeded(history.begin(), [held(0, 0).acknowledgement(kind)])
    assert not history.accepted_since(ended)


def test_a_record_that_another_thread_accepts_meanwhile_is_a_proof() -> None:
    history = CallHistory()

    class Meanwhile(HandlerOf):
        def __call__(self, ranges: list[HeldRange]) -> list[Acknowledgement]:
            if len(self.calls) == 2:
                history.succeeded(history.begin(), [held(9, 9).acknowledgement(ACCEPT)])
            return super().__call__(ranges)

    handler = Meanwhile(range(2))
    outcome = FailureSearch(handler, without_gaps, history).run([held(0, 1)])
    assert handler.calls == [[0, 1], [0], [1], [0]]
    assert (of_type(outcome, RELEASE), of_type(outcome, UNREAD), delays(outcome)) == ([0], [1], {None})


def test_without_bisection_an_acquisition_is_the_smallest_part() -> None:
    history, handler = CallHistory(), HandlerOf([3])
    kinds: list[set[AcknowledgeType]] = []
    for first, last in [(0, 7), (8, 9), (0, 7)]:
        outcome = FailureSearch(handler, without_gaps, history, bisects=False).run([held(first, last)])
        kinds += [{ack.acknowledge_type for ack in outcome.acknowledgements}]
    assert len(handler.calls) == 3
    assert kinds == [{UNREAD}, {ACCEPT}, {RELEASE}]


def test_gaps_are_looked_for_once_and_are_not_tried() -> None:
    searched: list[list[int]] = []

    def with_gap(ranges: list[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
        searched.append(offsets(ranges))
        return [held(0, 1), held(6, 7)], [held(2, 5).acknowledgement(GAP, "compacted")]

    handler = HandlerOf([7])
    outcome = FailureSearch(handler, with_gap, CallHistory()).run([held(0, 7)])
    assert searched == [list(range(8))]
    assert not {2, 3, 4, 5}.intersection(*handler.calls[1:])
    assert (of_type(outcome, ACCEPT), of_type(outcome, RELEASE)) == ([0, 1, 6], [7])
    assert of_type(outcome, GAP) == [2, 3, 4, 5]


def test_the_end_of_the_worker_ends_the_search_and_proves_nothing() -> None:
    handler, history = HandlerOf([7]), CallHistory()
    search = FailureSearch(handler, without_gaps, history, is_cancelled=lambda: len(handler.calls) == 2)
    outcome = search.run([held(0, 7)])
    assert handler.calls == [list(range(8)), [0, 1, 2, 3]]
    assert (of_type(outcome, ACCEPT), of_type(outcome, UNREAD)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    cancelled = FailureSearch(handler, without_gaps, history, is_cancelled=lambda: len(handler.calls) == 3)
    outcome = cancelled.run([held(7, 7)])
    assert (of_type(outcome, UNREAD), delays(outcome), history.is_failing) == ([7], {None}, False)
