"""A share-partition as a strip: a bounded number of segments, each of touching runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sharegroup.core.run import Run

MAX_SEGMENTS = 120
"""More cannot be distinguished on a screen, or be walked through by keyboard."""

WAITING = "WAITING"
"""State of records that were never in flight, up to the log end."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Touching runs of a share-partition.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        state: the state of most of its records.
        highest_delivery_count: the highest delivery count of its records.
        member_ids: members that hold records of it, sorted.
        record_count_by_state: state → records.
    """

    first_offset: int
    last_offset: int
    state: str
    highest_delivery_count: int
    member_ids: tuple[str, ...]
    record_count_by_state: dict[str, int]


def segments(
    runs: Sequence[Run], next_offset: int, log_end_offset: int | None, max_segments: int = MAX_SEGMENTS
) -> list[Segment]:
    """Return the segments of a share-partition by offset, and one for the records that wait above them.

    Args:
        runs: its runs by offset; where there are more than `max_segments`, as many touching ones as needed are one.
        next_offset: the lowest offset that was never in flight.
        log_end_offset: end of the log; None when it is unknown.
        max_segments: highest number of segments of runs.
    """
    size = -(-len(runs) // max_segments) or 1
    result = [_segment(piece) for piece in _pieces(runs, size)]
    if log_end_offset is not None and log_end_offset > next_offset:
        waiting = {WAITING: log_end_offset - next_offset}
        result.append(Segment(next_offset, log_end_offset - 1, WAITING, 0, (), waiting))
    return result


def _pieces(runs: Sequence[Run], size: int) -> Iterator[list[Run]]:
    remaining = iter(runs)
    while piece := list(islice(remaining, size)):
        yield piece


def _segment(runs: Sequence[Run]) -> Segment:
    counts: Counter[str] = Counter()
    for run in runs:
        counts[run.state.name] += run.size
    ((state, _),) = counts.most_common(1)
    return Segment(
        runs[0].first_offset,
        runs[-1].last_offset,
        state,
        max(run.delivery_count for run in runs),
        tuple(sorted({run.member_id for run in runs if run.member_id})),
        dict(counts),
    )
