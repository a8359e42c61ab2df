"""The local log as a Spark data source, `sharegroup_log`: batches of a topic, or of exact offset ranges.

Options:
    path: the local log's file.
    topic: the topic to read.
    ranges: instead of `topic`, JSON [[topic, partition, first_offset, last_offset, delivery_count], ...], both
        offsets inclusive; adds the column `delivery_count`. Offsets that do not exist give no row.
    numPartitions: tasks that share the work evenly (default 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sharegroup.errors import ConfigurationError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_arrow import RECORD_SCHEMA, read_arrow
from sharegroup.spark.offset_ranges import OffsetRange, parse_ranges, split_evenly

FORMAT = "sharegroup_log"
"""Name for `spark.read.format`."""

_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp_ms timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_DELIVERY_COUNT = pa.field("delivery_count", pa.int16())

_OPTIONS = ("path", "topic", "ranges", "numPartitions")


def register(spark: SparkSession) -> None:
    """Make `sharegroup_log` known to a session."""
    spark.dataSource.register(LocalLogDataSource)


class LocalLogDataSource(DataSource):
    """Entry point for Spark: names the format, tells its columns and makes readers."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Columns as DDL; `delivery_count` only when ranges are given."""
        return f"{_COLUMNS}, delivery_count smallint" if "ranges" in self.options else _COLUMNS

    def reader(self, schema: StructType) -> LocalLogBatchReader:
        """The reader of a batch query; raises `ConfigurationError`."""
        _refuse_unknown(self.options)
        return LocalLogBatchReader(self.options)


class RangesPartition(InputPartition):
    """What one Spark task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges, in reading order."""
        return tuple(self.value)


class LocalLogBatchReader(DataSourceReader):
    """Reads a whole topic, or exactly the offset ranges that it is given."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = _required(options, "path")
        self._task_count = _at_least(1, options, "numPartitions", 2) or 1
        if ("ranges" in options) == ("topic" in options):
            raise ConfigurationError("A batch reads either a topic or ranges.", "Give exactly one of the two options.")
        self._ranges = parse_ranges(options["ranges"]) if "ranges" in options else None
        self._topic = options.get("topic", "")

    def partitions(self) -> list[InputPartition]:
        """Tasks with even shares of the offsets."""
        ranges = self._topic_ranges() if self._ranges is None else self._ranges
        # Spark takes no tasks at all to mean one task without a value.
        return [RangesPartition(share) for share in split_evenly(ranges, self._task_count)] or [RangesPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records."""
        return _read(self._path, partition)

    def _topic_ranges(self) -> list[OffsetRange]:
        with LocalLog(self._path) as log:
            offsets = log.offsets(self._topic)
        return [
            OffsetRange(self._topic, partition, found.start_offset, found.end_offset)
            for partition, found in offsets.items()
        ]


def _read(path: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RangesPartition)
    with LocalLog(path) as log:
        for wanted in partition.ranges:
            for batch in read_arrow(log, wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset):
                yield batch if wanted.delivery_count is None else _with_delivery_count(batch, wanted.delivery_count)


def _with_delivery_count(batch: pa.RecordBatch, delivery_count: int) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(delivery_count, _DELIVERY_COUNT.type), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=RECORD_SCHEMA.append(_DELIVERY_COUNT))


def _refuse_unknown(options: Mapping[str, str]) -> None:
    # Spark passes option names in lower case.
    unknown = sorted(options.keys() - {name.lower() for name in _OPTIONS})
    if unknown:
        raise ConfigurationError(
            f"The data source {FORMAT} has no option {unknown[0]!r} here.", f"Its options are {', '.join(_OPTIONS)}."
        )


def _required(options: Mapping[str, str], name: str) -> str:
    value = options.get(name, "")
    if not value:
        raise ConfigurationError(f"The data source {FORMAT} needs the option {name}.", f"Set it: .option({name!r}, …).")
    return value


def _at_least(bound: int, options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < bound:
        raise ConfigurationError(f"The option {name} is {text!r}.", f"It must be a whole number from {bound} on.")
    return int(text)
