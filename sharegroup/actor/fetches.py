"""Serving the fetches that wait: in order of arrival, each at most its fair part of what is available."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sharegroup.actor.answers import grouped_by_topic
from sharegroup.actor.context import CutTime
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.share_session import PartitionKey, PendingFetch, ShareSession
from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.records import SharePartitionLimits
from sharegroup.errors import UnknownTopicOrPartitionError
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse

MAX_RANGES_PER_ANSWER = 10_000
"""Ranges of one answer, about a megabyte; those of the share-partition that exceeds it are all in."""


def serve_fetches(
    sessions: Iterable[ShareSession],
    partitions: Mapping[PartitionKey, LedPartition],
    limits: SharePartitionLimits,
    offsets: KnownOffsets,
    isolation_level: IsolationLevel,
    time: CutTime,
) -> list[tuple[ShareSession, ShareFetchResponse]]:
    """Acquire records for the waiting fetches, and say which of them are answered now.

    A fetch is answered when it got records, carried acknowledgements, met an error, or has waited long enough.

    Args:
        sessions: all sessions of the group.
        partitions: the share-partitions that are led here.
        limits: limits in force.
        offsets: what is known of the record log.
        isolation_level: the group's.
        time: the batch's time; new locks run from it.
    """
    waiting = [(session, session.pending) for session in sessions if session.pending]
    waiting.sort(key=lambda entry: entry[1].request_offset)
    claims = Counter(key for session, fetch in waiting if fetch.max_records for key in session.partitions)
    ends = {key: offsets.acquirable_end(key, isolation_level) for key in claims}
    answers = []
    for session, fetch in waiting:
        responses = dict(fetch.acknowledged)
        if fetch.max_records:
            _acquire(session, fetch, partitions, limits, ends, time, claims, responses)
            claims.subtract(session.partitions)
        if responses or fetch.deadline_ms <= time.lock_start_ms:
            answers.append((session, _response(session, responses, limits, isolation_level, time)))
    return answers


def _acquire(
    session: ShareSession,
    fetch: PendingFetch,
    partitions: Mapping[PartitionKey, LedPartition],
    limits: SharePartitionLimits,
    ends: Mapping[PartitionKey, int],
    time: CutTime,
    claims: Mapping[PartitionKey, int],
    responses: dict[PartitionKey, PartitionResponse],
) -> None:
    wanted = fetch.max_records
    range_count = 0
    for key in session.rotated_partitions():
        answer = responses.get(key) or PartitionResponse(partition_index=key[1])
        led = partitions.get(key)
        if led is None:
            error = UnknownTopicOrPartitionError(f"Share-partition {key[0]}-{key[1]} is not led here.")
            responses[key] = answer.model_copy(update={"error_code": error.code, "error_message": str(error)})
            continue
        count = led.share_partition.acquirable_count(limits, ends[key], time.lock_start_ms)
        if not count:
            continue
        fair_part = -(-count // claims[key]) if claims[key] > 1 else None
        request = AcquireRequest(session.member_id, wanted, fetch.batch_size, fetch.acquire_mode, fair_part)
        ranges, applied = led.share_partition.acquire(request, limits, ends[key], time.lock_start_ms)
        led.record(applied, time.lock_start_ms, fetch.request_offset)
        if ranges:
            acquired = [
                AcquiredRecords(first_offset=r.first_offset, last_offset=r.last_offset, delivery_count=r.delivery_count)
                for r in ranges
            ]
            responses[key] = answer.model_copy(update={"acquired_records": acquired})
            wanted -= sum(r.size for r in ranges)
            range_count += len(ranges)
        if wanted <= 0 or range_count >= MAX_RANGES_PER_ANSWER:
            break


def _response(
    session: ShareSession,
    responses: Mapping[PartitionKey, PartitionResponse],
    limits: SharePartitionLimits,
    isolation_level: IsolationLevel,
    time: CutTime,
) -> ShareFetchResponse:
    has_records = any(response.acquired_records for response in responses.values())
    if has_records:
        session.first_partition += 1
    return ShareFetchResponse(
        share_session_epoch=session.epoch,
        acquisition_lock_timeout_ms=limits.lock_duration_ms,
        lock_deadline_ms=time.lock_start_ms + limits.lock_duration_ms if has_records else 0,
        isolation_level=isolation_level,
        responses=grouped_by_topic(responses),
    )
