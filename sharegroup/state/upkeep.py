"""Upkeep of the state table in a process of its own: a Python-busy thread would double the time of an append.

    python -m sharegroup.state.upkeep PATH [--snapshot-interval-ms MS]

The process prints a line of JSON for each round. It ends when its standard input is closed, so with its parent.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from sharegroup.errors import ShareGroupError
from sharegroup.state.upkeep_round import COMMITS_PER_ROUND, Upkeep, UpkeepReport

SNAPSHOT_INTERVAL_MS = 300_000

_LOOK_INTERVAL_S = 1.0
_PAUSE_AFTER_FAILURE_S = 10.0
_STOP_PATIENCE_S = 5.0
_NICENESS = 5

logger = logging.getLogger("sharegroup.state")


class UpkeepProcess:
    """Starts the upkeep's process, starts it again when it ends, and passes its reports on. It never fails itself.

    Args:
        path: the table's folder.
        snapshot_interval_ms: age at which a table snapshot is due if anything was committed since.
        commits_per_round: commits after which a round is due.
        on_report: is called with each report, from a thread of its own.
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
        """Start the process, and the thread that watches it."""
        self._start_process()
        self._supervisor = threading.Thread(target=self._supervise, name="state-table-upkeep", daemon=True)
        self._supervisor.start()

    def stop(self) -> None:
        """End the process, in the middle of a round, too: a killed round costs nothing but its own work."""
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
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def _supervise(self) -> None:
        while not self._is_stopping.is_set():
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
            if self._is_stopping.wait(_PAUSE_AFTER_FAILURE_S):
                return
            try:
                self._start_process()
            except OSError as error:
                self._on_report(UpkeepReport(error=f"the upkeep's process cannot be started: {error}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Look at the table every second, and do what is due."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", metavar="PATH", help="folder of the state table")
    parser.add_argument("--snapshot-interval-ms", type=int, default=SNAPSHOT_INTERVAL_MS, metavar="MS")
    parser.add_argument("--commits-per-round", type=int, default=COMMITS_PER_ROUND, metavar="N")
    options = parser.parse_args(argv)
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    # The processor's appends come first where there are few cores.
    os.nice(_NICENESS)
    upkeep = Upkeep(options.path, options.snapshot_interval_ms, options.commits_per_round)
    while True:
        try:
            report = upkeep.run_if_due()
        except Exception as error:  # whatever it is, the next round may do better
            reason = str(error) if isinstance(error, ShareGroupError) else repr(error)
            report = UpkeepReport(error=reason)
        if report is not None:
            print(json.dumps(asdict(report)), flush=True)
        time.sleep(_PAUSE_AFTER_FAILURE_S if report is not None and report.error else _LOOK_INTERVAL_S)


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
