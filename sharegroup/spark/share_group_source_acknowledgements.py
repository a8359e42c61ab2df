"""Acknowledgement of single records in `foreachBatch`, and how it reaches the member that holds them.

The function of `foreachBatch` and the query's member live in different processes. Between them is a folder, one for
each batch, whose path the batch's rows and its offset carry. `acknowledge` leaves a file there; the member reads all of
them once the batch is committed, and deletes the folder when its acknowledgements are answered. So acknowledgements
take effect with the commit of the batch, or not at all: a batch that is executed again begins with an empty folder.

What nothing was said of is released when the batch is committed. Kafka's consumer would refuse to poll ("All records
must be acknowledged in explicit acknowledgement mode") and release it when closed; a query cannot go back to ask.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup.client.acknowledgements import Acknowledgement, PendingAcknowledgements
from sharegroup.client.acquisition import HeldRange
from sharegroup.client.delivered import Said
from sharegroup.client.record_reader import RecordReader
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError
from sharegroup.logs.local_arrow import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from sharegroup.logs.port import Log
from sharegroup.spark.acknowledgement_frame import COLUMNS, DELAY_COLUMN, checked_said, with_checked_columns
from sharegroup.spark.share_group_source_offset import AcquiredOffset
from sharegroup.spark.share_group_source_records import ACQUISITION_COLUMN

_Place = tuple[str, int, int]
"""Topic, partition, offset."""
_Said = tuple[str, int | None]
"""Acknowledge type, and redelivery_delay_ms."""
_Run = tuple[str, int, int, int, str, int | None]
"""Topic, partition, first offset, last offset, and what is said of them."""

_UNMENTIONED = "the application said nothing of it"


@dataclass(frozen=True, slots=True)
class BatchAcknowledgements:
    """What is to be said of a batch.

    Attributes:
        acknowledgements: every record of the batch once.
        unmentioned_count: those that are released because nothing was said of them.
    """

    acknowledgements: list[Acknowledgement]
    unmentioned_count: int


def acknowledge(
    records: DataFrame, acknowledge_type: str | None = None, *, redelivery_delay_ms: int | None = None
) -> None:
    """Say in `foreachBatch` what becomes of records of the batch; it counts when Spark commits the batch.

    To be called as often as is needed; of two types for one record the later counts. Records that nothing is said of
    are released. A batch that was begun before the query was told to acknowledge explicitly is accepted, whatever is
    said.

    Args:
        records: rows of the batch with the columns topic, partition, offset and acquisition; and acknowledge_type
            (`accept`, `release` or `reject`), unless the argument gives it; and redelivery_delay_ms, if released
            records are to stay away from everybody for a while: null is as the group says.
        acknowledge_type: one type for all of them.
        redelivery_delay_ms: one delay for all of them, at most a week; they must be released.

    Raises:
        InvalidRequestError: the query does not acknowledge explicitly, a column is missing or of a wrong type, an
            acknowledge type is unknown, a delay is out of its bounds or of a record that is not released, or the
            records are not of a batch at hand.
    """
    arguments = {"acknowledge_type": acknowledge_type, DELAY_COLUMN: redelivery_delay_ms}
    frame = records.withColumns({name: F.lit(value) for name, value in arguments.items() if value is not None})
    if ACQUISITION_COLUMN not in frame.columns:
        raise InvalidRequestError(
            f"The records lack the column {ACQUISITION_COLUMN}.",
            "Set the query's option share.acknowledgement.mode to explicit, and keep the column in what is selected.",
        )
    frame = with_checked_columns(frame)
    table: pa.Table = frame.select(ACQUISITION_COLUMN, *COLUMNS).toArrow()
    rows = zip(*(table.column(name).to_pylist() for name in (ACQUISITION_COLUMN, *COLUMNS)), strict=True)
    by_acquisition: dict[str, dict[_Place, _Said]] = {}
    for acquisition, topic, partition, offset, name, delay_ms in rows:
        checked_said(name, delay_ms)
        if acquisition == "":
            continue
        if None in (acquisition, topic, partition, offset):
            raise InvalidRequestError(f"Offset {offset} of {topic}-{partition} is not one of the batch.")
        said = by_acquisition.setdefault(acquisition, {})
        if said.setdefault((topic, partition, offset), (name, delay_ms)) != (name, delay_ms):
            raise InvalidRequestError(f"Offset {offset} of {topic}-{partition} is acknowledged twice.")
    for acquisition, said in by_acquisition.items():
        _write(Path(acquisition), list(_runs(said)))


def make_folder(offset: AcquiredOffset) -> None:
    """Make room for what will be said of a batch; what an earlier execution of it said is gone."""
    delete_folder(offset)
    if offset.folder is not None:
        offset.folder.mkdir(parents=True, mode=0o700)


def delete_folder(offset: AcquiredOffset) -> None:
    """Forget what was said of a batch: its acknowledgements are answered."""
    if offset.folder is not None:
        shutil.rmtree(offset.folder, ignore_errors=True)


def acknowledgements_of(offset: AcquiredOffset, log: Log) -> BatchAcknowledgements:
    """What is to be said of all records of a batch that is committed.

    Nothing of one whose folder is gone: its acknowledgements were answered, or are lost and its locks end.

    Args:
        offset: the batch.
        log: the record log, which is asked about offsets that nothing was said of: a record may be missing there.
    """
    if offset.folder is None:
        return BatchAcknowledgements([held.acknowledgement(AcknowledgeType.ACCEPT) for held in offset.ranges], 0)
    if not offset.folder.exists():
        return BatchAcknowledgements([], 0)
    pending = PendingAcknowledgements()
    for held in offset.ranges:
        pending.put(held.acknowledgement(AcknowledgeType.RELEASE, _UNMENTIONED))
    for acknowledgement in _of_single_records(offset):
        pending.put(acknowledgement)
    unmentioned = [found for found in pending if found.reason == _UNMENTIONED]
    for missing in _missing(log, unmentioned, offset.ranges[0].isolation_level):
        pending.put(missing)
    count = sum(len(found.offsets) for found in pending if found.reason == _UNMENTIONED)
    return BatchAcknowledgements(list(pending), count)


def _missing(
    log: Log, unmentioned: Iterable[Acknowledgement], isolation_level: IsolationLevel
) -> Iterator[Acknowledgement]:
    """Those of some offsets that have no record, because of a transaction, of compaction or of deletion."""
    rest = tuple(
        HeldRange(a.topic_id, a.topic, a.partition, a.first_offset, a.last_offset, 1, isolation_level)
        for a in unmentioned
    )
    reader = RecordReader(log, MAX_BATCH_BYTES)
    while rest:
        chunk = reader.read(rest, MAX_BATCH_RECORDS)
        yield from chunk.missing
        rest = chunk.rest


def _of_single_records(offset: AcquiredOffset) -> Iterator[Acknowledgement]:
    """What the files of a batch say of records that are in it, in the order in which it was said."""
    held: dict[tuple[str, int], list[HeldRange]] = {}
    for found in sorted(offset.ranges, key=lambda found: found.first_offset):
        held.setdefault((found.topic, found.partition), []).append(found)
    for topic, partition, first, last, said in _read(offset.folder):
        ranges = held.get((topic, partition), [])
        start = bisect_left(ranges, first, key=lambda found: found.last_offset)
        for found in ranges[start:]:
            if found.first_offset > last:
                break
            first_offset, last_offset = max(first, found.first_offset), min(last, found.last_offset)
            yield Acknowledgement(
                found.topic_id,
                partition,
                first_offset,
                last_offset,
                said.acknowledge_type,
                topic=topic,
                redelivery_delay_ms=said.redelivery_delay_ms,
            )


def _runs(said: Mapping[_Place, _Said]) -> Iterator[_Run]:
    """Offsets that follow each other and of which the same is said, together."""
    # Offsets that follow each other differ from their index by the same number.
    numbered = enumerate(sorted(said.items()))
    runs = groupby(numbered, key=lambda item: (*item[1][0][:2], item[1][1], item[1][0][2] - item[0]))
    for (topic, partition, (name, delay_ms), _), run in runs:
        offsets = [place[2] for _, (place, _) in run]
        yield topic, partition, offsets[0], offsets[-1], name, delay_ms


def _write(folder: Path, said: list[_Run]) -> None:
    """Leave a file that is there as a whole or not at all; names are in the order of the calls."""
    try:
        count = sum(1 for _ in folder.iterdir())
        temporary = folder / f"{secrets.token_hex(8)}.tmp"
        temporary.write_text(json.dumps(said), encoding="utf-8")
        os.replace(temporary, folder / f"{count:06d}-{secrets.token_hex(4)}.json")
    except FileNotFoundError as error:
        raise InvalidRequestError(
            f"The records of acquisition {folder} are not of a batch at hand.",
            "Acknowledge in foreachBatch, before it returns, and on the machine of the driver.",
        ) from error


def _read(folder: Path | None) -> Iterator[tuple[str, int, int, int, Said]]:
    for path in sorted(folder.glob("*.json")) if folder is not None else ():
        # A file of an earlier release has no delay.
        for topic, partition, first, last, *said in json.loads(path.read_text(encoding="utf-8")):
            yield topic, partition, first, last, checked_said(*said)
