"""The data files of one version of the state table, with the statistics by which a reader chooses among them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sharegroup.state.data_files import STATISTICS_COLUMNS, concatenated, in_batches, read_data_file
from sharegroup.state.delta_table import data_files
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA

_DATE = f"partition.{PARTITION_COLUMN}"
_ANY_COMMIT = 1 << 63


class ListedFile(NamedTuple):
    """A data file of the table.

    Attributes:
        path: its path within the table.
        date: the value of the partition column.
        statistics: "min." and "max." with the name of a column → its bound; some may be missing.
    """

    path: str
    date: str
    statistics: Mapping[str, Any]

    def may_have(self, column: str, value: Any) -> bool:
        """Return False if the statistics show that no row has a value."""
        return self.overlaps(column, value, value)

    def overlaps(self, column: str, least: Any, greatest: Any) -> bool:
        """Return False if the statistics show that no row has a value in a range, whose ends are included."""
        low, high = self.statistics.get(f"min.{column}"), self.statistics.get(f"max.{column}")
        return (low is None or low <= greatest) and (high is None or high >= least)

    @property
    def lowest_commit_id(self) -> int | None:
        """Return the lowest commit id of its rows; None when its statistics do not have it."""
        return self.statistics.get("min.commit_id")

    @property
    def highest_commit_id(self) -> int:
        """Return the highest commit id that it may hold."""
        commit_id = self.statistics.get("max.commit_id")
        return _ANY_COMMIT if commit_id is None else int(commit_id)


def listed_files(table: DeltaTable, columns: Collection[str] = STATISTICS_COLUMNS) -> list[ListedFile]:
    """Return the data files of a version of the table.

    Args:
        table: the version.
        columns: those whose statistics choose files; all of them take a multiple of the time of a few.
    """
    files = data_files(table)
    bounds = [f"{bound}.{column}" for column in columns for bound in ("min", "max")]
    statistics = files.select([name for name in bounds if name in files.column_names]).to_pylist()
    paths, dates = files["path"].to_pylist(), files[_DATE].to_pylist()
    return [ListedFile(*file) for file in zip(paths, dates, statistics, strict=True)]


def read_listed_files(path: str, files: Iterable[tuple[str, str]], condition: pc.Expression) -> pa.Table:
    """Read the rows of data files that fulfil a condition, in no order.

    Most files have a commit's few rows: delta-rs, which scans them as one table, takes three times as long.

    Args:
        path: the table's folder or address.
        files: the path of each within the table, and its date.
        condition: the condition.

    Raises:
        OSError: a file cannot be read.
    """
    pieces = [STATE_TABLE_SCHEMA.empty_table()]
    for date, of_date in groupby(sorted(files, key=_date), _date):
        for batch in in_batches(read_data_file(path, name) for name, _ in of_date):
            # A condition on one piece takes a fraction of the time that it takes on hundreds.
            rows = concatenated(batch).combine_chunks().filter(condition)
            dated = rows.append_column(PARTITION_COLUMN, pa.repeat(date, rows.num_rows))
            pieces.append(dated.select(STATE_TABLE_SCHEMA.names))
    return pa.concat_tables(pieces)


def _date(file: tuple[str, str]) -> str:
    return file[1]
