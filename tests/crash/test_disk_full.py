"""Disks that are full for a while: a typed error names the path and the remedy, and with space again all goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.deployment import Deployment
from tests.crash.small_disk import SmallDisk, small_disk
from tests.crash.workload import Workload, workload
from tests.support.recoveries import Recoveries

pytestmark = [pytest.mark.slow, pytest.mark.long("commits are tried again for 20 s while the disk is full")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with space: only what is on a disk of its own can run out of it."""
    return tmp_path_factory.mktemp("small")


@pytest.fixture(scope="module")
def log_disk(folder: Path) -> Iterator[SmallDisk]:
    """The disk of the embedded log."""
    with small_disk(folder / "log", size_mb=32) as disk:
        (folder / "log.db").symlink_to(disk.folder / "log.db")
        yield disk


@pytest.fixture(scope="module")
def state_disk(folder: Path) -> Iterator[SmallDisk]:
    """The disk of the state table."""
    with small_disk(folder / "state", size_mb=32) as disk:
        yield disk


@pytest.fixture(scope="module")
def deployment(
    folder: Path, log_disk: SmallDisk, state_disk: SmallDisk, recoveries: Recoveries
) -> Iterator[Deployment]:
    """A processor whose log and state table are on small disks."""
    deployment = Deployment(folder, recoveries)
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()


def test_the_disk_of_a_members_sink_is_full(deployment: Deployment, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "sink", size_mb=1) as disk,
        workload(deployment, workers=(), share_record_lock_duration_ms="5000") as load,
    ):
        disk.fill()
        load.join("writer", sink=str(disk.folder / "records"))
        load.await_error("writer", "No space left on device")
        disk.empty()
        load.await_deliveries("writer", more=50)
        load.check()


def test_the_disk_of_the_local_log_is_full(deployment: Deployment, load: Workload, log_disk: SmallDisk) -> None:
    load.stop_producing()
    log_disk.fill()
    assert deployment.processor.await_end() == 1
    path = deployment.site.log_path.resolve()
    assert f"LogUnavailableError: The local log {path} cannot grow: the disk is full." in deployment.processor.output
    log_disk.empty()
    with deployment.recovering("local log's disk full, and a restart with space again"):
        deployment.spawn()
    load.check()


def test_the_disk_of_the_state_table_is_full_for_a_moment(
    deployment: Deployment, load: Workload, state_disk: SmallDisk
) -> None:
    state_disk.fill()
    deployment.until(lambda: "is tried again" in deployment.processor.output, "a commit is tried again")
    state_disk.empty()
    deployment.await_commits(2)
    load.check()


def test_the_disk_of_the_state_table_is_full(deployment: Deployment, load: Workload, state_disk: SmallDisk) -> None:
    # A commit is tried again for half a minute.
    state_disk.fill()
    assert deployment.processor.await_end() == 1
    output = deployment.processor.output
    assert f"StateTableError: State table {deployment.site.state_path} cannot be written" in output
    assert "Free space on the disk, then start the processor again." in output
    state_disk.empty()
    with deployment.recovering("state table's disk full, and a restart with space again"):
        deployment.spawn()
    load.check()
