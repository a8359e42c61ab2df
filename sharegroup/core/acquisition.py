"""Which records an acquire takes: order, limits, and throttling by delivery count (KIP-932, conformance 3 to 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sharegroup.core.record_state import RecordState
from sharegroup.core.records import AcquiredRange, SharePartitionLimits
from sharegroup.core.runs import Run

_PAST_ALL_SIZES = 1 << 63
"""More records than any log holds."""


class AcquireMode(StrEnum):
    """`share.acquire.mode`: how strictly `max_records` is kept."""

    BATCH_OPTIMIZED = "batch_optimized"
    RECORD_LIMIT = "record_limit"


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """What a member asks of one share-partition.

    Attributes:
        member_id: the member.
        max_records: how many records at most; soft in batch_optimized, exact in record_limit.
        batch_size: batch_optimized splits the answer into ranges of at most this many records.
        mode: see AcquireMode.
        fair_part: at most so many, in either mode, because other members wait for the rest; None when none waits.
    """

    member_id: str
    max_records: int
    batch_size: int = 500
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    fair_part: int | None = None


def throttle_threshold(delivery_count_limit: int) -> int:
    """The delivery count from which on records are handed out in ever smaller portions."""
    return max(2, (delivery_count_limit + 1) // 2)


def chosen_runs(
    available: Iterable[Run], fresh: Run | None, request: AcquireRequest, limits: SharePartitionLimits
) -> list[Run]:
    """The AVAILABLE records to hand out, lowest offsets first, as runs that are cut where the choice ends.

    Args:
        available: AVAILABLE runs in flight that need not wait any more, by offset.
        fresh: records never in flight that the window still allows (delivery count 0), None when there are none.
        request: what is asked for.
        limits: limits in force.
    """
    chosen: list[Run] = []
    wanted = request.max_records
    allowed = _PAST_ALL_SIZES if request.fair_part is None else request.fair_part
    threshold = throttle_threshold(limits.delivery_count_limit)
    for run in _candidates(available, fresh):
        if wanted <= 0 or allowed <= 0:
            break
        if run.delivery_count >= threshold:
            if not chosen:
                chosen.append(_portion(run, min(_throttled_size(run, limits, threshold), wanted, allowed)))
            break
        size = wanted
        overshoot = run.size - wanted
        if request.mode is AcquireMode.BATCH_OPTIMIZED and run is not fresh and overshoot < request.batch_size:
            size = run.size
        chosen.append(_portion(run, min(size, allowed)))
        wanted -= chosen[-1].size
        allowed -= chosen[-1].size
    return chosen


def answer_ranges(chosen: Iterable[Run], request: AcquireRequest) -> list[AcquiredRange]:
    """The ranges of the answer: counts raised by this delivery, neighbours merged, split at `batch_size`."""
    merged: list[AcquiredRange] = []
    for run in chosen:
        delivery_count = run.delivery_count + 1
        last = merged[-1] if merged else None
        if last and last.last_offset + 1 == run.first_offset and last.delivery_count == delivery_count:
            merged[-1] = AcquiredRange(last.first_offset, run.last_offset, delivery_count)
        else:
            merged.append(AcquiredRange(run.first_offset, run.last_offset, delivery_count))
    if request.mode is AcquireMode.RECORD_LIMIT:
        return merged
    return [piece for whole in merged for piece in _split(whole, request.batch_size)]


def _candidates(available: Iterable[Run], fresh: Run | None) -> Iterator[Run]:
    yield from available
    if fresh is not None:
        yield fresh


def _throttled_size(run: Run, limits: SharePartitionLimits, threshold: int) -> int:
    if run.delivery_count >= limits.delivery_count_limit - 1:
        return 1
    return max(1, run.size >> (run.delivery_count - threshold + 1))


def _portion(run: Run, size: int) -> Run:
    return run.clipped(run.first_offset, run.first_offset + min(size, run.size) - 1)


def _split(whole: AcquiredRange, batch_size: int) -> Iterator[AcquiredRange]:
    for first in range(whole.first_offset, whole.last_offset + 1, batch_size):
        yield AcquiredRange(first, min(first + batch_size - 1, whole.last_offset), whole.delivery_count)


def fresh_run(next_offset: int, window_end: int, log_end_offset: int) -> Run | None:
    """Records never in flight: from `next_offset` up to the window's and the log's end (both exclusive)."""
    end = min(window_end, log_end_offset)
    if next_offset >= end:
        return None
    return Run(next_offset, end - 1, RecordState.AVAILABLE, 0)
