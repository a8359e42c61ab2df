"""The host of a processor without Spark: members are served, and each way in which it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sharegroup.errors import FencedProcessorError
from sharegroup.processor.thread_host import ThreadHost
from sharegroup.protocol.rows import RecordType
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.site import Site

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Folders, logs and members; its own processor is not started."""
    site = Site(tmp_path)
    yield site
    site.close()


@contextmanager
def hosted(site: Site) -> Iterator[ThreadHost]:
    host = ThreadHost(site.settings)
    host.start()
    try:
        yield host
    finally:
        host.stop()


def test_a_stop_commits_what_was_applied_and_the_next_host_goes_on(site: Site) -> None:
    with hosted(site) as host:
        site.drain()
        assert host.last_progress()["commits"] > 0
        published_ends = dict(host.processor.published_ends)
    marker = site.reader.last_marker()
    assert marker is not None
    assert all(marker.end_offsets[partition] >= end for partition, end in published_ends.items())
    assert host.await_termination(0)
    with hosted(site):
        site.drain()


def test_an_older_host_ends_when_another_one_takes_over(site: Site) -> None:
    with hosted(site) as older:
        site.drain()
        with hosted(site):
            with pytest.raises(FencedProcessorError):
                older.await_termination(DEADLINE_S)
            site.drain()


def test_it_serves_until_a_stop_is_requested(site: Site) -> None:
    stop = threading.Event()
    serving = threading.Thread(target=ThreadHost(site.settings).serve, args=[stop])
    serving.start()
    try:
        topics = {"__share_requests", "__share_responses"}
        site.until(lambda: topics <= {topic.name for topic in site.log.topics()}, "the host has made its topics")
        site.drain()
        assert serving.is_alive()
    finally:
        stop.set()
        serving.join(DEADLINE_S)
    assert not serving.is_alive()


def test_once_ends_when_nothing_is_left_to_do(site: Site) -> None:
    ThreadHost(site.settings).serve(idle_limit_s=0.5)
    assert len(site.rows(None, RecordType.FENCE)) == 1


def test_it_leaves_no_thread_behind(site: Site) -> None:
    before = set(threading.enumerate())
    with hosted(site):
        site.drain()
    eventually(
        lambda: not any(thread.name.startswith("sharegroup-") for thread in set(threading.enumerate()) - before),
        "all threads of the processor end",
    )


def test_it_imports_no_spark() -> None:
    program = "import sys, sharegroup.processor.thread_host; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=DEADLINE_S).returncode == 0
