"""Features that Spark before 4.2 lacks, recognized by their presence: platforms number releases their own way.

Everything else in this package is written for Spark 4.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""True if Spark passes the start and a limit to `latestOffset`, and tells a source of `Trigger.AvailableNow`."""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:

    class ReadLimit:
        """A limit of a micro-batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """A number of rows."""

        max_rows: int

    class SupportsTriggerAvailableNow(ABC):
        """A reader that ends a query when it has read what there was at its start."""

        @abstractmethod
        def prepareForTriggerAvailableNow(self) -> None:
            """Note what there is."""


class RememberingReader(DataSourceStreamReader):
    """A reader for Spark without read limits, which calls `latestOffset` without the start; its default limit applies.

    The start is the end of the last batch. Spark calls `initialOffset` for a new query. A restarted one begins with
    `partitions` of the last batch in its offset log, or with an empty one that ends there.
    """

    def __init__(self, reader: DataSourceStreamReader) -> None:
        self._reader = reader
        self._start: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch."""
        self._start = self._reader.initialOffset()
        return self._start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as Spark without read limits calls it
        """Return the end of the next batch, or the end of the last one if there is no next one."""
        start = self.initialOffset() if self._start is None else self._start
        return self._reader.latestOffset(start, self._reader.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        self._start = end
        return self._reader.partitions(start, end) if start != end else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a task."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that a batch is committed."""
        self._reader.commit(end)

    def stop(self) -> None:
        """End the reader."""
        self._reader.stop()


def stream_reader(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """Return a reader that takes read limits as this release of Spark calls it."""
    return reader if HAS_READ_LIMITS else RememberingReader(reader)


def repartitioned_by_id(rows: DataFrame, task_count: int, task: Column) -> DataFrame:
    """Divide rows by the number of their task; before Spark 4.1 by its hash, which leaves some tasks without rows."""
    if hasattr(type(rows), "repartitionById"):
        return rows.repartitionById(task_count, task)
    return rows.repartition(task_count, task)
