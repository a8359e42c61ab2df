"""Merging of small data files, so that each row is rewritten a few times in all, not in each round.

Files are in tiers by their rows, each eight times the tier below. A tier is merged when eight files are in it. The
result of lower tiers is one of them, so a row moves up by at least one tier each time that it is written; the number
of files grows with the logarithm of the rows, up to the largest file that is made here.

delta-rs merges by bytes, and a commit's file is nearly all footer: it would rewrite the last result each time. It
also syncs nothing, and opens the table each time.

The Delta library does not detect that another process has merged the same files meanwhile (delta-rs 1.6): both commits
succeed, and each row is there twice. So all rewrites are commits of this package, which give up where another one has
removed one of their files. Rewriters also hold the lock of the table where there is one (`reorganizing`), so that
nothing is merged in vain, and no vacuum takes the files of a long rewrite. Appends need no lock.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby

from sharegroup.state.commit_log import (
    COMMIT_TRANSACTION,
    NO_COMMIT,
    SNAPSHOT_TRANSACTION,
    LogCommit,
    commits_after,
    has_commit,
    try_commit_merge,
)
from sharegroup.state.data_file import DataFile
from sharegroup.state.data_files import LargeDataFile, NewFile, concatenated, in_batches, read_data_file
from sharegroup.state.delta_table import last_snapshot_ms, open_table, translated
from sharegroup.state.listed_files import listed_files
from sharegroup.state.open_storage import storage_of

MOST_ROWS = 65_536
"""Maximum rows of a merged file; a file with at least half as many is not merged again."""

_MOST_BYTES = 64 * 1024 * 1024
"""Maximum bytes merged into one file: a marker may have megabytes of responses, and all are in memory together."""

_FILES_PER_TIER = 8

_LOCK_FILE = "_reorganization.lock"
"""Prefix of names that Delta ignores."""

PATIENCE_S = 30.0
"""Time that maintenance waits for the processor's upkeep, which takes about a second."""

_logger = logging.getLogger(__name__)


def reorganizing(path: str, patience_s: float = 0.0) -> AbstractContextManager[bool]:
    """Hold the lock of those who rewrite files; see `TableStorage.locked`.

    Where no lock keeps others out, each rewrite is a commit of this package, which finds out by itself that others have
    rewritten files meanwhile.

    Args:
        patience_s: how long to wait for the lock.
    """
    return storage_of(path).locked(_LOCK_FILE, patience_s)


