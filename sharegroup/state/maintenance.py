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
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from sharegroup.state.commit import is_committed
from sharegroup.state.delta_table import ROWS_PER_ROW_GROUP, highest_leader_epoch, open_table, translated
from sharegroup.state.schema import PARTITION_COLUMN
from sharegroup.state.table_snapshot import due_snapshot

TARGET_FILE_BYTES = 16 * 1024 * 1024

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


def compact(path: str, *, is_dry_run: bool = False) -> int:
    """Merge the small files of each date.

    Args:
        path: the table's folder.
        is_dry_run: only tell what would be merged.

    Returns:
        How many files were merged; 0 when another process was merging them at the same time.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    table = open_table(path)
    with translated(path, "compacted"):
        if is_dry_run:
            return _mergeable(table)
        try:
            metrics = table.optimize.compact(
                target_size=TARGET_FILE_BYTES,
                writer_properties=WriterProperties(max_row_group_size=ROWS_PER_ROW_GROUP),
            )
        except CommitFailedError as error:
            _logger.info("State table %s is being compacted by another process: %s", path, error)
            return 0
    return int(metrics["numFilesRemoved"])


def vacuum(path: str, *, is_dry_run: bool = False) -> FileCount:
    """Delete the files that no version of the last hour needs.

    Args:
        path: the table's folder.
        is_dry_run: only tell what would be deleted.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    with translated(path, "vacuumed"):
        deleted = _counted(Path(path, file) for file in open_table(path).vacuum(dry_run=True))
        if deleted.files and not is_dry_run:
            open_table(path).vacuum(dry_run=False)
    return deleted


def _mergeable(table: DeltaTable) -> int:
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    small = Counter(file[f"partition.{PARTITION_COLUMN}"] for file in files if file["size_bytes"] < TARGET_FILE_BYTES)
    return sum(count for count in small.values() if count > 1)


def _counted(files: Iterable[Path]) -> FileCount:
    sizes = []
    for file in files:
        # Another process may delete files meanwhile.
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return FileCount(len(sizes), sum(sizes))
