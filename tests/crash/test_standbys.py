"""Standbys as processes: killed, paused and leaving active processors, outages and long folds, audited after each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from sharegroup.processor.standby.standby import FIRST_PATIENCE_S
from sharegroup.state.delta_table import LOG_RETENTION_MS
from tests.crash.deployment import Deployment
from tests.crash.pausing import let_pass, pause
from tests.crash.standby_process import StandbyProcess
from tests.crash.workload import Workload, workload
from tests.support.eventually import eventually
from tests.support.recoveries import Recoveries
from tests.support.site import RESPONSES

pytestmark = pytest.mark.slow

T = TypeVar("T")
BEYOND_PATIENCE_S = 2.5 * FIRST_PATIENCE_S
LONGEST_COMMIT_S = LOG_RETENTION_MS / 2_000
"""Time for which a commit is tried again."""


class Standbys(Deployment):
    """A site with standbys, of which one is the active processor."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Recoveries())
        self.processes: list[StandbyProcess] = []

    @property
    def epoch(self) -> int:
        """The leader epoch of the processor that took over last."""
        return self.site.reader.leader_epoch()

    @property
    def active(self) -> StandbyProcess:
        """The process of that processor."""
        return self.until(self._active, "one of the processes is the active one")

    def add(self, fold_s: float = 0.0) -> StandbyProcess:
        """Start one more process, and wait until it works, or stands by."""
        process = StandbyProcess(self.folder, fold_s)
        self.processes.append(process)
        self.until(lambda: process.count("standing_by") + process.count("started"), "the process stands by or works")
        return process

    def await_takeover(self, epoch: int) -> None:
        """Wait until one of the processes works in an epoch."""
        self.until(lambda: self._active() is not None and self.epoch >= epoch, f"epoch {epoch} has begun")
        assert self.epoch == epoch

    def start(self) -> None:
        self.add()
        self.until(lambda: RESPONSES in {topic.name for topic in self.site.log.topics()}, "the topics are made")
        self.until(lambda: self.response_count() > 0, "the processor has announced itself")
        self.add()

    def until(self, probe: Callable[[], T | None], what: str, pause_s: float = 0.02) -> T:
        return eventually(probe, what, pause_s=max(pause_s, 0.1))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        self.site.close()

    def _active(self) -> StandbyProcess | None:
        started = f"event=started epoch={self.epoch} "
        return next((process for process in self.processes if started in process.output), None)


@pytest.fixture(scope="module")
def standbys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standbys]:
    """An active processor and a standby; each test leaves such a pair."""
    standbys = Standbys(tmp_path_factory.mktemp("standbys"))
    try:
        standbys.start()
        yield standbys
    finally:
        standbys.close()


@pytest.fixture(scope="module")
def load(standbys: Standbys) -> Iterator[Workload]:
    """A worker, and members that hold locks or wait."""
    config = {"share_record_lock_duration_ms": "5000", "share_session_timeout_ms": "20000"}
    with workload(standbys, workers=("worker-1",), **config) as load:
        yield load


def test_a_killed_processor_is_followed_by_one_of_two_standbys(standbys: Standbys, load: Workload) -> None:
    standbys.add()
    epoch, active = standbys.epoch, standbys.active
    active.kill()
    standbys.await_takeover(epoch + 1)
    load.check()
    assert standbys.epoch == epoch + 1
    running = [process for process in standbys.processes if process.is_running]
    standbys.until(lambda: [process.is_standing_by for process in running].count(True) == 1, "the other one stands by")


@pytest.mark.long("many takeovers; one of a kill stays")
def test_a_leaving_processor_is_followed_at_once(standbys: Standbys, load: Workload) -> None:
    epoch, active = standbys.epoch, standbys.active
    active.leave()
    assert active.await_end() == 0
    standbys.await_takeover(epoch + 1)
    standbys.add()
    load.check()
    assert standbys.epoch == epoch + 1


@pytest.mark.long("a pause beyond a standby's patience")
def test_a_paused_processor_stands_by_when_it_is_resumed(standbys: Standbys, load: Workload) -> None:
    epoch, active = standbys.epoch, standbys.active
    pause(standbys.site, active)
    standbys.await_takeover(epoch + 1)
    active.resume()
    standbys.until(lambda: active.count("standby_again"), "the resumed one is fenced")
    standbys.until(lambda: active.is_standing_by, "the resumed one stands by")
    let_pass(BEYOND_PATIENCE_S)
    load.check()
    assert standbys.epoch == epoch + 1


@pytest.mark.long("an outage beyond a standby's patience")
def test_nobody_takes_over_while_the_log_is_away(standbys: Standbys, load: Workload) -> None:
    epoch = standbys.epoch
    with closing(sqlite3.connect(standbys.site.log_path, isolation_level=None)) as log:
        log.execute("BEGIN EXCLUSIVE")
        let_pass(BEYOND_PATIENCE_S)
        log.execute("ROLLBACK")
    load.check()
    assert standbys.epoch == epoch


@pytest.mark.long("an outage beyond a standby's patience")
def test_nobody_takes_over_while_the_state_table_is_away(standbys: Standbys, load: Workload, outage_s: float) -> None:
    """A processor that gives a commit up ends: then one takeover follows, when the table is back."""
    epoch = standbys.epoch
    log_folder = standbys.site.state_path / "_delta_log"
    away = log_folder.rename(log_folder.with_name("_away"))
    let_pass(outage_s)
    away.rename(log_folder)
    load.check()
    gives_up = outage_s > LONGEST_COMMIT_S
    assert standbys.epoch - epoch == int(gives_up)
    if gives_up:
        standbys.add()


@pytest.mark.long("a fold beyond a standby's patience")
def test_a_fold_longer_than_the_patience_is_waited_for(standbys: Standbys, load: Workload, outage_s: float) -> None:
    for process in standbys.processes:
        if process.is_standing_by:
            process.kill()
    epoch, active = standbys.epoch, standbys.active
    for _ in range(2):
        standbys.add(fold_s=outage_s)
    active.kill()
    standbys.await_takeover(epoch + 1)
    load.check()
    assert standbys.epoch == epoch + 1
