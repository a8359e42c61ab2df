"""Applications that die of a record, with real processes: only such records are given up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from sharegroup.core.record_state import RecordState
from tests.support.site import Site

pytestmark = pytest.mark.slow

_WORK = """
import os, signal, sys
from sharegroup.client.share_consumer import ShareConsumer
path, group_id, topic, max_poll_records, *guilty = sys.argv[1:]
consumer = ShareConsumer({"log.path": path, "group.id": group_id, "max.poll.records": int(max_poll_records)})
consumer.subscribe([topic])
while True:
    for message in consumer.poll(0.2):
        if str(message.offset()) in guilty:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("count", "guilty", "limit", "max_poll_records"),
    [
        (12, {5}, 3, 500),
        pytest.param(2_000, {701}, 5, 500, marks=pytest.mark.long("five processes start one after the other")),
        pytest.param(200, {30, 90, 131}, 5, 20, marks=pytest.mark.long("fifteen processes start one after the other")),
    ],
)
def test_only_the_records_that_kill_are_given_up(
    new_site: Callable[[], Site], count: int, guilty: set[int], limit: int, max_poll_records: int
) -> None:
    site = new_site()
    crash_count = 0
    with site.running():
        topic, group_id = site.new_topic(record_count=count), site.new_group(share_delivery_count_limit=str(limit))
        command = [sys.executable, "-c", _WORK, str(site.log_path), group_id, topic, str(max_poll_records)]
        process = subprocess.Popen([*command, *map(str, guilty)])
        try:

            def is_drained() -> bool:
                nonlocal process, crash_count
                if process.poll() is not None:
                    crash_count += 1
                    process = subprocess.Popen([*command, *map(str, guilty)])
                return site.is_drained(group_id, topic)

            site.until(is_drained, "all records are finished")
        finally:
            process.kill()
            process.wait()
        given_up = {
            offset
            for row in site.rows(group_id)
            for entry in row.transitions
            if entry.to_state is RecordState.ARCHIVED
            for offset in range(entry.first_offset, entry.last_offset + 1)
        }
    assert given_up == guilty
    assert crash_count <= limit * len(guilty)