class LiveFiles:
    """The live data files of a table, and its row counts, followed commit by commit without opening the table again.

    Attributes:
        version: the newest version that was read; -1 before the first.
        snapshot_rows: rows of the last table snapshot; 0 without one.
        following_rows: rows that processors have committed since, markers included.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: dict[str, DataFile] = {}
        self.version = -1
        self.snapshot_rows = 0
        self.following_rows = 0

    def __iter__(self) -> Iterator[DataFile]:
        return iter(self._files.values())

    def have(self, files: Iterable[DataFile]) -> bool:
        """Return True if all these files are live."""
        return all(file.path in self._files for file in files)

    def follow(self) -> None:
        """Read the commits since the last call.

        Raises:
            StateTableError: the table cannot be read.
        """
        with translated(self._path, "read"):
            commits = list(commits_after(self._path, self.version)) if self.version >= 0 else []
            # A commit that a clean-up of the log has deleted may not have been read.
            is_complete = self.version >= 0 and has_commit(self._path, self.version)
        if not is_complete:
            self._read_table()
            return
        for commit in commits:
            self._advance(commit)

    def _read_table(self) -> None:
        table = open_table(self._path)
        with translated(self._path, "read"):
            files = listed_files(table, ["commit_id", "time_ms"])
        self.version = table.version()
        self._files = {file.path: file for file in files}
        snapshot_ms = last_snapshot_ms(table)
        snapshot = next((file for file in files if _has_only(file, snapshot_ms)), None)
        # A small snapshot merged with other rows is no longer recognised: the next one is taken a little earlier.
        last_commit_id = snapshot.lowest_commit_id if snapshot is not None else NO_COMMIT
        self.snapshot_rows = _rows_of(snapshot) if snapshot is not None else 0
        self.following_rows = sum(_rows_of(file) for file in self if file.lowest_commit_id > last_commit_id)

    def _advance(self, commit: LogCommit) -> None:
        for path in commit.removed:
            self._files.pop(path, None)
        self._files.update((file.path, file) for file in commit.added)
        row_count = sum(map(_rows_of, commit.added))
        if SNAPSHOT_TRANSACTION in commit.transactions:
            self.snapshot_rows, self.following_rows = row_count, 0
        elif COMMIT_TRANSACTION in commit.transactions:
            self.following_rows += row_count
        self.version = commit.version


def _has_only(file: DataFile, snapshot_ms: int | None) -> bool:
    """Return True if a file has the rows of a snapshot and no others."""
    return snapshot_ms is not None and file.bounds.get("min.time_ms") == file.bounds.get("max.time_ms") == snapshot_ms


def _rows_of(file: DataFile) -> int:
    """Return the number of rows of a file; 0 when its statistics do not have it."""
    return file.row_count or 0


def merge_small_files(path: str, live: LiveFiles) -> int:
    """Merge the files of full tiers, date by date.

    Args:
        live: its live files; they are followed up to the newest version.

    Returns:
        The number of merged files; 0 when another process rewrites files.

    Raises:
        StateTableError: the table cannot be read or written.
    """
    with translated(path, "compacted"), reorganizing(path) as is_mine:
        # The previous holder of the lock may have merged the same files.
        live.follow()
        if not is_mine:
            _logger.info("State table %s is being reorganized by another process.", path)
            return 0
        batches = [batch for of_date in _by_date(live) for batch in _bounded(_due(of_date)) if len(batch) > 1]
        merged = [file for batch in batches for file in batch]
        if not merged or not try_commit_merge(path, live.version, merged, [_merged(path, batch) for batch in batches]):
            return 0
    return len(merged)


def merge_up_to(path: str, target_bytes: int) -> int:
    """Merge all files below a size, date by date and commit by commit, without a lock.

    Args:
        target_bytes: the size to merge files up to.

    Returns:
        The number of merged files; those that another process has merged or pruned meanwhile are not in it.

    Raises:
        StateTableError: the table cannot be read or written.
    """
    live = LiveFiles(path)
    live.follow()
    merged_files = 0
    for of_date in _by_date(live):
        small = [file for file in of_date if file.size_bytes < target_bytes]
        for batch in _bounded(small, target_bytes, most_rows=None):
            # A clean-up of the log passes the version of the begin while the files before are merged.
            live.follow()
            if len(batch) < 2 or not live.have(batch):
                continue
            with translated(path, "compacted"):
                if try_commit_merge(path, live.version, batch, [_merged(path, batch)]):
                    merged_files += len(batch)
    return merged_files


def _by_date(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    ordered = sorted(files, key=lambda file: (file.date, file.lowest_commit_id))
    for _, of_date in groupby(ordered, lambda file: file.date):
        yield list(of_date)


def _due(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files of one date to merge, in their order."""
    tiers: defaultdict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        if _rows_of(file) < MOST_ROWS // 2 and file.size_bytes < _MOST_BYTES // 2:
            tiers[_tier(_rows_of(file))].append(file)
    due: set[str] = set()
    row_count = 0
    for tier in sorted(tiers):
        counts_as_one = bool(due) and _tier(row_count) >= tier
        if len(tiers[tier]) + counts_as_one >= _FILES_PER_TIER:
            due.update(file.path for file in tiers[tier])
            row_count += sum(map(_rows_of, tiers[tier]))
    return [file for file in files if file.path in due]


def _tier(row_count: int) -> int:
    return max(row_count - 1, 0).bit_length() // 3


def _bounded(
    files: Sequence[DataFile], most_bytes: int = _MOST_BYTES, most_rows: int | None = MOST_ROWS
) -> Iterator[list[DataFile]]:
    """Yield the files in batches, one for each merged file."""
    batch: list[DataFile] = []
    row_count = size_bytes = 0
    for file in files:
        row_count, size_bytes = row_count + _rows_of(file), size_bytes + file.size_bytes
        if batch and ((most_rows is not None and row_count > most_rows) or size_bytes > most_bytes):
            yield batch
            batch, row_count, size_bytes = [], _rows_of(file), file.size_bytes
        batch.append(file)
    if batch:
        yield batch


def _merged(path: str, files: Sequence[DataFile]) -> NewFile:
    with LargeDataFile(path, files[0].date) as merged:
        for batch in in_batches(read_data_file(path, file.path) for file in files):
            merged.write(concatenated(batch).combine_chunks())
        return merged.close()
