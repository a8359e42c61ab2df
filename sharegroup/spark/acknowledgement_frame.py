"""A DataFrame of acknowledgements: its columns, its rows, and the acknowledged ranges that a worker's handler returns.

The worker and the Spark source accept the same columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import (
    Acknowledgement,
    OffsetKey,
    RecordAcknowledgement,
    run_acknowledgement,
)
from sharegroup.core.cause_rules import ANSWER_CAUSE
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.share_fetch import MAX_REDELIVERY_DELAY_MS

DELAY_COLUMN = "redelivery_delay_ms"
"""Optional: the time for which a released record stays unavailable; null leaves it to the group."""

_TYPE_COLUMN = "acknowledge_type"
_REQUIRED_COLUMNS = ("topic", "partition", "offset", _TYPE_COLUMN)

COLUMNS = (*_REQUIRED_COLUMNS, DELAY_COLUMN)

TYPES = {cause.value: kind for kind, cause in ANSWER_CAUSE.items()}
"""Values of the column `acknowledge_type`."""

_ACCEPTED = RecordAcknowledgement(AcknowledgeType.ACCEPT)


def acknowledgements_of(frame: DataFrame | None, ranges: Iterable[HeldRange]) -> list[Acknowledgement]:
    """Return acknowledgements of all records of held ranges; records that the frame leaves out are accepted.

    Args:
        frame: topic, partition, offset, acknowledge_type, and optionally redelivery_delay_ms; None accepts all records.
        ranges: the ranges that the handler received.

    Raises:
        InvalidRequestError: a column is missing or no integer, a type is unknown, a delay is out of its bounds or of a
            record that is not released, or a record is there twice or not among the held ones.
    """
    ranges = list(ranges)
    # 1. Accept all records …
    partitions: dict[tuple[str, int], RangeMap[RecordAcknowledgement]] = defaultdict(RangeMap)
    for held in ranges:
        partitions[held.topic, held.partition].assign(held.first_offset, held.last_offset, _ACCEPTED)
    # 2. … except those with another acknowledgement. In ascending order each changes the end of its map only.
    not_accepted = {} if frame is None else _read_not_accepted(frame)
    for (topic, partition, offset), acknowledgement in sorted(not_accepted.items(), key=itemgetter(0)):
        if not partitions[topic, partition].holds(offset):
            raise _not_held(topic, partition, offset)
        partitions[topic, partition].assign(offset, offset, acknowledgement)
    # 3. Return the runs of each held range.
    return [
        run_acknowledgement(held.key, held.topic, *run)
        for held in ranges
        for run in partitions[held.topic, held.partition].overlapping(held.first_offset, held.last_offset)
    ]


def checked_result(result: object) -> DataFrame | None:
    """Return what a handler returned, a frame with all columns of acknowledgements; it reads no row.

    Raises:
        InvalidRequestError: it is neither a DataFrame of Spark nor None, a column is missing, or is no integer.
    """
    if result is None:
        return None
    if not isinstance(result, DataFrame):
        raise InvalidRequestError(
            f"The handler returned an object of type {type(result).__module__}.{type(result).__qualname__}.",
            "Return a DataFrame of Spark with the records that are not accepted, or None if all are.",
        )
    return check_columns(result)


def checked_results(result: object) -> tuple[DataFrame, DataFrame | None]:
    """Return what a handler with a sink returned: rows, and acknowledgements if there are any; it reads no row.

    Raises:
        InvalidRequestError: it is neither a DataFrame of Spark nor a pair of them, or has acknowledgements alone.
    """
    rows, frame = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(rows, DataFrame):
        raise InvalidRequestError(
            f"The handler returned an object of type {type(rows).__module__}.{type(rows).__qualname__} for the sink.",
            "Return a DataFrame of Spark with the rows, which may be empty, or a pair of rows and acknowledgements.",
        )
    if rows is result and _TYPE_COLUMN in rows.columns:
        raise InvalidRequestError(
            f"The handler returned rows with the column {_TYPE_COLUMN} for the sink, and no acknowledgements.",
            "Return a pair: the rows of the sink, and the acknowledgements, or None if all records are accepted.",
        )
    return rows, checked_result(frame)


def check_not_renewed(acknowledgements: Iterable[Acknowledgement]) -> None:
    """Check that no record is renewed: its acquisition is written in one commit.

    Raises:
        InvalidRequestError: one is.
    """
    for ack in acknowledgements:
        if ack.acknowledge_type is AcknowledgeType.RENEW:
            raise InvalidRequestError(
                f"Offset {ack.first_offset} of {ack.topic}-{ack.partition} is renewed; with a sink, all records of an "
                "acquisition are decided in one commit.",
                "Release it with a redelivery_delay_ms, or let the handler take longer: locks are renewed meanwhile.",
            )


def check_columns(frame: DataFrame) -> DataFrame:
    """Check that a frame has the columns of acknowledgements, and add the optional one.

    Raises:
        InvalidRequestError: a column is missing, or is not an integer.
    """
    for column in _REQUIRED_COLUMNS:
        if column not in frame.columns:
            raise InvalidRequestError(
                f"The acknowledgements lack the column {column}; they have {', '.join(frame.columns) or 'none'}."
            )
    if DELAY_COLUMN not in frame.columns:
        frame = frame.withColumn(DELAY_COLUMN, F.lit(None).cast("long"))
    for column in ("partition", "offset", DELAY_COLUMN):
        column_type = frame.schema[column].dataType
        if not isinstance(column_type, IntegralType):
            raise InvalidRequestError(
                f"The column {column} of the acknowledgements is {column_type.simpleString()}, not an integer."
            )
    return frame


def parse_acknowledgement(type_name: str | None, delay_ms: int | None = None) -> RecordAcknowledgement:
    """Parse the columns acknowledge_type and redelivery_delay_ms of a row.

    Raises:
        InvalidRequestError: the type is unknown, or the delay is out of its bounds or of a record that is not released.
    """
    acknowledge_type = TYPES.get(type_name) if type_name is not None else None
    if acknowledge_type is None:
        raise InvalidRequestError(f"acknowledge_type {type_name!r} is not one of {', '.join(TYPES)}.")
    is_released = acknowledge_type is AcknowledgeType.RELEASE
    if delay_ms is not None and not (is_released and 0 <= delay_ms <= MAX_REDELIVERY_DELAY_MS):
        raise InvalidRequestError(
            f"{DELAY_COLUMN} is {delay_ms} where acknowledge_type is {type_name}; it must be from 0 to "
            f"{MAX_REDELIVERY_DELAY_MS}, and only for released records."
        )
    return RecordAcknowledgement(acknowledge_type, delay_ms)


def _read_not_accepted(frame: DataFrame) -> dict[OffsetKey, RecordAcknowledgement]:
    """Read the rows that do not accept their record to the driver."""
    frame = check_columns(frame)
    # A null type and a delay of an accepted record are kept: they are errors.
    is_accepted = F.col("acknowledge_type").eqNullSafe("accept") & F.col(DELAY_COLUMN).isNull()
    table: pa.Table = frame.select(*COLUMNS).where(~is_accepted).toArrow()
    not_accepted: dict[OffsetKey, RecordAcknowledgement] = {}
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    for topic, partition, offset, type_name, delay_ms in rows:
        acknowledgement = parse_acknowledgement(type_name, delay_ms)
        if None in (topic, partition, offset):
            raise _not_held(topic, partition, offset)
        if not_accepted.setdefault((topic, partition, offset), acknowledgement) != acknowledgement:
            raise InvalidRequestError(f"The handler acknowledged offset {offset} of {topic}-{partition} twice.")
    return not_accepted


def _not_held(topic: object, partition: object, offset: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"The handler acknowledged offset {offset} of {topic}-{partition}, which it did not receive."
    )
