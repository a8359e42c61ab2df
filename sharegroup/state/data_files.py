"""Data files of the state table: Parquet, on the disk before any commit names them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sharegroup.state.commit_log import Action
from sharegroup.state.durable_files import sync_file, sync_folder
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA

STATISTICS_COLUMNS = (
    "record_type",
    "commit_id",
    "leader_epoch",
    "group_id",
    "request_partition",
    "request_offset",
    "time_ms",
)
"""Columns by whose values a reader passes files over."""

ROWS_PER_ROW_GROUP = 8_192
"""Rows lie in the order of time: small row groups let a reader skip what is older than it needs."""

_FILE_SCHEMA = pa.schema([field for field in STATE_TABLE_SCHEMA if field.name != PARTITION_COLUMN])
_LONGEST_TEXT = 64
"""Characters of a text in the statistics; a maximum that is longer is left out."""

_SMALL = {"use_dictionary": False, "compression": "none", "write_statistics": False, "store_schema": False}
"""A commit has a few rows: writing them takes 1.5 ms so, and 3 with what only a large file gains from."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is on the disk, and that no commit names yet.

    Attributes:
        path: its path within the table.
        date: the value of the partition column.
        size_bytes: its size.
        modified_ms: when it was written; epoch ms.
        statistics: minimum and maximum of some columns, JSON as Delta has it.
    """

    path: str
    date: str
    size_bytes: int
    modified_ms: int
    statistics: str

    def add_action(self) -> Action:
        """Return the action by which a commit adds the file."""
        return {
            "add": {
                "path": self.path,
                "partitionValues": {PARTITION_COLUMN: self.date},
                "size": self.size_bytes,
                "modificationTime": self.modified_ms,
                "dataChange": True,
                "stats": self.statistics,
            }
        }


def write_data_files(path: str, rows: pa.Table) -> list[DataFile]:
    """Write the rows of one commit, one file a date.

    Args:
        path: the table's folder.
        rows: rows with the columns of `STATE_TABLE_SCHEMA`.

    Raises:
        OSError: the disk refuses.
    """
    dates = pc.unique(rows[PARTITION_COLUMN]).to_pylist()
    files = []
    for date in dates:
        of_date = rows if len(dates) == 1 else rows.filter(pc.equal(rows[PARTITION_COLUMN], date))
        name = _new_name(path, date)
        pq.write_table(of_date.drop_columns([PARTITION_COLUMN]), Path(path, name), **_SMALL)
        statistics = _Statistics()
        statistics.add(of_date)
        files.append(_synced(path, name, date, statistics))
    return files


class LargeDataFile:
    """A data file of one date that is written piece by piece. It is left behind unnamed unless `close` is called.

    Args:
        path: the table's folder.
        date: the value of the partition column.
    """

    def __init__(self, path: str, date: str) -> None:
        self._path = path
        self._date = date
        self._name = _new_name(path, date)
        self._statistics = _Statistics()
        self._writer = pq.ParquetWriter(Path(path, self._name), _FILE_SCHEMA, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()

    @property
    def row_count(self) -> int:
        """Return how many rows were written."""
        return self._statistics.row_count

    def write(self, rows: pa.Table) -> None:
        """Write rows of this date.

        Raises:
            OSError: the disk refuses.
        """
        self._writer.write_table(rows.select(_FILE_SCHEMA.names), row_group_size=ROWS_PER_ROW_GROUP)
        self._statistics.add(rows)

    def close(self) -> DataFile:
        """Finish the file and sync it.

        Raises:
            OSError: the disk refuses.
        """
        self._writer.close()
        return _synced(self._path, self._name, self._date, self._statistics)


class _Statistics:
    """Minimum and maximum of the columns that files are chosen by."""

    def __init__(self) -> None:
        self.row_count = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self.row_count += rows.num_rows
        for name in STATISTICS_COLUMNS:
            bounds = pc.min_max(rows[name]).as_py()
            low, high = self._bounds.get(name, (bounds["min"], bounds["max"]))
            self._bounds[name] = (min(low, bounds["min"]), max(high, bounds["max"]))

    def to_json(self) -> str:
        return json.dumps(
            {
                "numRecords": self.row_count,
                "minValues": {name: _shortened(low) for name, (low, _) in self._bounds.items()},
                "maxValues": {name: high for name, (_, high) in self._bounds.items() if _shortened(high) == high},
                "nullCount": dict.fromkeys(self._bounds, 0),
            },
            separators=(",", ":"),
        )


def _shortened(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _new_name(path: str, date: str) -> str:
    folder = f"{PARTITION_COLUMN}={date}"
    if not Path(path, folder).is_dir():
        Path(path, folder).mkdir(exist_ok=True)
        sync_folder(Path(path))
    return f"{folder}/part-{uuid4().hex}.parquet"


def _synced(path: str, name: str, date: str, statistics: _Statistics) -> DataFile:
    file = Path(path, name)
    sync_file(file)
    sync_folder(file.parent)
    status = file.stat()
    return DataFile(name, date, status.st_size, status.st_mtime_ns // 1_000_000, statistics.to_json())
