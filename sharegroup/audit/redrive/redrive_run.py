"""Redrive: records that a group gave up are delivered again, in place by the processor or as new copies.

1. The records are selected, by offset or by their dead-letter records.
2. The plan is made (`redrive_plan.py`): in place, copies, or left out.
3. In place: one request for up to `RANGES_PER_REQUEST` ranges, each of which applies whole or not at all.
4. Copies: each is appended to the partition of its original, with the headers of the original and dead-letter headers.
   A copy that is there is not appended again: the partition is read from the time at which its first record was given
   up. Each batch is appended whole, up to a megabyte at once.

So a command that was cut short may be repeated. Two that run at the same time may append copies twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sharegroup.audit.redrive.dead_letters import DeadLetters, records_between
from sharegroup.audit.redrive.last_changes import last_changes
from sharegroup.audit.redrive.redrive_plan import (
    Candidate,
    Copies,
    PresentTopic,
    RedrivePlan,
    Skipped,
    redrive_plan,
)
from sharegroup.client.admin import AdminClient
from sharegroup.core.offset_ranges import OffsetRange, RangeMap
from sharegroup.core.records import PartitionKey
from sharegroup.errors import GroupIdNotFoundError, GroupQuarantinedError, UnknownTopicError
from sharegroup.logs.port import Log, LogRecord, NewRecord
from sharegroup.processor.dead_letters.headers import (
    DeadLetterHeaders,
    dead_letter_headers_of,
    without_dead_letter_headers,
)
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import fold

RANGES_PER_REQUEST = 5_000
"""Ranges of one request to the processor: some 300 kB."""
BATCH_BYTES = 1_048_576
"""Keys, values and headers of the copies that are appended at once; one always fits."""
_SKIPPED_BYTES = 100
"""Bytes that a record without a copy takes in a batch."""
_CLOCK_DIFFERENCE_MS = 3_600_000
"""The clocks of the request log and of the record log may differ by so much."""


@dataclass(slots=True)
class CopyBatch:
    """Copies for one partition, and the records that need none.

    Attributes:
        offsets: offsets of the originals, one for each copy.
        skipped: records without a copy.
    """

    topic: str
    partition: int
    offsets: list[int] = field(default_factory=list)
    records: list[NewRecord] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def read_plan(log: Log, rows: Iterable[StateRow], group_id: str, candidates: Sequence[Candidate]) -> RedrivePlan:
    """Return the plan for records of a group.

    Args:
        rows: all rows of the group, in fold order; they are iterated over twice.

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


def copy_batches(log: Log, plan: RedrivePlan, dead_letters: DeadLetters | None = None) -> Iterator[CopyBatch]:
    """Yield the copies of a plan that are not in their topics yet, read from the log while they are asked for.

    Args:
        dead_letters: the dead-letter records by which the records were selected.
    """
    by_partition: dict[tuple[str, int], list[Copies]] = defaultdict(list)
    for copies in plan.copies:
        by_partition[copies.records.topic, copies.records.partition].append(copies)
    for (topic, partition), of_partition in sorted(by_partition.items()):
        since_ms = min(copies.since_ms for copies in of_partition) - _CLOCK_DIFFERENCE_MS
        copied = _copied(log, plan.group_id, topic, partition, since_ms)
        for copies in of_partition:
            yield from _batches(copies, _outcomes(log, plan.group_id, copies, copied, dead_letters))


def _copied(log: Log, group_id: str, topic: str, partition: int, since_ms: int) -> RangeMap[None]:
    """Return the offsets of a partition of which it has copies for a group."""
    copied: RangeMap[None] = RangeMap()
    start = log.offset_for_time(topic, partition, max(since_ms, 0))
    for record in records_between(log, topic, partition, start, log.offsets(topic)[partition].end_offset):
        origin = dead_letter_headers_of(record.headers)
        if origin is not None and origin[:2] == (topic, partition) and origin.group_id == group_id:
            copied.assign(origin.offset, origin.offset, None)
    return copied


def _batches(copies: Copies, outcomes: Iterator[tuple[int, NewRecord | str]]) -> Iterator[CopyBatch]:
    """Yield copies in batches that are as large as may be appended at once."""
    wanted = copies.records
    batch = CopyBatch(wanted.topic, wanted.partition)
    batch_bytes = 0
    for offset, outcome in outcomes:
        size_bytes = _SKIPPED_BYTES if isinstance(outcome, str) else outcome.size_bytes
        if batch_bytes and batch_bytes + size_bytes > BATCH_BYTES:
            yield batch
            batch, batch_bytes = CopyBatch(wanted.topic, wanted.partition), 0
        batch_bytes += size_bytes
        if isinstance(outcome, str):
            batch.skipped.append(Skipped(wanted.cut(offset, offset), outcome))
        else:
            batch.offsets.append(offset)
            batch.records.append(outcome)
    yield batch


def _outcomes(
    log: Log, group_id: str, copies: Copies, copied: RangeMap[None], dead_letters: DeadLetters | None
) -> Iterator[tuple[int, NewRecord | str]]:
    """Yield the copy of each record, or why it is left out."""
    wanted = copies.records
    gone = "the log does not have the record any more" if copies.has_original else copies.reason
    for offset, original in _originals(log, copies):
        if copied.holds(offset):
            yield offset, "its copy is in the topic"
            continue
        source = original
        if source is None and dead_letters is not None:
            source = dead_letters.of(wanted.topic, wanted.partition, offset)
            source = source if source is not None and _has_content(source) else None
        yield offset, gone if source is None else _copy(group_id, copies, offset, source)


def _originals(log: Log, copies: Copies) -> Iterator[tuple[int, LogRecord | None]]:
    """Yield each offset of some records, with the topic's record; None where that is gone."""
    wanted = copies.records
    following, end = wanted.first_offset, wanted.last_offset + 1
    if copies.has_original:
        while records := log.read(wanted.topic, wanted.partition, following, end, max_bytes=BATCH_BYTES):
            for record in records:
                yield from ((offset, None) for offset in range(following, record.offset))
                yield record.offset, record
                following = record.offset + 1
    yield from ((offset, None) for offset in range(following, end))


def _has_content(record: LogRecord) -> bool:
    """Return True if a record has a key or a value: a dead-letter record without a copy has neither."""
    return record.key is not None or record.value is not None


def _copy(group_id: str, copies: Copies, offset: int, source: LogRecord) -> NewRecord:
    wanted = copies.records
    count, reason = copies.delivery_count, copies.reason
    if not copies.has_original:
        of_source = dead_letter_headers_of(source.headers)
        assert of_source is not None
        count, reason = of_source.delivery_count, of_source.message
    origin = DeadLetterHeaders(wanted.topic, wanted.partition, offset, group_id, count, reason)
    return NewRecord(source.key, source.value, (*without_dead_letter_headers(source.headers), *origin.headers))
