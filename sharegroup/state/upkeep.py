"""Upkeep of the state table in a separate process: a busy Python thread would double the duration of an append.

    python -m sharegroup.state.upkeep PATH [--snapshot-interval-ms MS]

The process prints a line of JSON for each round. It ends when its standard input is closed, so with its parent.
A round is due after 500 commits; on a local disk, once no other follows for five seconds, after 20 of them or when a
snapshot is due, so that a recovery from a quiet table reads next to nothing besides its snapshot; and after five
minutes with any commit. A round, as far as it is due:

1. Merge small files (`file_merge`).
2. Write a checkpoint and clean up the log: it is opened once for both, and the next steps open it cheaply.
3. Take a table snapshot, when as many rows follow the last one as it has: its cost is a constant for each row.
4. Vacuum (every minute; a store, whose lists are paid for, every ten).

A table that stays quiet is cleaned up twice after its last round, since nobody else would do it: its log after a
minute (on a disk), its data files after six, when those of that time are kept no longer.

Commit files are kept for `LOG_RETENTION_MS`, twice the maximum duration of a commit. So their number follows the rate
of commits: 2,500 are kept at 50 commits/s. Only an opening of the table takes longer with more of them: an append does
not list the log.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from sharegroup.config.table_location import TableLocation, location_of
from sharegroup.errors import ShareGroupError
from sharegroup.state.commit_log import LOG_FOLDER, NO_VERSION, versions
from sharegroup.state.data_files import FILE_RETENTION_MS
from sharegroup.state.delta_table import LOG_RETENTION_MS, translated
from sharegroup.state.file_merge import LiveFiles, merge_small_files
from sharegroup.state.maintenance import clean_log, take_snapshot, vacuum
from sharegroup.state.open_storage import storage_of

SNAPSHOT_INTERVAL_MS = 300_000

COMMITS_PER_ROUND = 500
"""Commits per round; opening the table takes about 0.2 s more for as many commits since the last round."""

COMMITS_PER_QUIET_ROUND = 20
"""Commits per round of a table that has become quiet; a recovery reads as many in a fiftieth of a second."""

MIN_ROWS_PER_SNAPSHOT = 5_000
"""Rows that a recovery folds in a quarter of a second: under load a snapshot sooner would cost more than it saves."""

MIN_ROWS_PER_QUIET_SNAPSHOT = 250
"""The same for a table that has become quiet: its upkeep takes nobody's time."""

_LAST_CLEAN_UP_S = FILE_RETENTION_MS / 1_000 + 60

_NO_AGE_LIMIT_MS = 2**62

