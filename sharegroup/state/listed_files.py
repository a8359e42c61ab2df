"""The data files of one version of the state table, with the statistics by which a reader chooses among them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sharegroup.state.data_file import DataFile
from sharegroup.state.data_files import STATISTICS_COLUMNS, concatenated, in_batches, read_data_file
from sharegroup.state.delta_table import data_files
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA

_DATE = f"partition.{PARTITION_COLUMN}"
_ROW_COUNT = "num_records"


def listed_files(table: DeltaTable, columns: Collection[str] = STATISTICS_COLUMNS) -> list[DataFile]:
    """Return the data files of a version of the table.

    Args:
        columns: those whose statistics choose files; all of them take a multiple of the time of a few.
    """
    files = data_files(table)
    names = [f"{bound}.{column}" for column in columns for bound in ("min", "max")]
    bounds = files.select([name for name in names if name in files.column_names]).to_pylist()
    row_counts = files[_ROW_COUNT].to_pylist() if _ROW_COUNT in files.column_names else [None] * files.num_rows
    paths, dates, sizes = (files[name].to_pylist() for name in ("path", _DATE, "size_bytes"))
    described = zip(map(unquote, paths), dates, sizes, row_counts, bounds, strict=True)
    return [DataFile(*values) for values in described]


def read_listed_files(path: str, files: Iterable[DataFile], condition: pc.Expression) -> pa.Table:
    """Read the rows of data files that fulfil a condition, in no order.

    Most files have a commit's few rows: delta-rs, which scans them as one table, takes three times as long.

    Raises:
        OSError: a file cannot be read.
    """
    pieces = [STATE_TABLE_SCHEMA.empty_table()]
    for date, of_date in groupby(sorted(files, key=_date), _date):
        for batch in in_batches(read_data_file(path, file.path) for file in of_date):
            # A condition on one piece takes a fraction of the time that it takes on hundreds.
            rows = concatenated(batch).combine_chunks().filter(condition)
            dated = rows.append_column(PARTITION_COLUMN, pa.repeat(date, rows.num_rows))
            pieces.append(dated.select(STATE_TABLE_SCHEMA.names))
    return pa.concat_tables(pieces)


def _date(file: DataFile) -> str:
    return file.date
