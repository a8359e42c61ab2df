"""The state table as a stream for the live auditor: its offsets are commit ids, never versions of the table.

Spark's Delta source follows versions, which upkeep removes after a minute. Here a stopped query continues by commit id,
wherever upkeep has moved the rows.

A batch has one entry for each share-partition that it touches (`audit/live/live_partition.py`), and with each the time
of the log, which the query needs to end its minutes.

Options: `path`, the state table's folder; `broker`, the broker's configuration as JSON; `mostCommits`, those of a
batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sharegroup.audit.live.live_commits import MOST_COMMITS, LiveCommits, LivePosition
from sharegroup.config.broker import BrokerConfig
from sharegroup.logs.log_clock import wall_ms
from sharegroup.spark.features import ReadAllAvailable, ReadLimit, stream_reader
from sharegroup.spark.request_ranges import report_reader_error

FORMAT = "sharegroup_commits"
"""Name for `spark.readStream.format`."""

TIME_COLUMN = "time"
"""Column with the time of the log at the end of the batch; the same in all its entries, and never falling."""

_ENTRIES_PER_TASK = 10_000


def source_options(path: str, broker: BrokerConfig, most_commits: int = MOST_COMMITS) -> dict[str, str]:
    """Return the options of a stream."""
    return {"path": path, "broker": broker.model_dump_json(), "mostCommits": str(most_commits)}


def register(spark: SparkSession) -> None:
    """Make `sharegroup_commits` known to a session."""
    spark.dataSource.register(CommitSource)


class CommitSource(DataSource):
    """Entry point for Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns as DDL: those of an `Entry`, and the time."""
        return f"share_partition string, document string, {TIME_COLUMN} timestamp"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query; its process ends with Spark, without a traceback."""
        sys.excepthook = report_reader_error
        return stream_reader(CommitStreamReader(self.options))


class EntriesPartition(InputPartition):
    """The entries of one task."""

    def __init__(self, entries: list[tuple[Any, ...]]) -> None:
        super().__init__(entries)


class CommitStreamReader(DataSourceStreamReader):
    """Plans micro-batches; its offsets are `LivePosition`s. It reads the rows when it plans: tasks read no file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["path"]
        self._broker = BrokerConfig.model_validate_json(options["broker"])
        self._most_commits = int(options["mostcommits"])
        self._opened: LiveCommits | None = None

    @property
    def _commits(self) -> LiveCommits:
        if self._opened is None:
            self._opened = LiveCommits(self._path, self._broker, self._most_commits)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        """Return the position before the last table snapshot."""
        return self._commits.initial(wall_ms()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch."""
        return self._commits.latest(LivePosition.from_json(start), wall_ms()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Put no limit on a micro-batch: the source has its own."""
        return ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the entries of a micro-batch, divided among tasks."""
        last = LivePosition.from_json(end)
        time = datetime.fromtimestamp(last.time_ms / 1_000, UTC)
        entries = [(*entry, time) for entry in self._commits.entries(LivePosition.from_json(start), last)]
        tasks: list[InputPartition] = [
            EntriesPartition(entries[first : first + _ENTRIES_PER_TASK])
            for first in range(0, len(entries), _ENTRIES_PER_TASK)
        ]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return the entries of one task."""
        return iter(partition.value)
