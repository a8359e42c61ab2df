"""The rows of a state table, read by Spark: the row source of audits of large histories.

Spark filters and orders the rows, on disk where they do not fit into memory. The driver receives them in fold order,
batch by batch as Arrow, and decodes them as a command without a JVM does: its memory does not grow with the history.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sharegroup.audit.history.row_source import Summary
from sharegroup.errors import ShareGroupError, StateTableError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.classic import JVM_ERRORS
from sharegroup.spark.cluster import check_audit_tasks, parallelism
from sharegroup.spark.internal_session import internal_session
from sharegroup.spark.stored_table import spark_address
from sharegroup.state.fold import SHARE_PARTITION_TYPES
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter
from sharegroup.state.schema import ORDER_COLUMNS, PARTITION_KEY_COLUMNS, STATE_TABLE_SCHEMA, decoded, partition_key

_UPDATES = [
    kind.value for kind in sorted(SHARE_PARTITION_TYPES - {RecordType.SHARE_SNAPSHOT, RecordType.SHARE_TOMBSTONE})
]
"""Rows that change nothing but by their transitions."""

_ROWS_PER_PARTITION = 100_000


class SparkRows:
    """The rows of a state table, by Spark.

    Args:
        open_session: opens the session, once it is known that there is a state table.

    Raises:
        EnvironmentNotReadyError: executors lack this package, or do not see the table's folder.
        StateTableError: there is no table, or it cannot be read.
        UnsupportedFormatVersionError: the Delta table there is no state table of this release.
    """

    def __init__(self, open_session: Callable[[], SparkSession], path: str) -> None:
        self._reader = StateTableReader(path)
        self._path, self._row_count = path, self._reader.row_count()
        self._lost_files = self._reader.lost_files()
        self.lost_commits: Sequence[tuple[int, int]] = list(self._lost_files.values())
        self._spark = internal_session(open_session())
        check_audit_tasks(self._spark, path, "state table")
        self._address = spark_address(path)

    def rows(self, row_filter: RowFilter) -> Iterable[StateRow]:
        """Return the rows that fulfil the conditions, in fold order; nothing is read before they are iterated over."""
        selected = self._selected(row_filter)
        # The driver receives a partition at a time, and asks for the next one meanwhile.
        count = self._partition_count(selected)
        # One partition needs no shuffle.
        divided = selected.coalesce(1) if count == 1 else selected.repartitionByRange(count, *fold_order_columns())
        ordered = divided.sortWithinPartitions(*fold_order_columns())
        for row in self._collected(ordered.mapInArrow(_serialized, "batch binary")):
            with pa.ipc.open_stream(row.batch) as reader:
                yield from _decoded(reader.read_all())

    def by_partition(
        self, row_filter: RowFilter, summarize: Callable[[Iterable[StateRow]], Summary]
    ) -> Iterator[Summary]:
        """Yield the summary of the rows of each share-partition; several are summarized at once, by Spark's workers."""
        selected = self._selected(row_filter).filter(F.col("partition") >= 0)
        count = self._partition_count(selected)
        count = 1 if count == 1 else max(count, parallelism(self._spark))
        divided = selected.coalesce(1) if count == 1 else selected.repartition(count, *PARTITION_KEY_COLUMNS)
        ordered = divided.sortWithinPartitions(*PARTITION_KEY_COLUMNS, *fold_order_columns())
        summarized = ordered.mapInArrow(partial(_summarized, summarize), "summary binary")
        for row in self._collected(summarized):
            summary = pickle.loads(row.summary)
            if isinstance(summary, ShareGroupError):
                raise summary
            yield summary

    def _selected(self, row_filter: RowFilter) -> DataFrame:
        selected = self._table()
        condition = row_filter.expression(F.col)
        if condition is not None:
            selected = selected.filter(condition)
        if row_filter.touching is not None:
            first, last = row_filter.touching
            touches = F.exists("transitions", lambda t: (t.first_offset <= last) & (t.last_offset >= first))
            selected = selected.filter(~F.col("record_type").isin(_UPDATES) | touches)
        names = STATE_TABLE_SCHEMA.names
        if row_filter.columns is not None:
            names = [name for name in names if name in (*row_filter.columns, *ORDER_COLUMNS)]
        return selected.select(*names)

    def _table(self) -> DataFrame:
        # The newest version each time: files of older ones may be deleted while an audit runs.
        table = self._address.reader(self._spark.read).format("delta").load(self._address.path)
        if not self._lost_files:
            return table
        # Spark's own setting to ignore missing files would hide those that are lost while the audit runs, too.
        files = [f"{self._address.path}/{file}" for file in self._reader.files_without(self._lost_files)]
        if not files:
            return table.limit(0)
        reader = self._address.reader(self._spark.read).schema(table.schema)
        with self._named_files():
            return reader.option("basePath", self._address.path).parquet(*files)

    def _partition_count(self, selected: DataFrame) -> int:
        if self._row_count is not None and self._row_count <= _ROWS_PER_PARTITION:
            return 1
        with self._named_files():
            return selected.count() // _ROWS_PER_PARTITION + 1

    def _collected(self, rows: DataFrame) -> Iterator[Row]:
        with self._named_files():
            yield from rows.toLocalIterator(prefetchPartitions=True)

    @contextmanager
    def _named_files(self) -> Iterator[None]:
        """Name the data file that is missing, when Spark fails for one."""
        try:
            yield
        except JVM_ERRORS as error:
            lost = sorted(self._reader.lost_files().keys() - self._lost_files.keys())
            if not lost:
                raise
            raise StateTableError(
                f"State table {self._path} cannot be read: its data file {lost[0]} is missing.",
                "Restore it from a copy, or ask again: what is still answerable is answered then.",
            ) from error


def fold_order_columns() -> list[Column]:
    """Return the sort keys of `fold_order`."""
    is_table_snapshot = F.col("record_type") == RecordType.TABLE_SNAPSHOT.value
    return [
        F.col("request_partition"),
        F.col("request_offset"),
        is_table_snapshot,
        F.col("leader_epoch"),
        F.col("commit_id"),
        F.when(is_table_snapshot, 0).otherwise(F.col("state_epoch")),
        F.col("record_type") == RecordType.SHARE_TOMBSTONE.value,
    ]


def _decoded(table: pa.Table) -> Iterator[StateRow]:
    return decoded(table.cast(pa.schema([STATE_TABLE_SCHEMA.field(name) for name in table.column_names])))


def _summarized(
    summarize: Callable[[Iterable[StateRow]], object], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the summary of each share-partition as bytes, or an error about its rows; its rows follow each other."""
    rows = (row for batch in batches for row in _decoded(pa.Table.from_batches([batch])))
    for _, of_partition in groupby(rows, partition_key):
        summary: object
        try:
            summary = summarize(of_partition)
        except ShareGroupError as error:
            # As an exception of a task it would reach the driver as text.
            summary = error
        yield pa.RecordBatch.from_pydict({"summary": pa.array([pickle.dumps(summary)], pa.binary())})


def _serialized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch as bytes of Arrow's stream format: Spark passes a row on faster than its fields."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