_STORAGE_VARIABLE = "_SHAREGROUP_UPKEEP_STORAGE"
_PAUSE_AFTER_FAILURE_S = 10.0
_STOP_PATIENCE_S = 5.0
_NICENESS = 19
_PAUSE_PER_CPU_S = 10
_LONGEST_PAUSE_S = 5.0
_FEW_THREADS = {"TOKIO_WORKER_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Environment of the process: otherwise delta-rs and Arrow would use all cores of the processor."""

logger = logging.getLogger("sharegroup.state")


class _Pace(NamedTuple):
    """Times of the upkeep, in seconds.

    Attributes:
        poll_interval_s: time between two polls of the log.
        vacuum_interval_s: time between two vacuums.
        quiet_s: time without a commit after which a table is quiet.
        last_log_clean_up_s: time after a round after which the log is cleaned up once more.
    """

    poll_interval_s: float
    vacuum_interval_s: float
    quiet_s: float
    last_log_clean_up_s: float


# Opening a table lists its log, which takes 8 ms for every 1,000 files on a disk.
_FREE_REQUESTS = _Pace(1.0, 60.0, 5.0, LOG_RETENTION_MS / 1_000 + 20)
_PAID_REQUESTS = _Pace(15.0, 600.0, math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """The result of a round of upkeep, or its error.

    Attributes:
        snapshot_rows: rows of the table snapshot; 0 when none was due.
        deleted_files: data files that no version needs any more.
        error: reason of its failure; "" when it succeeded.
    """

    merged_files: int = 0
    snapshot_rows: int = 0
    deleted_files: int = 0
    duration_ms: int = 0
    error: str = ""


class Upkeep:
    """Runs the upkeep of a table that is due.

    Args:
        snapshot_interval_ms: age at which a snapshot is due if anything was committed since.
        commits_per_round: commits after which a round is due.
        monotonic_s: a clock for durations, in seconds.
    """

    def __init__(
        self,
        path: str,
        snapshot_interval_ms: int,
        commits_per_round: int = COMMITS_PER_ROUND,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._storage = storage_of(path)
        self._pace = _PAID_REQUESTS if self._storage.charges_requests else _FREE_REQUESTS
        self._snapshot_interval_s = snapshot_interval_ms / 1_000
        self._commits_per_round = commits_per_round
        self._monotonic_s = monotonic_s
        # An earlier process may have been killed before its round. Only the difference of the two counts.
        self._version = self._newest = NO_VERSION
        self._live = LiveFiles(path)
        self._settled_version = NO_VERSION
        self._change_mark: int | None = None
        self._quiet_at_s = math.inf
        self._snapshot_at_s = monotonic_s() + self._snapshot_interval_s
        self._vacuum_at_s = monotonic_s()
        self._last_log_clean_up_at_s = self._last_clean_up_at_s = math.inf

    @property
    def poll_interval_s(self) -> float:
        """Return the time between two polls of the table."""
        return self._pace.poll_interval_s

    def run_if_due(self) -> UpkeepReport | None:
        """Run the upkeep that is due; return None when nothing is.

        A poll of an idle table costs one stat call on its log folder, or one list of the newest commits of a store.

        Raises:
            StateTableError: the table cannot be read or written.
        """
        self._poll()
        now_s, commits = self._monotonic_s(), self._newest - self._version
        is_cold, is_quiet = now_s >= self._snapshot_at_s, now_s >= self._quiet_at_s
        enough = min(self._commits_per_round, COMMITS_PER_QUIET_ROUND) if is_quiet else self._commits_per_round
        # The last round may have been one of a busy table, with too few rows for a snapshot then.
        is_unsettled = is_quiet and self._newest > self._settled_version
        if (
            commits >= enough
            or (is_cold and commits)
            or (is_unsettled and self._is_snapshot_due(MIN_ROWS_PER_QUIET_SNAPSHOT))
        ):
            report = self._run(is_cold, MIN_ROWS_PER_QUIET_SNAPSHOT if is_quiet else MIN_ROWS_PER_SNAPSHOT)
            if is_quiet:
                self._settled_version = self._version
            return report
        if is_cold:
            self._snapshot_at_s = now_s + self._snapshot_interval_s
        if now_s >= self._last_clean_up_at_s:
            return self._clean_up()
        if now_s >= self._last_log_clean_up_at_s:
            self._last_log_clean_up_at_s = math.inf
            clean_log(self._path)
        return None

    def _poll(self) -> None:
        """Find the newest version; it is not looked up if the log folder shows that it has not changed."""
        with translated(self._path, "read"):
            change_mark = self._storage.change_mark(LOG_FOLDER)
            if change_mark is None or change_mark != self._change_mark:
                self._change_mark = change_mark
                self._newest = max(versions(self._path, after=self._version), default=self._version)
                self._quiet_at_s = self._monotonic_s() + self._pace.quiet_s

    def _run(self, is_cold: bool, min_rows_per_snapshot: int) -> UpkeepReport:
        started_s = self._monotonic_s()
        merged_files = merge_small_files(self._path, self._live)
        clean_log(self._path)
        snapshot_rows = 0
        if is_cold or self._is_snapshot_due(min_rows_per_snapshot):
            snapshot_rows = take_snapshot(self._path, _NO_AGE_LIMIT_MS)
            self._snapshot_at_s = self._monotonic_s() + self._snapshot_interval_s
        deleted_files = 0
        if self._monotonic_s() >= self._vacuum_at_s:
            deleted_files = vacuum(self._path).files
            self._vacuum_at_s = self._monotonic_s() + self._pace.vacuum_interval_s
        # What was committed during the round waits for the next one.
        self._version = self._live.version + bool(merged_files) + bool(snapshot_rows)
        if snapshot_rows:
            self._live.follow()
        ended_s = self._monotonic_s()
        self._last_clean_up_at_s = ended_s + _LAST_CLEAN_UP_S
        self._last_log_clean_up_at_s = ended_s + self._pace.last_log_clean_up_s
        return UpkeepReport(merged_files, snapshot_rows, deleted_files, self._since_ms(started_s))

    def _is_snapshot_due(self, min_rows: int) -> bool:
        return self._live.following_rows >= max(self._live.snapshot_rows, min_rows)

    def _clean_up(self) -> UpkeepReport:
        started_s = self._monotonic_s()
        self._last_log_clean_up_at_s = self._last_clean_up_at_s = math.inf
        clean_log(self._path)
        return UpkeepReport(deleted_files=vacuum(self._path).files, duration_ms=self._since_ms(started_s))

    def _since_ms(self, started_s: float) -> int:
        return round((self._monotonic_s() - started_s) * 1_000)


class UpkeepProcess:
    """Starts the upkeep process, restarts it when it ends, and passes its reports on. It never fails itself.

    Args:
        snapshot_interval_ms: age at which a table snapshot is due if anything was committed since.
        commits_per_round: commits after which a round is due.
        on_report: called with each report, from a separate thread.
    """

    def __init__(
        self,
        path: str,
        *,
        snapshot_interval_ms: int = SNAPSHOT_INTERVAL_MS,
        commits_per_round: int = COMMITS_PER_ROUND,
        on_report: Callable[[UpkeepReport], None] | None = None,
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "sharegroup.state.upkeep", path),
            *("--snapshot-interval-ms", str(snapshot_interval_ms), "--commits-per-round", str(commits_per_round)),
        ]
        # Other users can read the command line of a process, but not its environment.
        self._storage = {_STORAGE_VARIABLE: json.dumps(dict(location_of(path).options))}
        self._on_report = on_report or _log_report
        self._is_stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._supervisor: threading.Thread | None = None

    @property
    def process_id(self) -> int | None:
        """Return the id of the process; None while there is none."""
        with self._lock:
            return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the thread that starts the process, and watches it; a machine may have no process left for a while."""
        self._supervisor = threading.Thread(target=self._supervise, name="state-table-upkeep", daemon=True)
        self._supervisor.start()

    def stop(self) -> None:
        """End the process, also in the middle of a round: a killed round loses only its own work."""
        self._is_stopping.set()
        with self._lock:
            process = self._process
            if process is not None and process.stdin is not None:
                process.stdin.close()
        if process is not None:
            try:
                process.wait(_STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._supervisor is not None:
            self._supervisor.join()

    def _start_process(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._lock:
            if self._is_stopping.is_set():
                return
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **_FEW_THREADS, **self._storage, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def _supervise(self) -> None:
        while True:
            while not self._is_started():
                self._is_stopping.wait(_PAUSE_AFTER_FAILURE_S)
            if self._is_stopping.is_set():
                return
            process = self._process
            assert process is not None
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    self._on_report(_parsed(line))
            exit_code = process.wait()
            if self._is_stopping.is_set():
                return
            self._on_report(UpkeepReport(error=f"the upkeep's process ended with exit code {exit_code}"))
            if process.stdin is not None:
                process.stdin.close()
            self._is_stopping.wait(_PAUSE_AFTER_FAILURE_S)

    def _is_started(self) -> bool:
        """Start the process, if it is still wanted; return False if it cannot be started at the moment."""
        try:
            self._start_process()
        except OSError as error:
            self._on_report(UpkeepReport(error=f"the upkeep's process cannot be started: {error}"))
            return False
        return True


def main(argv: Sequence[str] | None = None) -> int:
    """Poll the table regularly, and run the upkeep that is due."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="PATH", help="folder or address of the state table")
    parser.add_argument("--snapshot-interval-ms", type=int, default=SNAPSHOT_INTERVAL_MS, metavar="MS")
    parser.add_argument("--commits-per-round", type=int, default=COMMITS_PER_ROUND, metavar="N")
    options = parser.parse_args(argv)
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    # The processor's appends have priority where there are few cores.
    os.nice(_NICENESS)
    location = TableLocation(options.path, json.loads(os.environ.get(_STORAGE_VARIABLE, "{}")))
    upkeep = Upkeep(location, options.snapshot_interval_ms, options.commits_per_round)
    while True:
        began_cpu_s = time.process_time()
        try:
            report = upkeep.run_if_due()
        except Exception as error:  # whatever it is, the next round may do better
            reason = str(error) if isinstance(error, ShareGroupError) else repr(error)
            report = UpkeepReport(error=reason)
        if report is not None:
            print(json.dumps(asdict(report)), flush=True)
        time.sleep(max(_pause_s(report, time.process_time() - began_cpu_s), upkeep.poll_interval_s))


def _pause_s(report: UpkeepReport | None, cpu_s: float) -> float:
    """Return the least pause after a round, so that upkeep uses at most a tenth of a core over time.

    The pause is bounded, since a load beyond that tenth would leave more and more to the next round.
    """
    if report is not None and report.error:
        return _PAUSE_AFTER_FAILURE_S
    return min(_PAUSE_PER_CPU_S * cpu_s, _LONGEST_PAUSE_S)


def _end_with_standard_input() -> None:
    while os.read(sys.stdin.fileno(), 1_024):
        pass
    os._exit(0)


def _parsed(line: str) -> UpkeepReport:
    try:
        return UpkeepReport(**json.loads(line))
    except (ValueError, TypeError):
        return UpkeepReport(error=f"unexpected output: {line.strip()}")


def _log_report(report: UpkeepReport) -> None:
    if report.error:
        logger.warning("Upkeep of the state table failed: %s", report.error)
    else:
        logger.info(
            "Upkeep merged %d files, wrote a snapshot of %d rows and deleted %d files in %d ms.",
            report.merged_files,
            report.snapshot_rows,
            report.deleted_files,
            report.duration_ms,
        )


if __name__ == "__main__":
    sys.exit(main())
