"""Upkeep of the state table: few large files in place of many small ones, and nothing kept that no version needs.

Rows only move from file to file, so upkeep may run beside a processor; their order comes from their columns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError

from sharegroup.state.commit import try_commit_snapshot
from sharegroup.state.data_files import ROWS_PER_ROW_GROUP
from sharegroup.state.delta_table import WITHOUT_HOOKS, highest_leader_epoch, open_table, synced, translated
from sharegroup.state.durable_files import sync_file, sync_folder
from sharegroup.state.reader import StateTableReader
from sharegroup.state.reorganization import PATIENCE_S, reorganizing
from sharegroup.state.schema import PARTITION_COLUMN
from sharegroup.state.table_snapshot import table_snapshot_rows, write_table_snapshot

UPKEEP_FILE_BYTES = 2 * 1024 * 1024
"""Size that a processor's upkeep merges files up to: each merge takes the last small file again."""
FILE_BYTES = 64 * 1024 * 1024
"""Size that maintenance beside it merges files up to."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileCount:
    """Some files.

    Attributes:
        files: how many.
        size_bytes: their size together.
    """

    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableSize:
    """What a state table takes on the disk.

    Attributes:
        live: data files of the newest version.
        data: all data files, those of earlier versions included.
        log: files of the commit log.
    """

    live: FileCount
    data: FileCount
    log: FileCount


def table_size(path: str) -> TableSize:
    """The size of the table.

    Raises:
        StateTableError: there is no table, or it cannot be read.
    """
    table = open_table(path)
    with translated(path, "read"):
        live: list[int] = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
        return TableSize(
            live=FileCount(len(live), sum(live)),
            data=_counted(Path(path).glob("date=*/*.parquet")),
            log=_counted(Path(path, "_delta_log").iterdir()),
        )


def take_snapshot(path: str, before_ms: int, *, is_dry_run: bool = False) -> int:
    """Take a table snapshot if it is due.

    Args:
        path: the table's folder.
        before_ms: it is due when the last one is older than this, and something was committed since; epoch ms.
        is_dry_run: only tell what would be written.

    Returns:
        How many rows it has; 0 when none was taken.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    table = open_table(path)
    with translated(path, "read"):
        leader_epoch = highest_leader_epoch(table)
    reader = StateTableReader(path)
    last_ms = reader.last_snapshot_ms()
    if last_ms is not None and last_ms >= before_ms:
        return 0
    recovery = reader.recovery()
    marker = recovery.last_marker
    if marker is None or marker == recovery.snapshot_marker:
        return 0
    # The time tells snapshots apart, so it must rise even when the clock does not.
    time_ms = max(marker.time_ms, 0 if last_ms is None else last_ms + 1)
    if is_dry_run:
        return sum(1 for _ in table_snapshot_rows(recovery.rows, marker, time_ms))
    with translated(path, "written"):
        file, row_count = write_table_snapshot(path, recovery, marker, time_ms, leader_epoch)
        if not try_commit_snapshot(path, table.version(), file, leader_epoch, time_ms):
            _logger.info("Another process has taken the snapshot of state table %s.", path)
            return 0
    return row_count


def compact(
    path: str, target_bytes: int = FILE_BYTES, *, patience_s: float = PATIENCE_S, is_dry_run: bool = False
) -> int:
    """Merge the small files of each date.

    Args:
        path: the table's folder.
        target_bytes: the size to merge files up to.
        patience_s: how long to wait for another process that is at it.
        is_dry_run: only tell what would be merged.

    Returns:
        How many files were merged; 0 when another process was at it all the time.

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
        try:
            with synced(path):
                metrics = open_table(path).optimize.compact(
                    target_size=target_bytes,
                    writer_properties=WriterProperties(max_row_group_size=ROWS_PER_ROW_GROUP),
                    post_commithook_properties=WITHOUT_HOOKS,
                )
        except CommitFailedError as error:
            # The table's properties were changed meanwhile, as a processor does that takes over.
            _logger.info("The files of state table %s are merged another time: %s", path, error)
            return 0
    return int(metrics["numFilesRemoved"])


def vacuum(path: str, *, is_full: bool = True, is_dry_run: bool = False) -> FileCount:
    """Delete the files that no version of the last hour needs.

    Args:
        path: the table's folder.
        is_full: look for files that no commit names, too, as a process leaves them that is killed before its commit.
        is_dry_run: only tell what would be deleted.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    with translated(path, "vacuumed"):
        deleted = _counted(Path(path, file) for file in open_table(path).vacuum(dry_run=True, full=is_full))
        if deleted.files and not is_dry_run:
            with synced(path):
                open_table(path).vacuum(dry_run=False, full=is_full, post_commithook_properties=WITHOUT_HOOKS)
    return deleted


def clean_log(path: str) -> None:
    """Write a checkpoint, then delete the commit files before it whose retention is over.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    with translated(path, "written"):
        table = open_table(path)
        table.create_checkpoint()
        folder = Path(path, "_delta_log")
        for file in (*folder.glob(f"{table.version():020}.checkpoint*.parquet"), folder / "_last_checkpoint"):
            sync_file(file)
        sync_folder(folder)
        open_table(path).cleanup_metadata()


def _mergeable(path: str, target_bytes: int) -> int:
    table = open_table(path)
    with translated(path, "read"):
        files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    small = Counter(file[f"partition.{PARTITION_COLUMN}"] for file in files if file["size_bytes"] < target_bytes)
    return sum(count for count in small.values() if count > 1)


def _counted(files: Iterable[Path]) -> FileCount:
    sizes = []
    for file in files:
        # Another process may delete files meanwhile.
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return FileCount(len(sizes), sum(sizes))
