"""The scan of the state table with the conditions of a filter, piece by piece; files and columns are left out early."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from sharegroup.state.row_filter import RowFilter
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA


def scanned(
    table: DeltaTable, row_filter: RowFilter, added: Collection[str], files: list[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows that fulfil the conditions in pieces, in any order.

    Args:
        table: the version to read.
        row_filter: the conditions.
        added: columns that are read in any case.
        files: full paths of the only files to read; None reads all.
    """
    schema = read_schema(row_filter, added)
    if files is None:
        batches = pa.RecordBatchReader.from_stream(table.scan(columns=schema.names, predicate=row_filter.sql()))
    else:
        date = ds.partitioning(pa.schema([STATE_TABLE_SCHEMA.field(PARTITION_COLUMN)]), flavor="hive")
        present = ds.dataset(files, schema=STATE_TABLE_SCHEMA, format="parquet", partitioning=date)
        batches = present.to_batches(columns=schema.names, filter=row_filter.expression(pc.field))
    for batch in batches:
        if batch.num_rows:
            yield pa.Table.from_batches([batch]).cast(schema)


def read_schema(row_filter: RowFilter, added: Collection[str]) -> pa.Schema:
    """Return the columns that a filter asks for and others, in the table's order."""
    names = (*(STATE_TABLE_SCHEMA.names if row_filter.columns is None else row_filter.columns), *added)
    return pa.schema([field for field in STATE_TABLE_SCHEMA if field.name in names])
