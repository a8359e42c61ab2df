"""The data files of the state table: Parquet, and durable before any commit names them.

The file of a commit is made in memory and written at once, and its statistics come from Python's own minimum: each call
into the operating system or into Arrow's functions releases the interpreter's lock, and beside a thread that applies
messages it is acquired again only after a switch interval.

A vacuum deletes the files that no commit names after five minutes. A process that stands still between writing its
files and its commit, with its machine or without, would commit the names of files that are gone: so each process
that commits checks the age of its files, before and after.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet.core import ParquetReader

from sharegroup.state.data_file import DataFile
from sharegroup.state.open_storage import storage_of
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA

Action = Mapping[str, Any]
"""One line of a commit file, such as `{"add": …}`."""

STATISTICS_COLUMNS = (
    "record_type",
    "commit_id",
    "leader_epoch",
    "group_id",
    "request_partition",
    "request_offset",
    "time_ms",
)
"""Columns whose statistics let a reader skip files."""

FILE_RETENTION_MS = 300_000
"""Age up to which files that were merged are kept, for readers that began before. Each checkpoint names them."""

_SAFE_MS = FILE_RETENTION_MS // 2
"""Age up to which no vacuum deletes a file, also one whose machine's clock is a minute ahead of the store's."""

ROWS_PER_ROW_GROUP = 8_192
"""Rows are ordered by time: small row groups let a reader skip rows that are older than it needs."""

FILE_SCHEMA = pa.schema([field for field in STATE_TABLE_SCHEMA if field.name != PARTITION_COLUMN])
"""Columns of a data file: the partition column is in its path."""

_BATCH_BYTES = 16 * 1024 * 1024
"""Size of rows that are in memory together where a file is merged, or many are read."""

_LONGEST_TEXT = 64
"""Characters of a text in the statistics; a longer maximum is left out."""

_SMALL = {
    "use_dictionary": False,
    "compression": "none",
    "write_statistics": False,
    "store_schema": False,
    "write_page_checksum": True,
}
"""Writer options of a commit's few rows: writing them takes 1.5 ms, and 3 ms with the options of a large file."""

logger = logging.getLogger("sharegroup.state")


@dataclass(frozen=True, slots=True)
class NewFile:
    """A durable data file that no commit names yet.

    Attributes:
        modified_ms: time at which its write began; epoch ms.
    """

    file: DataFile
    modified_ms: int
    content: pa.Buffer = field(repr=False)

    def add_action(self, *, has_new_rows: bool = True) -> Action:
        """Return the action with which a commit adds the file.

        Args:
            has_new_rows: False if its rows were in the table before, in other files.
        """
        return {
            "add": {
                "path": self.file.path,
                "partitionValues": {PARTITION_COLUMN: self.file.date},
                "size": self.file.size_bytes,
                "modificationTime": self.modified_ms,
                "dataChange": has_new_rows,
                "stats": self.file.statistics(),
            }
        }


def write_data_files(path: str, rows: pa.Table) -> list[NewFile]:
    """Write the rows of one commit, one file a date.

    Args:
        rows: rows with the columns of `STATE_TABLE_SCHEMA`.

    Raises:
        OSError: the disk or the store failed.
    """
    storage = storage_of(path)
    dates = list(dict.fromkeys(rows[PARTITION_COLUMN].to_pylist()))
    files = []
    for date in dates:
        of_date = rows if len(dates) == 1 else rows.filter(pc.equal(rows[PARTITION_COLUMN], date))
        name = _new_name(date)
        content = pa.BufferOutputStream()
        pq.write_table(of_date.drop_columns([PARTITION_COLUMN]), content, **_SMALL)
        buffer = content.getvalue()
        now_ms = time.time_ns() // 1_000_000
        storage.write(name, memoryview(buffer))
        statistics = _Statistics()
        statistics.add_few(of_date)
        files.append(NewFile(statistics.file(name, date, buffer.size), now_ms, buffer))
    return files


def may_be_deleted(files: Sequence[NewFile]) -> bool:
    """Return True if a vacuum may have deleted files, unless a commit named them before.

    This machine's clock measures their age. On a local disk it is the clock of the vacuum, too; unlike a monotonic
    clock it also counts the time of a suspended machine. On a store, a paused virtual machine whose clock was not set
    right yet remains unnoticed.
    """
    now_ms = time.time_ns() // 1_000_000
    return any(not 0 <= now_ms - file.modified_ms <= _SAFE_MS for file in files)


