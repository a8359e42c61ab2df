"""Dead letters as records, with the headers of Kafka's (KIP-1191; spec 002, "Dead-letter queue")."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.actor.effects import DeadLetters
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Headers, Log, LogRecord, NewRecord
from sharegroup.protocol.dead_letters import MAX_WRITTEN_RANGES

MAX_RECORDS = MAX_WRITTEN_RANGES
"""Letters that are made at once; of as many ranges at most."""
MAX_BYTES = 1_048_576
"""Bytes of source records that are copied at once; one record always fits. As in Kafka."""


@dataclass(frozen=True, slots=True)
class DeadLetterRecords:
    """The letters of a range of offsets, one for each offset.

    Attributes:
        last_offset: last offset of the range.
        records: the letters, in the order of the offsets.
    """

    last_offset: int
    records: list[NewRecord]


def dead_letter_records(
    log: Log, group_id: str, letters: DeadLetters, first_offset: int, copies_records: bool
) -> DeadLetterRecords:
    """The letters from an offset on, as many as are made at once.

    A source record that does not exist any more leaves key and value empty; the headers are written all the same.

    Args:
        log: where the source records are.
        group_id: the group that gave them up.
        letters: the records.
        first_offset: the first of them that has no letter yet.
        copies_records: whether key and value are copied.

    Raises:
        LogError: the source records cannot be read.
    """
    last_offset = min(letters.last_offset, first_offset + MAX_RECORDS - 1)
    sources: dict[int, LogRecord] = {}
    if copies_records:
        found = _source_records(log, letters, first_offset, last_offset)
        # What lies behind the last one is read next time: either it does not exist, or it was too much for one read.
        last_offset = found[-1].offset if found else last_offset
        sources = {record.offset: record for record in found}
    return DeadLetterRecords(
        last_offset,
        [_letter(group_id, letters, offset, sources.get(offset)) for offset in range(first_offset, last_offset + 1)],
    )


def _source_records(log: Log, letters: DeadLetters, first_offset: int, last_offset: int) -> list[LogRecord]:
    try:
        found = log.read(letters.topic, letters.partition, first_offset, last_offset + 1, max_bytes=MAX_BYTES)
        # After the read, not before it: an id that still holds now held then, too.
        is_same_topic = log.describe_topic(letters.topic).topic_id == letters.topic_id
    except UnknownTopicError:
        return []
    return found if is_same_topic else []


def _letter(group_id: str, letters: DeadLetters, offset: int, source: LogRecord | None) -> NewRecord:
    headers: Headers = (
        ("__dlq.errors.topic", letters.topic.encode()),
        ("__dlq.errors.partition", str(letters.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", group_id.encode()),
        ("__dlq.errors.delivery.count", str(letters.delivery_count).encode()),
        ("__dlq.errors.message", letters.reason.value.encode()),
    )
    return NewRecord(source.key if source else None, source.value if source else None, headers)
