"""Explicit acknowledgement of a batch: `acknowledge` for the application, and the member's side after the commit.

`folder` carries the acknowledgements from one to the other.

Unacknowledged records are released when the batch is committed. Kafka's consumer would refuse to poll ("All records
must be acknowledged in explicit acknowledgement mode") and release them when closed; a query cannot ask again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import (
    Acknowledgement,
    OffsetKey,
    PendingAcknowledgements,
    RecordAcknowledgement,
    run_acknowledgement,
)
from sharegroup.client.record_reader import RecordReader
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError
from sharegroup.logs.local_arrow import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from sharegroup.logs.port import Log
from sharegroup.spark.acknowledgement_frame import COLUMNS, DELAY_COLUMN, check_columns, parse_acknowledgement
from sharegroup.spark.held_ranges import without_unreadable
from sharegroup.spark.source.folder import AcknowledgementFolder
from sharegroup.spark.source.offset import AcquiredOffset
from sharegroup.spark.source.task_records import ACQUISITION_COLUMN

_UNACKNOWLEDGED = "the application did not acknowledge it"


def acknowledge(
    records: DataFrame, acknowledge_type: str | None = None, *, redelivery_delay_ms: int | None = None
) -> None:
    """Acknowledge records of the batch in `foreachBatch`; it takes effect when Spark commits the batch.

    Call it as often as needed; of two types for one record the later counts. Unacknowledged records are released. A
    batch that was begun before the query was set to explicit acknowledgement is accepted in any case.

    Args:
        records: rows of the batch with the columns topic, partition, offset and acquisition; acknowledge_type
            (`accept`, `release` or `reject`), unless the argument gives it; and redelivery_delay_ms, if released
            records are to stay unavailable for a while: null leaves it to the group.
        acknowledge_type: one type for all of them.
        redelivery_delay_ms: one delay for all of them, at most a week; they must be released.

    Raises:
        InvalidRequestError: the query does not acknowledge explicitly, a column is missing or of a wrong type, an
            acknowledge type is unknown, a delay is out of its bounds or of a record that is not released, an
            offset or a topic was not in the batch, or the batch is not being executed.
    """
    arguments = {"acknowledge_type": acknowledge_type, DELAY_COLUMN: redelivery_delay_ms}
    frame = records.withColumns({name: F.lit(value) for name, value in arguments.items() if value is not None})
    # All rows are read and checked before anything is written.
    by_folder = {AcknowledgementFolder(Path(path)): list(_runs(a)) for path, a in _read_by_folder(frame).items()}
    for folder, runs in by_folder.items():
        folder.check(runs)
    for folder, runs in by_folder.items():
        folder.append(runs)


def _read_by_folder(frame: DataFrame) -> dict[str, dict[OffsetKey, RecordAcknowledgement]]:
    """Read rows to the driver, and return their acknowledgements by the folder of their batch."""
    if ACQUISITION_COLUMN not in frame.columns:
        raise InvalidRequestError(
            f"The records lack the column {ACQUISITION_COLUMN}.",
            "Set the query's option share.acknowledgement.mode to explicit, and keep the column in what is selected.",
        )
    table: pa.Table = check_columns(frame).select(ACQUISITION_COLUMN, *COLUMNS).toArrow()
    by_folder: dict[str, dict[OffsetKey, RecordAcknowledgement]] = defaultdict(dict)
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    for path, topic, partition, offset, type_name, delay_ms in rows:
        acknowledgement = parse_acknowledgement(type_name, delay_ms)
        if path == "":
            # The batch was begun with implicit acknowledgement.
            continue
        if None in (path, topic, partition, offset):
            raise InvalidRequestError(f"Offset {offset} of {topic}-{partition} is not one of the batch.")
        if by_folder[path].setdefault((topic, partition, offset), acknowledgement) != acknowledgement:
            raise InvalidRequestError(f"Offset {offset} of {topic}-{partition} is acknowledged twice.")
    return by_folder


def _runs(acknowledgements: Mapping[OffsetKey, RecordAcknowledgement]) -> Iterator[Acknowledgement]:
    """Return the acknowledgements as runs of offsets; the rows of a batch have no topic id."""
    partitions: dict[tuple[str, int], RangeMap[RecordAcknowledgement]] = defaultdict(RangeMap)
    for (topic, partition, offset), acknowledgement in sorted(acknowledgements.items(), key=itemgetter(0)):
        partitions[topic, partition].assign(offset, offset, acknowledgement)
    for (topic, partition), runs in partitions.items():
        for first_offset, last_offset, acknowledgement in runs:
            yield run_acknowledgement(("", partition), topic, first_offset, last_offset, acknowledgement)


def acknowledgements_of(batch: AcquiredOffset, log: Log) -> tuple[list[Acknowledgement], int]:
    """Return acknowledgements of every record of a committed batch, and how many the application left out.

    A batch whose folder is gone has none: its acknowledgements had their responses, or they are lost and its locks end.

    Args:
        log: the record log; it shows which unacknowledged offsets have no record.
    """
    if batch.folder is None:
        return [held.acknowledgement(AcknowledgeType.ACCEPT) for held in batch.ranges], 0
    if not batch.folder.exists():
        return [], 0
    pending = PendingAcknowledgements()
    # 1. Release all records, …
    for held in batch.ranges:
        pending.put(held.acknowledgement(AcknowledgeType.RELEASE, _UNACKNOWLEDGED))
    # 2. … except those that the application acknowledged, …
    for acknowledgement in _read_acknowledgements(batch.folder, batch.ranges):
        pending.put(acknowledgement)
    # 3. … and except offsets without a record, of which the application cannot know.
    level = batch.ranges[0].isolation_level
    releases = (
        HeldRange(a.topic_id, a.topic, a.partition, a.first_offset, a.last_offset, 1, level)
        for a in _unacknowledged(pending)
    )
    for gap in _missing_records(log, releases):
        pending.put(gap)
    return list(pending), sum(len(release.offsets) for release in _unacknowledged(pending))


def _read_acknowledgements(folder: AcknowledgementFolder, ranges: Iterable[HeldRange]) -> Iterator[Acknowledgement]:
    """Return the application's acknowledgements of held records, in the order of its calls."""
    partitions: dict[tuple[str, int], RangeMap[HeldRange]] = defaultdict(RangeMap)
    for held in ranges:
        partitions[held.topic, held.partition].assign(held.first_offset, held.last_offset, held)
    for run in folder.runs():
        for first, last, held in partitions[run.topic, run.partition].overlapping(run.first_offset, run.last_offset):
            yield run_acknowledgement(held.key, held.topic, first, last, run.of_record)


def _unacknowledged(pending: Iterable[Acknowledgement]) -> list[Acknowledgement]:
    """Return the releases of records that the application did not acknowledge."""
    return [acknowledgement for acknowledgement in pending if acknowledgement.reason == _UNACKNOWLEDGED]


def acknowledgements_without_rows(batch: AcquiredOffset, log: Log) -> list[Acknowledgement] | None:
    """Return acknowledgements of a batch none of whose offsets has a record; None if one has.

    No row of such a batch has named its write, so nobody has begun it, and it can be given up.
    """
    readable, unreadable = without_unreadable(log, batch.ranges)
    missing = list(_missing_records(log, readable))
    if sum(len(gap.offsets) for gap in missing) < sum(held.record_count for held in readable):
        return None
    return [*unreadable, *missing, *batch.given_up]


def _missing_records(log: Log, ranges: Iterable[HeldRange]) -> Iterator[Acknowledgement]:
    """Return gaps for offsets without a record: a transaction's marker, compacted, or deleted."""
    rest = tuple(ranges)
    reader = RecordReader(log, MAX_BATCH_BYTES)
    while rest:
        chunk = reader.read(rest, MAX_BATCH_RECORDS)
        yield from chunk.missing
        rest = chunk.rest
