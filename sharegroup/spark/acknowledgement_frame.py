"""From a handler's DataFrame of acknowledgements to acknowledged ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import HeldRange
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError

COLUMNS = ("topic", "partition", "offset", "acknowledge_type")

TYPES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""Values of the column `acknowledge_type`."""


def acknowledgements_of(frame: DataFrame | None, held: Iterable[HeldRange]) -> list[Acknowledgement]:
    """Acknowledgements for all records of the held ranges; what the frame leaves out is accepted.

    Args:
        frame: topic, partition, offset, acknowledge_type; None accepts everything.
        held: the ranges that the handler was given.

    Raises:
        InvalidRequestError: a column is missing, a type is unknown, or a record is not among the held ones.
    """
    held = list(held)
    exceptions = _exceptions(frame) if frame is not None else {}
    acknowledgements: list[Acknowledgement] = []
    for found in held:
        named = exceptions.pop((found.topic, found.partition), {})
        inside = {offset: kind for offset, kind in named.items() if found.first_offset <= offset <= found.last_offset}
        outside = {offset: kind for offset, kind in named.items() if offset not in inside}
        if outside:
            exceptions[found.topic, found.partition] = outside
        acknowledgements.extend(_pieces(found, inside))
    for (topic, partition), offsets in exceptions.items():
        raise InvalidRequestError(
            f"The handler acknowledged offset {min(offsets)} of {topic}-{partition}, which it was not given."
        )
    return acknowledgements


def _exceptions(frame: DataFrame) -> dict[tuple[str, int], dict[int, AcknowledgeType]]:
    """(topic, partition) → offset → type, of the records that are not accepted; brought to the driver."""
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise InvalidRequestError(
            f"The handler's acknowledgements lack the column {missing[0]}; they have {', '.join(frame.columns)}."
        )
    wanted = frame.select(*COLUMNS).where(F.col("acknowledge_type") != "accept")
    found: dict[tuple[str, int], dict[int, AcknowledgeType]] = {}
    table: pa.Table = wanted.toArrow()
    for topic, partition, offset, name in zip(*(table.column(c).to_pylist() for c in COLUMNS), strict=True):
        kind = TYPES.get(name)
        if kind is None:
            raise InvalidRequestError(f"acknowledge_type {name!r} is not one of {', '.join(TYPES)}.")
        found.setdefault((topic, partition), {})[offset] = kind
    return found


def _pieces(held: HeldRange, exceptions: dict[int, AcknowledgeType]) -> Iterator[Acknowledgement]:
    """The range cut into runs of one type each."""
    position = held.first_offset
    pending: tuple[int, int, AcknowledgeType] | None = None
    for offset in sorted(exceptions):
        kind = exceptions[offset]
        if pending is not None and pending[1] + 1 == offset and pending[2] is kind:
            pending = (pending[0], offset, kind)
        else:
            if pending is not None:
                yield _acknowledgement(held, *pending)
            if position < offset:
                yield _acknowledgement(held, position, offset - 1, AcknowledgeType.ACCEPT)
            pending = (offset, offset, kind)
        position = offset + 1
    if pending is not None:
        yield _acknowledgement(held, *pending)
    if position <= held.last_offset:
        yield _acknowledgement(held, position, held.last_offset, AcknowledgeType.ACCEPT)


def _acknowledgement(held: HeldRange, first_offset: int, last_offset: int, kind: AcknowledgeType) -> Acknowledgement:
    return Acknowledgement(held.topic_id, held.partition, first_offset, last_offset, kind)
