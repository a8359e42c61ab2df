"""Redrive: archived records at or above the share-partition start offset (SPSO) become available again.

Kafka has no redrive: an archived record stays archived there. Below the SPSO no state is left, so a record there can
only be delivered again as a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError

_SHOWN_RANGES = 5


def archived_runs(runs: RunMap, start_offset: int, ranges: Iterable[OffsetRange]) -> list[Run]:
    """Return the runs of ranges whose records are all ARCHIVED.

    Args:
        ranges: (first, last) offsets, ascending.

    Raises:
        InvalidRequestError: a range is reversed, or not above the one before it.
        InvalidRecordStateError: some records are not ARCHIVED, or not in flight; names them.
    """
    ranges = list(ranges)
    _check_ascending(ranges)
    archived: list[Run] = []
    others: list[str] = []
    for first, last in ranges:
        for run in runs.overlapping(first, last):
            if run.state is RecordState.ARCHIVED:
                archived.append(run)
            else:
                others.append(f"{run.first_offset}..{run.last_offset} {run.state.name}")
        others += _outside(runs, start_offset, first, last)
    if others:
        shown = ", ".join(others[:_SHOWN_RANGES]) + (", …" if len(others) > _SHOWN_RANGES else "")
        raise InvalidRecordStateError(
            f"Some records are not ARCHIVED at or above the start offset {start_offset}: {shown}.",
            "Request those that are; nothing was changed.",
        )
    return archived


def _check_ascending(ranges: Iterable[OffsetRange]) -> None:
    last_before = -1
    for first, last in ranges:
        if not last_before < first <= last:
            raise InvalidRequestError(
                f"Offsets {first}..{last} are not an ascending range above {last_before}, the end of the one before."
            )
        last_before = last


def _outside(runs: RunMap, start_offset: int, first: int, last: int) -> Iterator[str]:
    """Yield a text for each part of a range that is not in flight."""
    if first < start_offset:
        yield f"{first}..{min(last, start_offset - 1)} below it"
    last_in_flight = runs.last_offset
    end = start_offset - 1 if last_in_flight is None else last_in_flight
    if last > end:
        yield f"{max(first, end + 1)}..{last} never in flight"
