"""The least time between two commits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.logs.port import NewRecord
from sharegroup.processor.commit import CommitPace
from sharegroup.processor.takeover.takeover import ONE_BY_ONE_AFTER_TAKEOVERS, DeltaStateTable, take_over
from sharegroup.protocol.rows import RecordType
from tests.support.site import REQUESTS, Site

NewSite = Callable[..., Site]


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


def test_messages_after_starts_that_failed_do_not_wait_for_the_interval(new_site: NewSite) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=5)
        with site.consumer(site.new_group(), topic) as consumer:
            site.poll(consumer, 5)
    # Messages that nobody has applied, and processors that ended before they applied one.
    ends: dict[int, int] = {}
    for partition, offsets in site.log.offsets(REQUESTS).items():
        messages = site.log.read(REQUESTS, partition, offsets.start_offset, offsets.end_offset)
        repeated = [NewRecord(message.key, message.value) for message in messages[-5:]]
        ends[partition] = site.log.append(REQUESTS, partition, repeated) + len(repeated)
    for _ in range(ONE_BY_ONE_AFTER_TAKEOVERS):
        take_over(site.log, DeltaStateTable(site.table_path), site.settings.processor)
    site.commit_interval_ms = 60_000
    with site.running() as processor:
        # Each message takes two commits: with the interval between them, a quarter of an hour.
        site.until(
            lambda: all(processor.processor.published_ends.get(p, 0) >= end for p, end in ends.items()),
            "the messages are applied",
        )
    attempts = [row.payload.get("attempted_offset") for row in site.rows(None, RecordType.COMMIT_MARKER)]
    assert sum(attempt is not None for attempt in attempts) >= 5