def deleted_files(path: str, files: Sequence[NewFile]) -> list[NewFile]:
    """Return those of the files that a vacuum has deleted; only old ones are looked up.

    Raises:
        OSError: the disk or the store failed.
    """
    if not may_be_deleted(files):
        return []
    storage = storage_of(path)
    return [new for new in files if not storage.exists(new.file.path)]


def restore_deleted(path: str, files: Sequence[NewFile]) -> None:
    """Write the files of a commit again that a vacuum deleted before the commit; it deletes no committed ones.

    Args:
        files: the data files that the commit names.

    Raises:
        OSError: the disk or the store failed: the commit lacks its rows.
    """
    for new in deleted_files(path, files):
        name = new.file.path
        storage_of(path).write(name, memoryview(new.content))
        logger.warning("This process stood still: file %s of its commit was deleted, and is written again.", name)


def read_data_file(path: str, name: str) -> pa.Table:
    """Read a data file; its columns have the types of its writer.

    Args:
        name: the file's path within the table.

    Raises:
        OSError: it cannot be read.
    """
    # `ParquetFile` would take twice as long: it builds an index of all nested columns for each file.
    reader = ParquetReader()
    reader.open(pa.BufferReader(storage_of(path).read(name)), use_memory_map=False)
    return reader.read_all(use_threads=False)


def concatenated(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of several data files with the columns of `FILE_SCHEMA`."""
    # Files of one writer have the same schema: a cast for each would take as long as reading it.
    alike = [pa.concat_tables(group) for _, group in groupby(tables, lambda table: table.schema)]
    return pa.concat_tables([table.select(FILE_SCHEMA.names).cast(FILE_SCHEMA) for table in alike])


def in_batches(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """Yield tables in batches: a marker may have megabytes of responses, and not all need to be in memory together."""
    batch: list[pa.Table] = []
    size_bytes = 0
    for table in tables:
        batch.append(table)
        size_bytes += table.nbytes
        if size_bytes > _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


class LargeDataFile:
    """A data file of one date that is written piece by piece; it becomes a file of the table only by `close`.

    Args:
        date: the value of the partition column.
    """

    def __init__(self, path: str, date: str) -> None:
        self._path = path
        self._date = date
        self._name = _new_name(date)
        self._statistics = _Statistics()
        # Compressed it is a small part of the rows that its writer has in memory.
        self._content = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._content, FILE_SCHEMA, compression="zstd", write_page_checksum=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()

    @property
    def row_count(self) -> int:
        """Return the number of rows written."""
        return self._statistics.row_count

    def write(self, rows: pa.Table) -> None:
        """Write rows of this date.

        Raises:
            OSError: the disk or the store failed.
        """
        self._writer.write_table(rows.select(FILE_SCHEMA.names), row_group_size=ROWS_PER_ROW_GROUP)
        self._statistics.add(rows)

    def close(self) -> NewFile:
        """Finish the file and make it durable.

        Raises:
            OSError: the disk or the store failed.
        """
        self._writer.close()
        buffer = self._content.getvalue()
        now_ms = time.time_ns() // 1_000_000
        storage_of(self._path).write(self._name, memoryview(buffer))
        return NewFile(self._statistics.file(self._name, self._date, buffer.size), now_ms, buffer)


class _Statistics:
    """Minimum and maximum of the columns by which readers choose files."""

    def __init__(self) -> None:
        self.row_count = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self.row_count += rows.num_rows
        for name in STATISTICS_COLUMNS:
            bounds = pc.min_max(rows[name]).as_py()
            self._widen(name, bounds["min"], bounds["max"])

    def add_few(self, rows: pa.Table) -> None:
        """Add the few rows of a commit; see `add`."""
        self.row_count += rows.num_rows
        for name in STATISTICS_COLUMNS:
            values = rows[name].to_pylist()
            self._widen(name, min(values), max(values))

    def _widen(self, name: str, least: Any, greatest: Any) -> None:
        low, high = self._bounds.get(name, (least, greatest))
        self._bounds[name] = (min(low, least), max(high, greatest))

    def file(self, name: str, date: str, size_bytes: int) -> DataFile:
        bounds: dict[str, Any] = {}
        for column, (low, high) in self._bounds.items():
            bounds[f"min.{column}"] = _shortened(low)
            if _shortened(high) == high:
                bounds[f"max.{column}"] = high
        return DataFile(name, date, size_bytes, self.row_count, bounds)


def _shortened(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _new_name(date: str) -> str:
    return f"{PARTITION_COLUMN}={date}/part-{uuid4().hex}.parquet"
