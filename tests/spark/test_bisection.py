"""Which records a failed handler costs; handlers are functions of offsets here. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException

from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.spark.handler_calls import MAX_CALLS, Bisection, Outcome, is_independent_of_records

ACCEPT, RELEASE, UNREAD, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.UNREAD,
    AcknowledgeType.GAP,
)


def held(first: int, last: int, partition: int = 0) -> HeldRange:
    return HeldRange("topic-id", "topic", partition, first, last, 1)


def offsets(ranges: Iterable[HeldRange]) -> list[int]:
    return [offset for r in ranges for offset in range(r.first_offset, r.last_offset + 1)]


class HandlerOf:
    """Accepts records, and raises when one of those that it is given is bad."""

    def __init__(self, bad: Iterable[int], error: Callable[[], Exception] = lambda: ValueError("bad record")) -> None:
        self.bad = frozenset(bad)
        self.error = error
        self.calls: list[list[int]] = []

    def __call__(self, ranges: list[HeldRange]) -> list[Acknowledgement]:
        all_offsets = offsets(ranges)
        self.calls.append(all_offsets)
        if self.bad & set(all_offsets):
            raise self.error()
        return [r.acknowledgement(ACCEPT) for r in ranges]


def without_gaps(ranges: list[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
    return ranges, []


def of_type(outcome: Outcome, acknowledge_type: AcknowledgeType) -> list[int]:
    return sorted(
        offset for a in outcome.acknowledgements if a.acknowledge_type is acknowledge_type for offset in a.offsets
    )


@pytest.mark.parametrize(
    ("count", "bad", "calls", "released", "is_broken"),
    [
        (10_000, [], 1, [], False),
        (1, [0], 1, [0], False),
        (8, [3], 7, [3], False),
        (8, [0, 7], 11, [0, 7], False),
        (15, range(15), 29, list(range(15)), False),
        (1_000, range(1_000), 40, list(range(16)), True),
    ],
    ids=["all good", "one bad record", "one of eight", "both ends", "fewer than 16, all bad", "each one bad"],
)
def test_only_bad_records_are_released(
    count: int, bad: Iterable[int], calls: int, released: list[int], is_broken: bool
) -> None:
    handler = HandlerOf(bad)
    outcome = Bisection(handler, without_gaps).run([held(0, count - 1)])
    assert (outcome.call_count, of_type(outcome, RELEASE), outcome.is_broken) == (calls, released, is_broken)
    rest = [offset for offset in range(count) if offset not in released]
    assert of_type(outcome, UNREAD if is_broken else ACCEPT) == rest
    assert len(handler.calls) == calls


@given(bad=st.sets(st.integers(0, 299), max_size=300), split=st.integers(1, 299))
def test_each_record_has_one_acknowledgement_and_no_bad_one_is_accepted(bad: set[int], split: int) -> None:
    handler = HandlerOf(bad)
    outcome = Bisection(handler, without_gaps).run([held(0, split - 1), held(split, 299, partition=0)])
    kinds = {kind: of_type(outcome, kind) for kind in (ACCEPT, RELEASE, UNREAD)}
    assert sorted(offset for offsets in kinds.values() for offset in offsets) == list(range(300))
    assert not bad & set(kinds[ACCEPT])
    assert outcome.call_count <= MAX_CALLS
    if outcome.call_count < MAX_CALLS and not outcome.is_broken:
        assert kinds[RELEASE] == sorted(bad)


def test_undecided_records_are_released_after_64_calls() -> None:
    outcome = Bisection(HandlerOf(range(1, 4_000, 97)), without_gaps).run([held(0, 3_999)])
    assert (outcome.call_count, outcome.is_broken) == (MAX_CALLS, False)
    assert of_type(outcome, ACCEPT)
    assert sorted(of_type(outcome, ACCEPT) + of_type(outcome, RELEASE)) == list(range(4_000))


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'mylib'"),
        PermissionError("the sink"),
        AnalysisException("TABLE_OR_VIEW_NOT_FOUND"),
        PySparkException("Job aborted due to stage failure: java.lang.NoClassDefFoundError: com/example/Udf"),
        PySparkException("Lost task 0.0: ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"),
        PySparkException("java.nio.file.AccessDeniedException: /sink"),
        PySparkException("in a worker: ModuleNotFoundError: No module named 'mylib'"),
        RuntimeError("the sink failed"),
    ],
    ids=["module", "permission", "plan", "class", "executor", "access denied", "module in a worker", "by its cause"],
)
def test_a_cause_that_no_record_has_uses_up_no_delivery(error: Exception) -> None:
    if isinstance(error, RuntimeError):
        error.__cause__ = ConnectionRefusedError("no listener")
    outcome = Bisection(HandlerOf(range(500), lambda: error), without_gaps).run([held(0, 499)])
    assert (outcome.call_count, outcome.is_broken, outcome.error) == (1, True, error)
    assert of_type(outcome, UNREAD) == list(range(500))


@pytest.mark.parametrize(
    "error", [ValueError("cannot parse"), KeyError("field"), PySparkException("java.lang.NumberFormatException: x")]
)
def test_other_causes_may_be_the_records(error: Exception) -> None:
    assert not is_independent_of_records(error)


def test_without_bisection_a_failure_releases_all_records() -> None:
    outcome = Bisection(HandlerOf([3]), without_gaps, bisects=False).run([held(0, 7)])
    assert (outcome.call_count, of_type(outcome, RELEASE), outcome.is_broken) == (1, list(range(8)), False)


def test_gaps_are_looked_for_once_and_are_not_tried() -> None:
    searched: list[list[int]] = []

    def with_gap(ranges: list[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
        searched.append(offsets(ranges))
        return [held(0, 1), held(6, 7)], [held(2, 5).acknowledgement(GAP, "compacted")]

    handler = HandlerOf([6])
    outcome = Bisection(handler, with_gap).run([held(0, 7)])
    assert searched == [list(range(8))]
    assert handler.calls == [list(range(8)), [0, 1], [6, 7], [6], [7]]
    assert (of_type(outcome, ACCEPT), of_type(outcome, RELEASE)) == ([0, 1, 7], [6])
    assert of_type(outcome, GAP) == [2, 3, 4, 5]


def test_the_end_of_the_worker_ends_the_search() -> None:
    handler = HandlerOf([7])
    outcome = Bisection(handler, without_gaps, is_cancelled=lambda: len(handler.calls) == 2).run([held(0, 7)])
    assert handler.calls == [list(range(8)), [0, 1, 2, 3]]
    assert (of_type(outcome, ACCEPT), of_type(outcome, RELEASE)) == ([0, 1, 2, 3], [4, 5, 6, 7])
