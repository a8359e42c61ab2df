"""Redrive: records that a group gave up are delivered again, in place by the processor or as new copies.

1. The records are selected, by offset or by their dead-letter records.
2. The plan is made (`redrive_plan.py`): in place, copies, or left out.
3. In place: one request for up to `RANGES_PER_REQUEST` ranges, each of which applies whole or not at all.
4. Copies: each is appended to the partition of its original, with the headers of the original and lineage headers. A
   copy that is there is not appended again: the partition is read from the time at which its first record was given up.
   Each batch is appended whole, up to a megabyte at once.

So a command that was cut short may be repeated. Two that run at the same time may append copies twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sharegroup.audit.redrive.last_changes import last_changes
from sharegroup.audit.redrive.redrive_plan import (
    Candidate,
    Copies,
    PresentTopic,
    RedrivePlan,
    Skipped,
    has_content,
    redrive_plan,
)
from sharegroup.client.admin import AdminClient
from sharegroup.core.offset_ranges import OffsetRange, RangeMap
from sharegroup.core.records import PartitionKey
from sharegroup.errors import GroupIdNotFoundError, GroupQuarantinedError, UnknownTopicError
from sharegroup.logs.port import Log, LogRecord, NewRecord
from sharegroup.processor.lineage_headers import Lineage, lineage_of, without_lineage
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import fold

RANGES_PER_REQUEST = 5_000
"""Ranges of one request to the processor: some 300 kB."""
BATCH_BYTES = 1_048_576
"""Keys, values and headers of the copies that are appended at once; one always fits."""
_READ_BYTES = 8 * 1024 * 1024
_CLOCK_DIFFERENCE_MS = 3_600_000
"""The clocks of the request log and of the record log may differ by so much."""


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Copies for one partition, and the records that need none.

    Attributes:
        topic: topic name.
        partition: partition.
        offsets: offsets of the originals, one for each copy.
        records: the copies.
        skipped: records without a copy.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    records: Sequence[NewRecord]
    skipped: Sequence[Skipped]


def dead_letter_candidates(
    log: Log, topic: str, group_id: str, since_ms: int | None = None, limit: int | None = None
) -> list[Candidate]:
    """Return the records to which the dead-letter records of a group lead, in the order of partition and offset.

    Args:
        log: the log.
        topic: the topic of the dead-letter records.
        since_ms: only dead-letter records of this time or later; epoch ms.
        limit: at most so many dead-letter records.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    return list(islice(_dead_letter_candidates(log, topic, group_id, since_ms), limit))


def _dead_letter_candidates(log: Log, topic: str, group_id: str, since_ms: int | None) -> Iterator[Candidate]:
    for partition, offsets in sorted(log.offsets(topic).items()):
        start = offsets.start_offset if since_ms is None else log.offset_for_time(topic, partition, since_ms)
        for record in _records(log, topic, partition, start, offsets.end_offset):
            lineage = lineage_of(record.headers)
            if lineage is not None and lineage.group_id == group_id:
                yield Candidate(lineage.topic, lineage.partition, lineage.offset, lineage.offset, record)


def read_plan(log: Log, rows: Sequence[StateRow], group_id: str, candidates: Sequence[Candidate]) -> RedrivePlan:
    """Return the plan for records of a group.

    Args:
        log: the log of the records.
        rows: all rows of the group, in fold order.
        group_id: the group.
        candidates: the records.

    Raises:
        GroupIdNotFoundError: the state table has no such group.
        GroupQuarantinedError: the group is quarantined.
    """
    group = fold(rows).groups.get(group_id)
    if group is None:
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.", "Check its name.")
    if group.failures:
        reason = next(iter(group.failures.values()))
        raise GroupQuarantinedError(f"Group {group_id} is quarantined: {reason}.", "Resume it first.")
    topics: dict[str, PresentTopic] = {}
    for topic in sorted({candidate.topic for candidate in candidates}):
        try:
            topics[topic] = PresentTopic(log.describe_topic(topic).topic_id, log.offsets(topic))
        except UnknownTopicError:
            continue
    return redrive_plan(group, last_changes(rows), topics, candidates)


