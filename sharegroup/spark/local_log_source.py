"""The local log as a Spark data source, `sharegroup_log`: streams of a topic, and batches of exact offset ranges.

Options, for both:
    path: the local log's file.
    topic: the topic to read.
Options of a stream:
    startingOffsets: `earliest` (default), `latest`, or JSON {"partition": offset, ...} for every partition.
    maxOffsetsPerTrigger: offsets in a micro-batch at most, shared fairly over partitions; no limit by default.
    failOnDataLoss: `true` (default) fails the query when unread records are gone from the log.
    idleWaitMs: how long an idle query waits inside the source for the next record (default 50).
Options of a batch:
    ranges: instead of `topic`, JSON [[topic, partition, first_offset, last_offset, delivery_count], ...], both
        offsets inclusive; adds the column `delivery_count`. Offsets that do not exist give no row.
    numPartitions: tasks that share the work evenly (default 2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sharegroup.errors import ConfigurationError, OffsetOutOfRangeError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_arrow import RECORD_SCHEMA, read_arrow
from sharegroup.logs.port import PartitionOffsets
from sharegroup.spark.offset_ranges import OffsetRange, limit_fairly, parse_ranges, split_evenly

FORMAT = "sharegroup_log"
"""Name for `spark.read.format` and `spark.readStream.format`."""

_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp_ms timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_DELIVERY_COUNT = pa.field("delivery_count", pa.int16())

_STREAM_OPTIONS = ("path", "topic", "startingOffsets", "maxOffsetsPerTrigger", "failOnDataLoss", "idleWaitMs")
_BATCH_OPTIONS = ("path", "topic", "ranges", "numPartitions")


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

    def streamReader(self, schema: StructType) -> LocalLogStreamReader:
        """The reader of a streaming query; raises `ConfigurationError`."""
        _refuse_unknown(self.options, _STREAM_OPTIONS)
        return LocalLogStreamReader(self.options)

    def reader(self, schema: StructType) -> LocalLogBatchReader:
        """The reader of a batch query; raises `ConfigurationError`."""
        _refuse_unknown(self.options, _BATCH_OPTIONS)
        return LocalLogBatchReader(self.options)


class RangesPartition(InputPartition):
    """What one Spark task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges, in reading order."""
        return tuple(self.value)


class LocalLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches; its offsets are {"partition": next offset}."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = _required(options, "path")
        self._topic = _required(options, "topic")
        self._starting_offsets = options.get("startingOffsets", "earliest")
        self._max_offsets = _at_least(1, options, "maxOffsetsPerTrigger", None)
        self._fail_on_data_loss = _boolean(options, "failOnDataLoss", True)
        self._idle_wait_ms = _at_least(0, options, "idleWaitMs", 50) or 0
        self._target: dict[int, int] | None = None
        # Opened on first use: a reader also travels to the workers, an open log cannot.
        self._log: LocalLog | None = None

    def initialOffset(self) -> dict[str, int]:
        """Where a query without a checkpoint starts; raises `ConfigurationError` for bad `startingOffsets`."""
        offsets = self._opened_log().offsets(self._topic)
        if self._starting_offsets == "earliest":
            return _to_json({partition: found.start_offset for partition, found in offsets.items()})
        if self._starting_offsets == "latest":
            return _to_json({partition: found.end_offset for partition, found in offsets.items()})
        return _to_json(_parse_starting_offsets(self._starting_offsets, self._topic, offsets))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next micro-batch ends; waits a little when there is nothing new.

        Spark asks in a tight loop while the query is idle. Waiting here keeps the loop slow and still lets a new
        record through within milliseconds.
        """
        positions = _from_json(start)
        ends = self._ends(positions)
        if ends == positions and self._target is None and self._idle_wait_ms:
            watch = self._opened_log().watch_ends()
            watch.watch(self._topic, positions)
            if watch.wait(self._idle_wait_ms).partitions:
                ends = self._ends(positions)
        if isinstance(limit, ReadMaxRows):
            ends = limit_fairly(positions, ends, limit.max_rows)
        return _to_json(ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger` as Spark's admission control wants it."""
        return ReadAllAvailable() if self._max_offsets is None else ReadMaxRows(self._max_offsets)

    def reportLatestOffset(self) -> dict[str, int]:
        """The log's end, for the query's progress."""
        offsets = self._opened_log().offsets(self._topic)
        return _to_json({partition: found.end_offset for partition, found in offsets.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the log's present end."""
        self._target = _from_json(self.reportLatestOffset())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task for each partition that has something new."""
        positions, ends = _from_json(start), _from_json(end)
        ranges = [OffsetRange(self._topic, partition, positions[partition], ends[partition]) for partition in ends]
        return [RangesPartition([offset_range]) for offset_range in ranges if len(offset_range) > 0]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records; raises `OffsetOutOfRangeError` when they are gone."""
        return _read(self._path, partition, self._fail_on_data_loss)

    def stop(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def _opened_log(self) -> LocalLog:
        if self._log is None:
            self._log = LocalLog(self._path)
        return self._log

    def _ends(self, positions: Mapping[int, int]) -> dict[int, int]:
        offsets = self._opened_log().offsets(self._topic)
        if offsets.keys() != positions.keys():
            raise ConfigurationError(
                f"The query reads {len(positions)} partitions of topic {self._topic}, which has {len(offsets)}.",
                "Start with a new checkpoint folder.",
            )
        if self._fail_on_data_loss:
            for partition, position in positions.items():
                _check_still_there(self._topic, partition, position, offsets[partition])
        ends = {partition: found.end_offset for partition, found in offsets.items()}
        if self._target is not None:
            ends = {partition: min(end, self._target[partition]) for partition, end in ends.items()}
        return {partition: max(position, ends[partition]) for partition, position in positions.items()}


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
        return _read(self._path, partition, fail_on_data_loss=False)

    def _topic_ranges(self) -> list[OffsetRange]:
        with LocalLog(self._path) as log:
            offsets = log.offsets(self._topic)
        return [
            OffsetRange(self._topic, partition, found.start_offset, found.end_offset)
            for partition, found in offsets.items()
        ]


def _read(path: str, partition: InputPartition, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RangesPartition)
    with LocalLog(path) as log:
        for wanted in partition.ranges:
            for batch in read_arrow(
                log, wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset, fail_on_data_loss
            ):
                yield batch if wanted.delivery_count is None else _with_delivery_count(batch, wanted.delivery_count)


def _with_delivery_count(batch: pa.RecordBatch, delivery_count: int) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(delivery_count, _DELIVERY_COUNT.type), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=RECORD_SCHEMA.append(_DELIVERY_COUNT))


def _check_still_there(topic: str, partition: int, position: int, found: PartitionOffsets) -> None:
    if position < found.start_offset:
        problem = f"is below the log's start offset {found.start_offset}: records were deleted before they were read."
    elif position > found.end_offset:
        problem = f"is past the log's end offset {found.end_offset}: the log was lost or created again."
    else:
        return
    raise OffsetOutOfRangeError(
        f"Offset {position} of partition {topic}-{partition} {problem}",
        "To go on with what is there set the option failOnDataLoss to false, or start with a new checkpoint folder.",
    )


def _to_json(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _from_json(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def _parse_starting_offsets(text: str, topic: str, offsets: Mapping[int, PartitionOffsets]) -> dict[int, int]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    wanted = {str(partition) for partition in offsets}
    if isinstance(given, dict) and given.keys() == wanted and all(type(o) is int and o >= 0 for o in given.values()):
        return _from_json(given)
    raise ConfigurationError(
        f"startingOffsets is {text}, and topic {topic} has the partitions 0 to {len(offsets) - 1}.",
        'Give earliest, latest, or JSON {"partition": offset, ...} for every partition, offsets from 0.',
    )


def _refuse_unknown(options: Mapping[str, str], known: Sequence[str]) -> None:
    # Spark passes option names in lower case.
    unknown = sorted(options.keys() - {name.lower() for name in known})
    if unknown:
        raise ConfigurationError(
            f"The data source {FORMAT} has no option {unknown[0]!r} here.", f"Its options are {', '.join(known)}."
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


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"The option {name} is {text!r}.", "It must be true or false.")
    return text == "true"
