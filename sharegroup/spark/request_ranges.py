"""The stream that hosts the processor: ranges of offsets of the request log, one row a range, never the messages.

Each row also has the loop's figures at the time when a batch's rows are read. The job that reads them carries them in a
local property, so that the query's progress shows them; it does not show observations from inside `foreachBatch`.

Options: `topic`, `startingOffsets` (JSON {"partition": offset}), and the log: `log.path`, or options that begin with
`kafka.`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sharegroup.config.kafka import KafkaConfig
from sharegroup.logs.open import open_log
from sharegroup.logs.port import ENDLESS_MS, Log
from sharegroup.spark.features import ReadAllAvailable, ReadLimit, stream_reader

FIGURES_PROPERTY = "sharegroup.figures"
"""Local property of a job that reads rows: a JSON object, for their column `figures`."""

FORMAT = "sharegroup_requests"
"""Name for `spark.readStream.format`."""

_KAFKA_PREFIX = "kafka."
Range = tuple[str, int, int, int]
"""Topic, partition, first offset, end offset."""


def source_options(log: str | KafkaConfig, topic: str, start_offsets: Mapping[int, int]) -> dict[str, str]:
    """Return the options of a stream that begins at these offsets; they may hold secrets."""
    if isinstance(log, str):
        address = {"log.path": log}
    else:
        address = {f"{_KAFKA_PREFIX}{key}": value for key, value in log.client_properties().items()}
    return {
        **address,
        "topic": topic,
        "startingOffsets": json.dumps({str(partition): offset for partition, offset in start_offsets.items()}),
    }


def register(spark: SparkSession) -> None:
    """Make `sharegroup_requests` known to a session."""
    spark.dataSource.register(RequestRangesSource)


class RequestRangesSource(DataSource):
    """Entry point for Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns as DDL."""
        return "topic string, partition int, start_offset bigint, end_offset bigint, figures string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query; its process ends with Spark, without a traceback."""
        sys.excepthook = report_reader_error
        return stream_reader(RequestRangesReader(self.options))


class RangesPartition(InputPartition):
    """All ranges of a micro-batch: one task."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(ranges)


class RequestRangesReader(DataSourceStreamReader):
    """Plans micro-batches; its offsets are {"partition": next offset}."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._topic = options["topic"]
        self._start_offsets: dict[str, int] = json.loads(options["startingoffsets"])
        kafka = {key.removeprefix(_KAFKA_PREFIX): options[key] for key in options if key.startswith(_KAFKA_PREFIX)}
        self._address = KafkaConfig.from_mapping(kafka) if kafka else options["log.path"]
        self._log: Log | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return the offsets at which the query begins."""
        return self._start_offsets

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the request log."""
        if self._log is None:
            self._log = open_log(self._address, must_exist=True, kafka_timeout_ms=ENDLESS_MS)
        ends = {str(partition): offsets.end_offset for partition, offsets in self._log.offsets(self._topic).items()}
        # The log may end before the offsets of the state table; a stream does not go back.
        return {partition: max(offset, ends.get(partition, 0)) for partition, offset in start.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Put no limit on a micro-batch: the loop limits its cuts itself."""
        return ReadAllAvailable()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the one task of a micro-batch."""
        ranges = [(self._topic, int(partition), start[partition], end[partition]) for partition in sorted(end, key=int)]
        return [RangesPartition([offsets for offsets in ranges if offsets[3] > offsets[2]])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return the ranges as rows."""
        context = TaskContext.get()
        figures = context.getLocalProperty(FIGURES_PROPERTY) if context is not None else None
        return ((*offsets, figures) for offsets in partition.value)

    def stop(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()


def report_reader_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Report the error that ends the process of a reader, unless Spark, which started it, has ended."""
    if not issubclass(kind, EOFError | ConnectionError):
        sys.__excepthook__(kind, error, traceback)
