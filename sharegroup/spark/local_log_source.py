"""The embedded log as a Spark data source, `sharegroup_log`: batches of a topic, or of exact offset ranges.

Options:
    path: the embedded log's file.
    topic: the topic to read.
    ranges: instead of `topic`, JSON [[topic, partition, first_offset, last_offset, delivery_count], ...], both
        offsets inclusive; adds the column `delivery_count`. Offsets that do not exist have no row.
    numPartitions: tasks that share the work evenly (default 2).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sharegroup.client.held_records import HeldRange
from sharegroup.config.processor_config import absolute_path
from sharegroup.errors import ConfigurationError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_arrow import RECORD_SCHEMA, read_arrow
from sharegroup.spark import cluster
from sharegroup.spark.held_ranges import split_evenly

FORMAT = "sharegroup_log"
"""Name for `spark.read.format`."""

_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp_ms timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_DELIVERY_COUNT = pa.field("delivery_count", pa.int16())
_MAX_DELIVERY_COUNT = 32_767

_OPTIONS = ("path", "topic", "ranges", "numPartitions")
_RANGE_FIELDS = ("topic", "partition", "first_offset", "last_offset", "delivery_count")

_ABSENT = ""
"""Topic id of ranges that are read by their topic's name."""


def register(spark: SparkSession) -> None:
    """Make `sharegroup_log` known to a session; one on a cluster refuses it."""
    spark.dataSource.register(LocalLogOnCluster if cluster.is_cluster(spark) else LocalLogDataSource)


class LocalLogDataSource(DataSource):
    """Entry point for Spark: the format's name, its columns and its readers."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns as DDL; `delivery_count` only with the option `ranges`."""
        return f"{_COLUMNS}, delivery_count smallint" if "ranges" in self.options else _COLUMNS

    def reader(self, schema: StructType) -> LocalLogBatchReader:
        """Return the reader of a batch query.

        Raises:
            ConfigurationError: an option is unknown or missing, or its value is invalid.
        """
        _check_names(self.options)
        return LocalLogBatchReader(self.options)


class LocalLogOnCluster(LocalLogDataSource):
    """The format in a session on a cluster, whose tasks cannot read the file."""

    def schema(self) -> str:
        """Refuse the format.

        Raises:
            ConfigurationError: always.
        """
        raise cluster.embedded_log_refused(_required(self.options, "path"))


class RangesPartition(InputPartition):
    """A Spark partition: the ranges of one task."""

    def __init__(self, ranges: Iterable[HeldRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[HeldRange, ...]:
        """The ranges, in reading order."""
        return tuple(self.value)


class LocalLogBatchReader(DataSourceReader):
    """Reads a whole topic, or exact offset ranges."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = absolute_path(_required(options, "path"))
        self._task_count = _positive(options, "numPartitions", 2)
        if ("ranges" in options) == ("topic" in options):
            raise ConfigurationError("A batch reads either a topic or ranges.", "Give exactly one of the two options.")
        self._ranges = parse_ranges(options["ranges"]) if "ranges" in options else None
        self._topic = options.get("topic", "")

    def partitions(self) -> list[InputPartition]:
        """Return tasks with even shares of the offsets."""
        ranges = self._topic_ranges() if self._ranges is None else self._ranges
        # For Spark an empty list means one task without a value.
        return [RangesPartition(share) for share in split_evenly(ranges, self._task_count)] or [RangesPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records."""
        assert isinstance(partition, RangesPartition)
        with LocalLog(self._path) as log:
            for held in partition.ranges:
                for batch in read_arrow(log, held.topic, held.partition, held.first_offset, held.last_offset + 1):
                    yield batch if self._ranges is None else _with_delivery_count(batch, held.delivery_count)

    def _topic_ranges(self) -> list[HeldRange]:
        with LocalLog(self._path) as log:
            partitions = log.offsets(self._topic)
        return [
            HeldRange(_ABSENT, self._topic, partition, offsets.start_offset, offsets.end_offset - 1, delivery_count=0)
            for partition, offsets in partitions.items()
        ]


def parse_ranges(text: str) -> list[HeldRange]:
    """Parse JSON [[topic, partition, first_offset, last_offset, delivery_count], ...], both offsets inclusive.

    Raises:
        ConfigurationError: it is not such JSON, or a range is empty or negative.
    """
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"ranges is not JSON: {error}.", f"Give [[{', '.join(_RANGE_FIELDS)}], ...]."
        ) from error
    if not isinstance(entries, list):
        raise ConfigurationError("ranges is not a JSON list.", f"Give [[{', '.join(_RANGE_FIELDS)}], ...].")
    return [_parse_range(index, entry) for index, entry in enumerate(entries)]


def _parse_range(index: int, entry: object) -> HeldRange:
    match entry:
        case [
            str(topic),
            int(partition),
            int(first_offset),
            int(last_offset),
            int(delivery_count),
        ] if partition >= 0 and 0 <= first_offset <= last_offset and 0 <= delivery_count <= _MAX_DELIVERY_COUNT:
            return HeldRange(_ABSENT, topic, partition, first_offset, last_offset, delivery_count)
    raise ConfigurationError(
        f"ranges[{index}] is {json.dumps(entry)}.",
        f"Give [{', '.join(_RANGE_FIELDS)}] with first_offset <= last_offset and a delivery count up to "
        f"{_MAX_DELIVERY_COUNT}.",
    )


def _with_delivery_count(batch: pa.RecordBatch, delivery_count: int) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(delivery_count, _DELIVERY_COUNT.type), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=RECORD_SCHEMA.append(_DELIVERY_COUNT))


def _check_names(options: Mapping[str, str]) -> None:
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


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"The option {name} is {text!r}.", "It must be a whole number from 1 on.")
    return int(text)
