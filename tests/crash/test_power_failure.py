"""A power failure: everything ends at once, and files that were not synced yet are cut short.

The processor ends between its commit and its responses: the commit may be on the disk as a whole, in part, or not at
all; its data file is on the disk before the commit file is written. The last append to the log was not confirmed to
any writer: the end of the write-ahead log may be torn.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sharegroup.processor.commit import CommitPoint
from tests.crash.deployment import Deployment
from tests.crash.processor_process import arm
from tests.crash.workload import Workload, workload
from tests.support.recoveries import Recoveries

pytestmark = [pytest.mark.slow, pytest.mark.long("many kills; one of each kind stays")]


@dataclass(frozen=True)
class Remains:
    """How much of the newest files is left.

    Attributes:
        commit: part of the commit file; None: it was not renamed into place.
        data: part of the commit's data file; None: it is gone.
        log: part of the write-ahead log's last transaction.
    """

    commit: float | None
    data: float | None
    log: float


CASES = {
    "all of the commit, nothing of the append": Remains(1.0, 1.0, 0.0),
    "an empty commit file, a torn append": Remains(0.0, 1.0, 0.3),
    "a torn commit file, a torn append": Remains(0.5, 1.0, 0.6),
    "a torn data file, a torn append": Remains(None, 0.5, 0.99),
    "an empty data file, the whole append": Remains(None, 0.0, 1.0),
}


@dataclass(frozen=True)
class Machine:
    """All files of a deployment at the moment of the failure.

    Attributes:
        folder: where they are.
        load: the members that were at work.
        log_bytes: size of the write-ahead log before the last append.
    """

    folder: Path
    load: Workload
    log_bytes: int


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, recoveries: Recoveries) -> Iterator[Machine]:
    """A machine that lost its power under load."""
    deployment = Deployment(tmp_path_factory.mktemp("machine"), recoveries)
    deployment.start()
    try:
        with workload(deployment, share_record_lock_duration_ms="5000") as load:
            deployment.await_commits(20)
            load.stop_producing()
            arm(deployment.folder, CommitPoint.COMMITTED)
            load.start_producing()
            deployment.processor.await_end()
            load.close()
            log = deployment.site.log_path
            log_bytes = _write_ahead_log(log).stat().st_size
            deployment.site.produce(load.topic, 0, 5)
            yield Machine(deployment.folder, load, log_bytes)
    finally:
        deployment.close()


@pytest.mark.parametrize("remains", CASES.values(), ids=CASES.keys())
def test_everything_that_was_published_is_there(
    machine: Machine, tmp_path: Path, recoveries: Recoveries, remains: Remains
) -> None:
    folder = tmp_path / "machine"
    shutil.copytree(machine.folder, folder, ignore=shutil.ignore_patterns("*-shm"))
    cut_short(folder, machine.log_bytes, remains)
    deployment = Deployment(folder, recoveries)
    before = machine.load
    load = Workload(deployment, before.group_id, before.topic, before.empty_topic)
    try:
        with deployment.recovering("power failure"):
            deployment.spawn()
            load.join("worker-1")
            load.join("holder", "holder")
        load.start_producing()
        load.await_deliveries("worker-1", more=10)
        load.check()
    finally:
        load.close()
        deployment.close()


def cut_short(folder: Path, log_bytes: int, remains: Remains) -> None:
    commit = max((folder / "state" / "_delta_log").glob("0*.json"))
    (data,) = (json.loads(line)["add"]["path"] for line in commit.read_text().splitlines() if '"add"' in line)
    _truncate(folder / "state" / data, remains.data)
    _truncate(commit, remains.commit)
    log = _write_ahead_log(folder / "log.db")
    with log.open("r+b") as file:
        file.truncate(log_bytes + int((log.stat().st_size - log_bytes) * remains.log))


def _truncate(path: Path, part: float | None) -> None:
    if part is None:
        path.unlink()
        return
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * part))


def _write_ahead_log(log: Path) -> Path:
    return log.with_name(f"{log.name}-wal")
