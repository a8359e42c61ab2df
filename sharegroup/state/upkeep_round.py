"""One round of upkeep: what is due of merging files, a table snapshot, a checkpoint and clean-up.

1. Merge small files (every round).
2. Take a table snapshot, when as many rows follow the last one as it has: its price is a constant for each row.
3. Write a checkpoint and clean the log up (every round).
4. Vacuum (every ten minutes).

Commit files are kept for `LOG_RETENTION_MS`, twice the time that a commit may take. So their number follows the rate of
commits: 3,000 are kept at 50 commits/s. Nothing but an opening of the table takes longer with more of them: an append
does not list the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sharegroup.state.commit_log import log_folder, versions
from sharegroup.state.delta_table import translated
from sharegroup.state.maintenance import UPKEEP_FILE_BYTES, clean_log, compact, take_snapshot, vacuum
from sharegroup.state.reader import StateTableReader

COMMITS_PER_ROUND = 100
"""Opening the table takes about 0.1 ms more for each commit since the last round."""

MIN_ROWS_PER_SNAPSHOT = 1_000
"""Rows that a reader folds in a few milliseconds: a small table needs no snapshot for fewer."""

_VACUUM_INTERVAL_S = 600.0
_NO_AGE_LIMIT_MS = 2**62


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What a round of upkeep did, or why it failed.

    Attributes:
        merged_files: files that were merged.
        snapshot_rows: rows of the table snapshot; 0 when none was due.
        deleted_files: data files that no version needs any more.
        duration_ms: how long it took.
        error: why it failed; "" when it did not.
    """

    merged_files: int = 0
    snapshot_rows: int = 0
    deleted_files: int = 0
    duration_ms: int = 0
    error: str = ""


class Upkeep:
    """Looks at a table, and does what is due.

    Args:
        path: the table's folder.
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
        self._snapshot_interval_s = snapshot_interval_ms / 1_000
        self._commits_per_round = commits_per_round
        self._monotonic_s = monotonic_s
        # Whoever was here before may have been killed before its round.
        self._version = -1
        self._changed_ns = 0
        self._snapshot_at_s = monotonic_s() + self._snapshot_interval_s
        self._vacuum_at_s = monotonic_s()

    def run_if_due(self) -> UpkeepReport | None:
        """Do what is due; None when nothing is. An idle table costs one look at its log folder's time.

        Raises:
            StateTableError: the table cannot be read or written.
        """
        is_cold = self._monotonic_s() >= self._snapshot_at_s
        with translated(self._path, "read"):
            changed_ns = log_folder(self._path).stat().st_mtime_ns
            if changed_ns == self._changed_ns and not is_cold:
                return None
            newest = max(versions(self._path), default=-1)
        self._changed_ns = changed_ns
        commits = newest - self._version
        if commits < self._commits_per_round and not (is_cold and commits):
            if is_cold:
                self._snapshot_at_s = self._monotonic_s() + self._snapshot_interval_s
            return None
        return self._run(is_cold)

    def _run(self, is_cold: bool) -> UpkeepReport:
        started_s = self._monotonic_s()
        merged_files = compact(self._path, UPKEEP_FILE_BYTES, patience_s=0)
        snapshot_rows = 0
        if is_cold or self._is_snapshot_due():
            snapshot_rows = take_snapshot(self._path, _NO_AGE_LIMIT_MS)
            self._snapshot_at_s = self._monotonic_s() + self._snapshot_interval_s
        clean_log(self._path)
        deleted_files = 0
        if self._monotonic_s() >= self._vacuum_at_s:
            deleted_files = vacuum(self._path, is_full=False).files
            self._vacuum_at_s = self._monotonic_s() + _VACUUM_INTERVAL_S
        with translated(self._path, "read"):
            self._version = max(versions(self._path), default=-1)
        duration_ms = round((self._monotonic_s() - started_s) * 1_000)
        return UpkeepReport(merged_files, snapshot_rows, deleted_files, duration_ms)

    def _is_snapshot_due(self) -> bool:
        snapshot_rows, following_rows = StateTableReader(self._path).row_counts()
        return following_rows >= max(snapshot_rows, MIN_ROWS_PER_SNAPSHOT)
