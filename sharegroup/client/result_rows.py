"""Rows of results as an application has them, for the columns of a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

Rows = Any
"""An Arrow table or batch, anything else with Arrow's stream interface, a pandas DataFrame, a dict, or dicts."""


class ResultRows:
    """The results of the records of a transaction; they are written at its end, or not at all."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []

    def append(self, rows: Rows) -> None:
        """Add rows.

        Args:
            rows: an Arrow table or batch, a pandas DataFrame, a dict, or dicts; columns of the sink may be left out,
                and are null.

        Raises:
            TypeError: they are no rows.
            ValueError: a column is not in the sink, a value does not fit, or a column that must not be null is left
                out.
        """
        self._tables.append(result_table(rows, self._schema))

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(table.num_rows for table in self._tables)

    @property
    def table(self) -> pa.Table | None:
        """All rows as one table; None if there are none."""
        return pa.concat_tables(self._tables) if self._tables else None


def result_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Return rows as a table with the sink's columns; those that are left out are null.

    Args:
        schema: of the sink.

    Raises:
        TypeError: they are no rows.
        ValueError: a column is not in the sink, a value does not fit, or a column that must not be null is left out.
    """
    table = _arrow_table(rows, schema)
    if unknown := [name for name in table.column_names if name not in schema.names]:
        raise ValueError(f"Column {unknown[0]!r} is not in the sink; it has {', '.join(schema.names)}.")
    if repeated := [name for name in schema.names if table.column_names.count(name) > 1]:
        raise ValueError(f"Column {repeated[0]!r} is there twice.")
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(_column(table[field.name], field))
        elif field.nullable:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            raise ValueError(f"Column {field.name!r} of the sink must not be null, and the rows do not have it.")
    return pa.table(columns, schema=schema)


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not field.nullable and column.null_count:
        raise ValueError(f"Column {field.name!r} of the sink must not be null, and {column.null_count} values are.")
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"Column {field.name!r} is {column.type}, and {field.type} in the sink: {error}") from error


def _arrow_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if type(rows).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(rows, preserve_index=False)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return _table_of_dicts(list(rows), schema)
    raise TypeError(f"rows must be an Arrow table, a pandas DataFrame or dicts, not {type(rows).__name__}")


def _table_of_dicts(rows: list[Any], schema: pa.Schema) -> pa.Table:
    names: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(f"a row must be a dict, not {type(row).__name__}")
        names.update(dict.fromkeys(row))
    unknown = next((name for name in names if name not in schema.names), None)
    if unknown is not None:
        raise ValueError(f"Column {unknown!r} is not in the sink; it has {', '.join(schema.names)}.")
    fields = [schema.field(name) for name in names]
    arrays = []
    for field in fields:
        try:
            arrays.append(pa.array([row.get(field.name) for row in rows], field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise ValueError(f"A value of column {field.name!r} is no {field.type}: {error}") from error
    return pa.table(arrays, schema=pa.schema([field.with_nullable(True) for field in fields]))
