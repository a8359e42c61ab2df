"""Maintenance of the state table: merge small files, take snapshots, and delete files that no version needs.

Rows only move from file to file, so upkeep may run beside a processor; their order comes from their columns.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from sharegroup.state.commit_log import LOG_FOLDER, commit_name, try_commit_snapshot, version_of
from sharegroup.state.delta_table import LOG_RETENTION_MS, open_table, translated
from sharegroup.state.file_merge import PATIENCE_S, merge_up_to, reorganizing
from sharegroup.state.listed_files import listed_files
from sharegroup.state.open_storage import storage_of
from sharegroup.state.reader import StateTableReader
from sharegroup.state.schema import PARTITION_COLUMN
from sharegroup.state.table_snapshot import table_snapshot, write_table_snapshot
from sharegroup.state.table_storage import StoredFile, TableStorage

FILE_BYTES = 64 * 1024 * 1024
"""Size up to which maintenance merges files; the processor's upkeep makes smaller ones."""

_MOST_AHEAD_MS = 60_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileCount:
    """Number and size of some files.

    Attributes:
        size_bytes: their total size.
    """

    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableSize:
    """Disk usage of a state table.

    Attributes:
        data: all data files, those of earlier versions included.
        log: files of the commit log.
    """

    live: FileCount
    data: FileCount
    log: FileCount


def table_size(path: str) -> TableSize:
    """Return the size of the table.

    Raises:
        StateTableError: there is no table, or it cannot be read.
    """
    table = open_table(path)
    with translated(path, "read"):
        files = list(storage_of(path).files(""))
        live: list[int] = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
        return TableSize(
            live=FileCount(len(live), sum(live)),
            data=_counted(file for file in files if file.name.startswith(f"{PARTITION_COLUMN}=")),
            log=_counted(file for file in files if file.name.startswith(f"{LOG_FOLDER}/")),
        )


def take_snapshot(path: str, before_ms: int, *, is_dry_run: bool = False) -> int:
    """Take a table snapshot if it is due.

    Args:
        before_ms: it is due when the last one is older than this, and something was committed since; epoch ms.
        is_dry_run: only return the number of rows that would be written.

    Returns:
        The number of its rows; 0 when none was taken.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    reader = StateTableReader(path, stays_open=True)
    # A commit after this version, also one that the recovery reads, is examined by the snapshot's commit.
    version, leader_epoch = reader.version(), reader.leader_epoch()
    last_ms = reader.last_snapshot_ms()
    if last_ms is not None and last_ms >= before_ms:
        return 0
    recovery = reader.recovery()
    marker = recovery.last_marker
    if marker is None or marker == recovery.snapshot_marker:
        return 0
    # Snapshots are identified by their time, so it must rise even when the clock does not.
    time_ms = max(marker.time_ms, 0 if last_ms is None else last_ms + 1)
    if is_dry_run:
        return sum(piece.num_rows for piece in table_snapshot(recovery.rows, marker, time_ms, leader_epoch))
    with translated(path, "written"):
        file, row_count = write_table_snapshot(path, recovery, marker, time_ms, leader_epoch)
        if not try_commit_snapshot(path, version, file, leader_epoch, time_ms):
            _logger.info("The snapshot of state table %s is taken another time.", path)
            return 0
    return row_count


def compact(
    path: str, target_bytes: int = FILE_BYTES, *, patience_s: float = PATIENCE_S, is_dry_run: bool = False
) -> int:
    """Merge the small files of each date.

    Args:
        target_bytes: the size to merge files up to.
        patience_s: how long to wait for another process that merges or prunes.
        is_dry_run: only return the number of files that would be merged.

    Returns:
        The number of merged files; 0 when another process rewrote files all the time.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    if is_dry_run:
        return _mergeable(path, target_bytes)
    open_table(path)
    with translated(path, "compacted"), reorganizing(path, patience_s) as is_mine:
        if not is_mine:
            _logger.info("State table %s is being reorganized by another process.", path)
            return 0
        return merge_up_to(path, target_bytes)


