"""Dead-letter records, with the headers of Kafka's (KIP-1191; spec 002, "Dead-letter queue")."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.actor.effects import DeadLetters
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Headers, Log, LogRecord, NewRecord
from sharegroup.protocol.dead_letters import MAX_WRITTEN_RANGES

MAX_RECORDS = MAX_WRITTEN_RANGES
"""Dead-letter records that are made at once; of as many ranges at most."""
MAX_BYTES = 1_048_576
"""Bytes of source records that are copied at once; one record always fits. As in Kafka."""


@dataclass(frozen=True, slots=True)
class DeadLetterRecords:
    """The dead-letter records of a range of offsets, one for each offset.

    Attributes:
        last_offset: last offset of the range.
        records: the records, in the order of the offsets.
    """

    last_offset: int
    records: list[NewRecord]


def dead_letter_records(
    log: Log, group_id: str, dead_letters: DeadLetters, first_offset: int, copies_records: bool
) -> DeadLetterRecords:
    """Make the dead-letter records from an offset on, as many as are made at once.

    A source record that does not exist any more leaves key and value empty; the headers are written all the same.

    Args:
        log: the log of the source records.
        group_id: the group that gave them up.
        dead_letters: the range of source records.
        first_offset: the first of them without a dead-letter record.
        copies_records: copy key and value of the source records.

    Raises:
        LogError: the source records cannot be read.
    """
    last_offset = min(dead_letters.last_offset, first_offset + MAX_RECORDS - 1)
    sources: dict[int, LogRecord] = {}
    if copies_records:
        read = _source_records(log, dead_letters, first_offset, last_offset)
        # What lies behind the last one is read next time: either it does not exist, or it was too much for one read.
        last_offset = read[-1].offset if read else last_offset
        sources = {record.offset: record for record in read}
    return DeadLetterRecords(
        last_offset,
        [
            _record(group_id, dead_letters, offset, sources.get(offset))
            for offset in range(first_offset, last_offset + 1)
        ],
    )


def _source_records(log: Log, dead_letters: DeadLetters, first_offset: int, last_offset: int) -> list[LogRecord]:
    topic = dead_letters.topic
    try:
        records = log.read(topic, dead_letters.partition, first_offset, last_offset + 1, max_bytes=MAX_BYTES)
        # After the read, not before it: a topic id that is still the same now was the same then.
        is_same_topic = log.describe_topic(topic).topic_id == dead_letters.topic_id
    except UnknownTopicError:
        return []
    return records if is_same_topic else []


def _record(group_id: str, dead_letters: DeadLetters, offset: int, source: LogRecord | None) -> NewRecord:
    headers: Headers = (
        ("__dlq.errors.topic", dead_letters.topic.encode()),
        ("__dlq.errors.partition", str(dead_letters.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", group_id.encode()),
        ("__dlq.errors.delivery.count", str(dead_letters.delivery_count).encode()),
        ("__dlq.errors.message", dead_letters.reason.value.encode()),
    )
    return NewRecord(source.key if source else None, source.value if source else None, headers)
