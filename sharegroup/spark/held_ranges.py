"""Held ranges as work for Spark: without records that cannot be read or were lost, without gaps, in even shares."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from sharegroup.client.held_records import HeldRange, unread
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.record_reader import MISSING_REASONS, NO_TOPIC
from sharegroup.core.offset_ranges import OffsetRange, consecutive, gaps, intersect, subtract
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets

_UNREADABLE_PAUSE_S = 0.5
_OFFSETS_TIMEOUT_MS = 5_000
_NO_RESPONSE = "the partition does not respond"


def without_unreadable(log: Log, ranges: Iterable[HeldRange]) -> tuple[list[HeldRange], list[Acknowledgement]]:
    """Split ranges at the bounds of the log: records that were deleted since, and records that are not there yet.

    Ranges of a topic that was deleted, or created again, are returned unread: one lookup proves nothing, since the
    metadata of brokers lags, and the processor decides. So are those of a partition that does not respond for some
    seconds, as one without a leader. That takes a pause, for they may be acquired again at once.

    Returns:
        The readable ranges, and acknowledgements of the other offsets.
    """
    ranges = list(ranges)
    topics = _existing_topics(log, ranges)
    unreadable = unread((held for held in ranges if held.topic_id not in topics), NO_TOPIC)
    existing = [held for held in ranges if held.topic_id in topics]
    unreadable += unread((held for held in existing if held.partition not in topics[held.topic_id]), _NO_RESPONSE)
    if unreadable:
        threading.Event().wait(_UNREADABLE_PAUSE_S)
    readable: list[HeldRange] = []
    for held in existing:
        if (offsets := topics[held.topic_id].get(held.partition)) is None:
            continue
        start = offsets.start_offset
        end = max(start, offsets.readable_end(held.isolation_level))
        for deleted in intersect([held], 0, start - 1):
            reason = f"deleted: the log starts at offset {start}"
            unreadable.append(deleted.acknowledgement(AcknowledgeType.GAP, reason))
        for missing in intersect([held], end, held.last_offset):
            reason = f"{MISSING_REASONS[held.isolation_level][1]} {end}"
            unreadable.append(missing.acknowledgement(AcknowledgeType.UNREAD, reason))
        readable += intersect([held], start, end - 1)
    return readable, unreadable


def without_gaps(
    ranges: Iterable[HeldRange], offsets: Mapping[tuple[str, int], Sequence[int]]
) -> tuple[list[HeldRange], list[Acknowledgement]]:
    """Split readable ranges into those with records, and acknowledgements of the gaps between them.

    Args:
        ranges: ranges within the bounds of the log.
        offsets: (topic, partition) → the offsets of its records, in ascending order.
    """
    parts: list[HeldRange] = []
    missing: list[Acknowledgement] = []
    for held in ranges:
        of_partition = offsets.get((held.topic, held.partition), ())
        start = bisect_left(of_partition, held.first_offset)
        present = of_partition[start : bisect_right(of_partition, held.last_offset, lo=start)]
        if len(present) == held.record_count:
            parts.append(held)
            continue
        runs = list(consecutive(present))
        parts += [held.cut(first, last) for first, last in runs]
        for first, last in gaps(held.first_offset, held.last_offset, runs):
            reason = MISSING_REASONS[held.isolation_level][0]
            missing.append(held.cut(first, last).acknowledgement(AcknowledgeType.GAP, reason))
    return parts, missing


def without_refused(ranges: Iterable[HeldRange], results: Iterable[Acknowledged]) -> list[HeldRange]:
    """Leave out the records whose renewal was refused: their locks have ended, or end without another renewal."""
    refused: dict[PartitionKey, list[OffsetRange]] = {}
    for result in results:
        for ack in result.acknowledgements if result.error is not None else ():
            if ack.acknowledge_type is AcknowledgeType.RENEW:
                refused.setdefault(ack.key, []).append((ack.first_offset, ack.last_offset))
    return [part for held in ranges for part in subtract(held, sorted(refused.get(held.key, ())))]


def split_evenly(ranges: Iterable[HeldRange], share_count: int) -> list[list[HeldRange]]:
    """Cut ranges, in order, into at most `share_count` shares; none is larger than an even share rounded up."""
    ranges = list(ranges)
    share_size = -(-sum(held.record_count for held in ranges) // share_count)
    shares: list[list[HeldRange]] = []
    room = 0
    for held in ranges:
        position = held.first_offset
        while position <= held.last_offset:
            if room == 0:
                shares.append([])
                room = share_size
            last = min(held.last_offset, position + room - 1)
            shares[-1].append(held.cut(position, last))
            room -= last + 1 - position
            position = last + 1
    return shares


def _existing_topics(log: Log, ranges: Iterable[HeldRange]) -> dict[str, dict[int, PartitionOffsets]]:
    """Return the offsets of the partitions of ranges that respond and whose topics still exist, by topic id.

    Only these partitions are asked for: another one of the topic may have no leader.
    """
    partitions: dict[tuple[str, str], set[int]] = {}
    for held in ranges:
        partitions.setdefault((held.topic, held.topic_id), set()).add(held.partition)
    offsets: dict[str, dict[int, PartitionOffsets]] = {}
    for (topic, topic_id), of_topic in partitions.items():
        try:
            if log.describe_topic(topic).topic_id == topic_id:
                offsets[topic_id] = log.offsets(topic, of_topic, _OFFSETS_TIMEOUT_MS)
        except UnknownTopicError:
            continue
    return offsets