def vacuum(path: str, *, is_dry_run: bool = False) -> FileCount:
    """Delete the files that no version of the last five minutes needs, by the list of the folder.

    A checkpoint does not name files that were removed before that time, so the log alone forgets most of them. Files
    that no commit names, which a process leaves that is killed before its commit, are deleted, too. So are those of a
    rewrite that takes longer than the five minutes, which is then given up: on a local disk nothing is deleted during
    one.

    Args:
        is_dry_run: only return the files that would be deleted.

    Returns:
        The deleted files; none while another process merges or prunes, and none on a store when this machine's clock is
        a minute or more ahead of the store's: files of the last minutes would look as old as those.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    open_table(path)
    with translated(path, "vacuumed"), reorganizing(path) as is_mine:
        storage = storage_of(path)
        if not is_mine or _is_clock_ahead(path, storage):
            return FileCount()
        unneeded = {unquote(name) for name in open_table(path).vacuum(dry_run=True, full=True)}
        files = [file for file in storage.files("") if file.name in unneeded] if unneeded else []
        if files and not is_dry_run:
            # The library would commit before and after, and give up where it meets a commit of the processor half-way.
            storage.delete_all(file.name for file in files)
    return _counted(files)


def _is_clock_ahead(path: str, storage: TableStorage) -> bool:
    # The library compares the times of the store with this machine's clock.
    ahead_ms = time.time_ns() // 1_000_000 - storage.now_ms()
    if ahead_ms < _MOST_AHEAD_MS:
        return False
    _logger.warning(
        "No files of state table %s are deleted: the clock of this machine is %d s ahead of the store's. Set it right.",
        path,
        ahead_ms // 1_000,
    )
    return True


def clean_log(path: str) -> None:
    """Write a checkpoint of the newest version, then delete expired commit files and checkpoints before the last one.

    A checkpoint that is there is not written again: until the new one was on the disk, a power failure could lose both.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    table = open_table(path)
    with translated(path, "written"):
        storage, version = storage_of(path), table.version()
        if not _checkpoint_files(storage, version):
            table.create_checkpoint()
            storage.sync(_checkpoint_names(storage, version))
        _delete_expired(storage)


def _checkpoint_files(storage: TableStorage, version: int) -> list[str]:
    before = commit_name(version - 1) if version > 0 else ""
    return [
        name for name in storage.names(LOG_FOLDER, before) if name.endswith(".parquet") and version_of(name) == version
    ]


def _checkpoint_names(storage: TableStorage, version: int) -> Iterator[str]:
    """Yield what is to be synced after a checkpoint; nothing is listed where each write is durable by itself."""
    yield from _checkpoint_files(storage, version)
    yield from (f"{LOG_FOLDER}/_last_checkpoint", LOG_FOLDER)


def _delete_expired(storage: TableStorage) -> None:
    """Delete, oldest first, the files that no reader needs which listed the log within the retention.

    Such a reader begins with the newest checkpoint of that time, or with a younger one. A writer takes a version whose
    name is free only while the version before has its file: so the order matters.
    """
    expired_ms = storage.now_ms() - LOG_RETENTION_MS
    files = {file.name: file for file in storage.files(LOG_FOLDER)}
    of_versions = {name: version for name in files if (version := version_of(name)) is not None}
    checkpoints = {name: version for name, version in of_versions.items() if name.endswith(".parquet")}
    oldest_needed = max(
        (version for name, version in checkpoints.items() if files[name].modified_ms <= expired_ms), default=0
    )
    commits = sorted(name for name in of_versions if name not in checkpoints)
    for name in (*commits, *checkpoints):
        if of_versions[name] < oldest_needed:
            storage.delete(name)


def _mergeable(path: str, target_bytes: int) -> int:
    table = open_table(path)
    with translated(path, "read"):
        files = listed_files(table, ())
    small = Counter(file.date for file in files if file.size_bytes < target_bytes)
    return sum(count for count in small.values() if count > 1)


def _counted(files: Iterable[StoredFile]) -> FileCount:
    sizes = [file.size_bytes for file in files]
    return FileCount(len(sizes), sum(sizes))
