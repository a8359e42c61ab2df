"""Selection of records for an acquire: order, limits, throttling by delivery count (KIP-932, conformance 3 to 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from sharegroup.core.offset_ranges import clip, merge, split
from sharegroup.core.record_state import RecordState
from sharegroup.core.records import SharePartitionLimits, Transition
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap
from sharegroup.core.suspects import portion_size

_PAST_ALL_SIZES = 1 << 63
"""More records than any log holds."""


class AcquireMode(StrEnum):
    """`share.acquire.mode`: how strictly `max_records` is kept."""

    BATCH_OPTIMIZED = "batch_optimized"
    RECORD_LIMIT = "record_limit"


class AcquireRequest(NamedTuple):
    """A member's request for records of one share-partition.

    Attributes:
        max_records: maximum number of records; soft in batch_optimized, exact in record_limit.
        batch_size: batch_optimized splits the response into ranges of at most this many records.
        fair_part: maximum in either mode while other members wait for the rest; None when none waits.
        takes_suspects: True takes a portion of the suspects and nothing else; False passes over them.
    """

    member_id: str
    max_records: int
    batch_size: int = 500
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    fair_part: int | None = None
    takes_suspects: bool = False


def throttle_threshold(delivery_count_limit: int) -> int:
    """Return the delivery count from which records are acquired in ever smaller portions."""
    return max(2, (delivery_count_limit + 1) // 2)


def chosen_runs(
    available: Iterable[Run], fresh: Run | None, request: AcquireRequest, limits: SharePartitionLimits
) -> list[Run]:
    """Return the AVAILABLE records to acquire, lowest offsets first; the last run is cut at the limit.

    Args:
        available: those that are no suspects, by offset.
    """
    chosen: list[Run] = []
    wanted = request.max_records
    allowed = _PAST_ALL_SIZES if request.fair_part is None else request.fair_part
    threshold = throttle_threshold(limits.delivery_count_limit)
    is_throttled = False
    for run in _candidates(available, fresh):
        if wanted <= 0 or allowed <= 0:
            break
        if run.delivery_count >= threshold:
            if chosen and (not is_throttled or _is_last_delivery(run, limits)):
                break
            size = min(_throttled_size(run, limits, threshold), wanted, allowed)
            chosen.append(_portion(run, size))
            if _is_last_delivery(run, limits):
                break
            is_throttled = True
            wanted -= size
            allowed -= size
            continue
        if is_throttled:
            break
        size = wanted
        overshoot = run.size - wanted
        if request.mode is AcquireMode.BATCH_OPTIMIZED and run is not fresh and overshoot < request.batch_size:
            size = run.size
        chosen.append(_portion(run, min(size, allowed)))
        wanted -= chosen[-1].size
        allowed -= chosen[-1].size
    return chosen


def chosen_suspects(runs: RunMap, end_offset: int, request: AcquireRequest, limits: SharePartitionLimits) -> list[Run]:
    """Return the suspects below an offset to acquire: one portion, of one delivery count, lowest offsets first."""
    chosen: list[Run] = []
    allowed = request.max_records if request.fair_part is None else min(request.max_records, request.fair_part)
    for run in runs.available_below(end_offset, are_suspects=True):
        count = run.delivery_count
        if not chosen:
            allowed = min(allowed, portion_size(runs.suspect_count(count), count, limits.delivery_count_limit))
        if allowed <= 0 or (chosen and count != chosen[0].delivery_count):
            break
        chosen.append(_portion(run, allowed))
        allowed -= chosen[-1].size
    return chosen


def response_ranges(records: Iterable[Transition], request: AcquireRequest) -> list[Run]:
    """Return the acquired runs: neighbours with equal delivery counts merged, then split at `batch_size`."""
    acquired = merge((record.run for record in records), Run.is_alike)
    if request.mode is AcquireMode.RECORD_LIMIT:
        return list(acquired)
    return [part for run in acquired for part in split(run, request.batch_size)]


def _candidates(available: Iterable[Run], fresh: Run | None) -> Iterator[Run]:
    yield from available
    if fresh is not None:
        yield fresh


def _is_last_delivery(run: Run, limits: SharePartitionLimits) -> bool:
    return run.delivery_count >= limits.delivery_count_limit - 1


def _throttled_size(run: Run, limits: SharePartitionLimits, threshold: int) -> int:
    if _is_last_delivery(run, limits):
        return 1
    return max(1, run.size >> (run.delivery_count - threshold + 1))


def _portion(run: Run, size: int) -> Run:
    return clip(run, run.first_offset, run.first_offset + size - 1)


def fresh_run(next_offset: int, allowed_end: int, log_end_offset: int) -> Run | None:
    """Return the records never in flight: from `next_offset` to the end of what is allowed or the log (exclusive)."""
    end = min(allowed_end, log_end_offset)
    if next_offset >= end:
        return None
    return Run(next_offset, end - 1, RecordState.AVAILABLE, 0)
