"""The least time between two commits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.processor.commit import CommitPace


class RecordedWaits(threading.Condition):
    """Records each wait, which ends at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        self.waits_s.append(timeout)
        return predicate()


@pytest.mark.parametrize(
    ("interval_ms", "passed_s", "waits_s"), [(0, 0.0, []), (1_000, 0.25, [0.75]), (1_000, 1.0, []), (1_000, 5.0, [])]
)
def test_a_commit_waits_for_the_rest_of_the_interval(interval_ms: int, passed_s: float, waits_s: list[float]) -> None:
    now_s = 100.0
    pace, changed = CommitPace(interval_ms, lambda: now_s), RecordedWaits()
    pace.wait(changed, lambda: False)
    assert changed.waits_s == [], "the first commit begins at once"
    pace.begin()
    now_s += passed_s
    pace.wait(changed, lambda: False)
    assert changed.waits_s == waits_s
