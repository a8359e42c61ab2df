from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.schedule import RequestKind, arrivals


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert list(arrivals(50, 10, seed=7)) == list(arrivals(50, 10, seed=7))
    assert list(arrivals(50, 10, seed=7)) != list(arrivals(50, 10, seed=8))


def test_times_ascend_and_end_with_the_duration() -> None:
    times_s = [arrival.due_s for arrival in arrivals(100, 5, seed=1)]
    assert times_s == sorted(times_s)
    assert times_s[0] > 0
    assert times_s[-1] < 5


def test_gaps_are_exponential() -> None:
    gaps_s = [after.due_s - before.due_s for before, after in pairwise(arrivals(100, 200, seed=1))]
    mean_s = sum(gaps_s) / len(gaps_s)
    assert mean_s == pytest.approx(0.01, rel=0.05)
    # Of exponential gaps 1 - 1/e are shorter than the mean.
    assert sum(gap < mean_s for gap in gaps_s) / len(gaps_s) == pytest.approx(0.632, abs=0.02)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_durable_share(share: float, expected: float) -> None:
    kinds = Counter(arrival.kind for arrival in arrivals(100, 100, seed=1, durable_share=share))
    assert kinds[RequestKind.DURABLE] / kinds.total() == pytest.approx(expected, abs=0.02)
    assert kinds[RequestKind.HEARTBEAT] == pytest.approx(kinds[RequestKind.EMPTY_FETCH], rel=0.1)
