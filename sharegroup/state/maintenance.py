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

from sharegroup.state.commit import is_committed
from sharegroup.state.delta_table import ROWS_PER_ROW_GROUP, highest_leader_epoch, open_table, translated
from sharegroup.state.reorganization import PATIENCE_S, reorganizing
from sharegroup.state.schema import PARTITION_COLUMN
from sharegroup.state.table_snapshot import due_snapshot

UPKEEP_FILE_BYTES = 2 * 1024 * 1024
"""Size that the processor merges files up to: it waits meanwhile, and each merge takes the last small file again."""
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
    """Take a table snapshot if it is due and the processor, which takes its own, is not writing at this moment.

    Args:
        path: the table's folder.
        before_ms: it is due when the last one is older than this; epoch ms.
        is_dry_run: only tell what would be written.

    Returns:
        How many rows it has; 0 when none was taken.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    table = open_table(path)
    with translated(path, "read"):
        leader_epoch = highest_leader_epoch(table)
    rows = due_snapshot(path, before_ms)
    if rows and not is_dry_run and not is_committed(path, table, rows, leader_epoch, rows[0].time_ms):
        _logger.info("State table %s is being written: its processor takes the snapshot.", path)
        return 0
    return len(rows)


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
            metrics = open_table(path).optimize.compact(
                target_size=target_bytes,
                writer_properties=WriterProperties(max_row_group_size=ROWS_PER_ROW_GROUP),
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
            open_table(path).vacuum(dry_run=False, full=is_full)
    return deleted


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
