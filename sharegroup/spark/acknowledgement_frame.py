"""From a handler's DataFrame of acknowledgements to acknowledged ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import HeldRange
from sharegroup.client.delivered import Said
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.share_fetch import MAX_REDELIVERY_DELAY_MS

DELAY_COLUMN = "redelivery_delay_ms"
"""May be missing: how long a record that is released stays away from everybody; null is as the group says."""

_REQUIRED_COLUMNS = ("topic", "partition", "offset", "acknowledge_type")

COLUMNS = (*_REQUIRED_COLUMNS, DELAY_COLUMN)

TYPES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""Values of the column `acknowledge_type`."""

_ACCEPTED = Said(AcknowledgeType.ACCEPT)

_Place = tuple[str, int]


class _Exception(NamedTuple):
    """A record that is not simply accepted."""

    offset: int
    said: Said


def acknowledgements_of(frame: DataFrame | None, held: Iterable[HeldRange]) -> list[Acknowledgement]:
    """Acknowledgements for all records of the held ranges; what the frame leaves out is accepted.

    Args:
        frame: topic, partition, offset, acknowledge_type, and redelivery_delay_ms if it is there; None accepts
            everything.
        held: the ranges that the handler was given.

    Raises:
        InvalidRequestError: a column is missing or no integer, a type is unknown, a delay is out of its bounds or of a
            record that is not released, or a record is there twice or not among the held ones.
    """
    held = list(held)
    exceptions = {} if frame is None else _exceptions(frame)
    _check_given(exceptions, held)
    return [part for found in held for part in _parts(found, exceptions.get((found.topic, found.partition), ()))]


def _exceptions(frame: DataFrame) -> dict[_Place, list[_Exception]]:
    """(topic, partition) → what is not accepted, by offset; brought to the driver."""
    frame = with_checked_columns(frame)
    # A type that is null is not accepted either, nor is a record with a delay: they are mistakes.
    is_accepted = F.col("acknowledge_type").eqNullSafe("accept") & F.col(DELAY_COLUMN).isNull()
    table: pa.Table = frame.select(*COLUMNS).where(~is_accepted).toArrow()
    found: dict[_Place, dict[int, Said]] = {}
    for topic, partition, offset, name, delay_ms in zip(*(column.to_pylist() for column in table.columns), strict=True):
        said = checked_said(name, delay_ms)
        if found.setdefault((topic, partition), {}).setdefault(offset, said) != said:
            raise InvalidRequestError(f"The handler acknowledged offset {offset} of {topic}-{partition} twice.")
        if topic is None or partition is None or offset is None:
            raise _not_given(topic, partition, offset)
    return {
        place: [_Exception(offset, entries[offset]) for offset in sorted(entries)] for place, entries in found.items()
    }


def with_checked_columns(frame: DataFrame) -> DataFrame:
    """Check that a frame has the columns of acknowledgements, and add the one that may be missing.

    Raises:
        InvalidRequestError: a column is missing, or is not an integer.
    """
    for column in _REQUIRED_COLUMNS:
        if column not in frame.columns:
            raise InvalidRequestError(
                f"The handler's acknowledgements lack the column {column}; they have {', '.join(frame.columns)}."
            )
    if DELAY_COLUMN not in frame.columns:
        frame = frame.withColumn(DELAY_COLUMN, F.lit(None).cast("long"))
    for column in ("partition", "offset", DELAY_COLUMN):
        type_ = frame.schema[column].dataType
        if not isinstance(type_, IntegralType):
            raise InvalidRequestError(
                f"The column {column} of the handler's acknowledgements is {type_.simpleString()}, not an integer."
            )
    return frame


def checked_said(name: str | None, delay_ms: int | None = None) -> Said:
    """What a row says of its record, by the columns acknowledge_type and redelivery_delay_ms.

    Raises:
        InvalidRequestError: the type is unknown, or the delay is out of its bounds or not for what is released.
    """
    kind = TYPES.get(name) if name is not None else None
    if kind is None:
        raise InvalidRequestError(f"acknowledge_type {name!r} is not one of {', '.join(TYPES)}.")
    is_released = kind is AcknowledgeType.RELEASE
    if delay_ms is not None and not (is_released and 0 <= delay_ms <= MAX_REDELIVERY_DELAY_MS):
        raise InvalidRequestError(
            f"{DELAY_COLUMN} is {delay_ms} where acknowledge_type is {name}; it must be from 0 to "
            f"{MAX_REDELIVERY_DELAY_MS}, and only for what is released."
        )
    return Said(kind, delay_ms)


def _check_given(exceptions: Mapping[_Place, Sequence[_Exception]], held: Iterable[HeldRange]) -> None:
    given: dict[_Place, set[int]] = {place: set() for place in exceptions}
    for found in held:
        place = (found.topic, found.partition)
        if place in given:
            given[place].update(entry.offset for entry in _within(found, exceptions[place]))
    for (topic, partition), entries in exceptions.items():
        for entry in entries:
            if entry.offset not in given[topic, partition]:
                raise _not_given(topic, partition, entry.offset)


def _not_given(topic: object, partition: object, offset: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"The handler acknowledged offset {offset} of {topic}-{partition}, which it was not given."
    )


def _within(held: HeldRange, exceptions: Sequence[_Exception]) -> Sequence[_Exception]:
    by_offset = attrgetter("offset")
    start = bisect_left(exceptions, held.first_offset, key=by_offset)
    return exceptions[start : bisect_right(exceptions, held.last_offset, lo=start, key=by_offset)]


def _parts(held: HeldRange, exceptions: Sequence[_Exception]) -> Iterator[Acknowledgement]:
    """The range cut into runs of one type each."""

    def part(first_offset: int, last_offset: int, said: Said) -> Acknowledgement:
        found = replace(held, first_offset=first_offset, last_offset=last_offset).acknowledgement(said.acknowledge_type)
        return replace(found, redelivery_delay_ms=said.redelivery_delay_ms)

    position = held.first_offset
    # Offsets that follow each other differ from their index by the same number.
    numbered = enumerate(_within(held, exceptions))
    for (_, said), run in groupby(numbered, key=lambda item: (item[1].offset - item[0], item[1].said)):
        offsets = [entry.offset for _, entry in run]
        if position < offsets[0]:
            yield part(position, offsets[0] - 1, _ACCEPTED)
        yield part(offsets[0], offsets[-1], said)
        position = offsets[-1] + 1
    if position <= held.last_offset:
        yield part(position, held.last_offset, _ACCEPTED)