def redrive_archived(admin: AdminClient, plan: RedrivePlan, reason: str, timeout_s: float) -> int:
    """Make the archived records of a plan available; return their number.

    Raises:
        ApiError: the processor refused, since the group has changed: requests before this one are carried out.
    """
    return sum(
        admin.redrive_share_group_records(plan.group_id, records, reason, timeout_s) for records in _requests(plan)
    )


def _requests(plan: RedrivePlan) -> Iterator[dict[PartitionKey, list[OffsetRange]]]:
    request: dict[PartitionKey, list[OffsetRange]] = {}
    count = 0
    for key, ranges in sorted(plan.redriven.items()):
        for offsets in ranges:
            if count == RANGES_PER_REQUEST:
                yield request
                request, count = {}, 0
            request.setdefault(key, []).append(offsets)
            count += 1
    if request:
        yield request


def copy_batches(log: Log, plan: RedrivePlan) -> Iterator[CopyBatch]:
    """Yield the copies of a plan that are not in their topics yet, read from the log while they are asked for."""
    by_partition: dict[tuple[str, int], list[Copies]] = defaultdict(list)
    for copies in plan.copies:
        by_partition[copies.records.topic, copies.records.partition].append(copies)
    for (topic, partition), of_partition in sorted(by_partition.items()):
        since_ms = min(copies.since_ms for copies in of_partition) - _CLOCK_DIFFERENCE_MS
        copied = _copied(log, plan.group_id, topic, partition, since_ms)
        for copies in of_partition:
            yield from _batches(log, plan.group_id, copies, copied)


def _copied(log: Log, group_id: str, topic: str, partition: int, since_ms: int) -> RangeMap[None]:
    """Return the offsets of a partition of which it has copies for a group."""
    copied: RangeMap[None] = RangeMap()
    start = log.offset_for_time(topic, partition, max(since_ms, 0))
    for record in _records(log, topic, partition, start, log.offsets(topic)[partition].end_offset):
        lineage = lineage_of(record.headers)
        if lineage is not None and lineage[:2] == (topic, partition) and lineage.group_id == group_id:
            copied.assign(lineage.offset, lineage.offset, None)
    return copied


def _batches(log: Log, group_id: str, copies: Copies, copied: RangeMap[None]) -> Iterator[CopyBatch]:
    """Yield the copies of some records, each batch as large as may be appended at once."""
    wanted = copies.records
    following = wanted.first_offset
    while following <= wanted.last_offset:
        originals = _originals(log, copies, following)
        last = originals[-1].offset if originals else wanted.last_offset
        there = {record.offset: record for record in originals}
        new: list[tuple[int, NewRecord]] = []
        skipped: list[Skipped] = []
        for offset in range(following, last + 1):
            if copied.holds(offset):
                skipped.append(Skipped(wanted.cut(offset, offset), "its copy is in the topic"))
            elif (source := there.get(offset) or _source(wanted.dead_letter)) is not None:
                new.append((offset, _copy(group_id, copies, offset, source)))
            else:
                skipped.append(Skipped(wanted.cut(offset, offset), "the log does not have the record any more"))
        offsets, records = [offset for offset, _ in new], [record for _, record in new]
        yield CopyBatch(wanted.topic, wanted.partition, offsets, records, skipped)
        following = last + 1


def _originals(log: Log, copies: Copies, first_offset: int) -> list[LogRecord]:
    wanted = copies.records
    if not copies.has_original:
        return []
    end = wanted.last_offset + 1
    return log.read(wanted.topic, wanted.partition, first_offset, end, max_bytes=BATCH_BYTES)


def _source(dead_letter: LogRecord | None) -> LogRecord | None:
    """Return a dead-letter record if it has a copy of its original."""
    return dead_letter if dead_letter is not None and has_content(dead_letter) else None


def _copy(group_id: str, copies: Copies, offset: int, source: LogRecord) -> NewRecord:
    wanted = copies.records
    lineage = Lineage(wanted.topic, wanted.partition, offset, group_id, copies.delivery_count, copies.reason)
    return NewRecord(source.key, source.value, (*without_lineage(source.headers), *lineage.headers))


def _records(log: Log, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
    while records := log.read(topic, partition, start, end, max_bytes=_READ_BYTES):
        yield from records
        start = records[-1].offset + 1
