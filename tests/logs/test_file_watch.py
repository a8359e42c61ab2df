"""Watching a file for writes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sharegroup.logs.file_watch import Watch, watch
from tests.support.eventually import WAIT_MS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    return path


@pytest.fixture
def watching(path: Path) -> Iterator[Watch]:
    watching = watch(path)
    if not watching.reports:
        pytest.skip("no inotify instance is left; raise fs.inotify.max_user_instances (sysctl)")
    yield watching
    watching.close()


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def test_a_write_is_reported_once(path: Path, watching: Watch) -> None:
    assert not watching.wait(0)
    append(path)
    assert watching.wait(WAIT_MS)
    assert not watching.wait(10)


def test_a_write_ends_the_wait(path: Path, watching: Watch) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watching.wait, WAIT_MS)
        append(path)
        assert waiting.result()


def test_a_wake_ends_the_wait_at_hand_or_the_next_one(watching: Watch) -> None:
    watching.wake()
    assert watching.wait(WAIT_MS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watching.wait, WAIT_MS)
        watching.wake()
        assert waiting.result()
    assert not watching.wait(0)


def test_a_file_that_was_created_again_is_watched_once_the_watch_is_renewed(path: Path, watching: Watch) -> None:
    path.unlink()
    path.write_bytes(b"second")
    watching.renew()
    while watching.wait(0):
        pass
    append(path)
    assert watching.wait(WAIT_MS)


def test_a_watch_that_is_closed_may_be_woken(watching: Watch) -> None:
    watching.close()
    watching.wake()


def test_without_a_file_to_report_on_only_a_wake_ends_the_wait(tmp_path: Path) -> None:
    watching = watch(tmp_path / "absent")
    assert watching.longest_pause_ms < 10
    watching.wake()
    assert watching.wait(WAIT_MS)
    assert not watching.wait(1)
