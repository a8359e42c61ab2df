"""Dead-letter records, with the headers of Kafka's, and their topic (KIP-1191; spec 002, "Dead-letter queue")."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sharegroup.actor.effects import DeadLetters
from sharegroup.errors import ConfigurationError, RecordTooLargeError, UnknownTopicError
from sharegroup.logs.port import Log, LogRecord, NewRecord, TopicDescription
from sharegroup.logs.topic_properties import CREATE_TIME, DEAD_LETTER_QUEUE_ENABLE_CONFIG, TIMESTAMP_TYPE_CONFIG
from sharegroup.processor.dead_letters.headers import DeadLetterHeaders, without_copied_headers
from sharegroup.protocol.internal_messages import MAX_WRITTEN_RANGES

MAX_RECORDS = MAX_WRITTEN_RANGES
"""Dead-letter records built at once; also the maximum number of ranges."""
MAX_BYTES = 1_048_576
"""Bytes of source records copied at once; one record always fits. As in Kafka."""


NOT_COPIED_HEADER = "__dlq.errors.record.not.copied"
"""Header of this project: why a dead-letter record has no copy of its source although its group copies records."""

_CREATED_PARTITIONS = 1
_CREATED_CONFIG = {TIMESTAMP_TYPE_CONFIG: CREATE_TIME}


def dead_letter_records(
    log: Log, group_id: str, dead_letters: DeadLetters, first_offset: int, copies_records: bool
) -> list[NewRecord]:
    """Build the next dead-letter records, one for each offset from the first on, up to the maximum at once.

    A copy has key, value and headers of the source record, and then the headers of the dead-letter record. Of a source
    record that no longer exists there is no copy; the headers of the dead-letter record are still written.

    Args:
        first_offset: first offset without a dead-letter record.
        copies_records: True to copy the source records.

    Raises:
        LogError: the source records cannot be read.
    """
    last_offset = min(dead_letters.last_offset, first_offset + MAX_RECORDS - 1)
    sources: dict[int, LogRecord] = {}
    if copies_records:
        read = _source_records(log, dead_letters, first_offset, last_offset)
        # Records behind the last one are read next time: either they do not exist, or they did not fit into one read.
        last_offset = read[-1].offset if read else last_offset
        sources = {record.offset: record for record in read}
    offsets = range(first_offset, last_offset + 1)
    return [_record(group_id, dead_letters, offset, sources.get(offset)) for offset in offsets]


def _source_records(log: Log, dead_letters: DeadLetters, first_offset: int, last_offset: int) -> list[LogRecord]:
    topic = dead_letters.topic
    try:
        records = log.read(topic, dead_letters.partition, first_offset, last_offset + 1, max_bytes=MAX_BYTES)
        # Checked after the read, not before it: a topic id that is the same now was the same during the read.
        is_same_topic = log.describe_topic(topic).topic_id == dead_letters.topic_id
    except UnknownTopicError:
        return []
    return records if is_same_topic else []


def _record(group_id: str, dead_letters: DeadLetters, offset: int, source: LogRecord | None) -> NewRecord:
    origin = DeadLetterHeaders(
        dead_letters.topic,
        dead_letters.partition,
        offset,
        group_id,
        dead_letters.delivery_count,
        dead_letters.reason.value,
    )
    if source is None:
        return NewRecord(None, None, origin.headers)
    return NewRecord(source.key, source.value, (*source.headers, *origin.headers))


def dead_letter_topic(log: Log, name: str, internal_topics: Collection[str], may_create: bool) -> TopicDescription:
    """Return the topic of a group's dead-letter records; create it when it is missing and creation is allowed.

    Args:
        name: `errors.deadletterqueue.topic.name` of the group.
        internal_topics: topics that cannot be a dead-letter queue.
        may_create: `errors.deadletterqueue.auto.create.topics.enable` of the broker.

    Raises:
        ConfigurationError: the topic does not exist, or groups may not use it.
        LogError: the log cannot be read.
    """
    if not name:
        raise ConfigurationError(
            "The group has no dead-letter queue any more, but records that wait for their dead-letter records.",
            "Set errors.deadletterqueue.topic.name again.",
        )
    if name in internal_topics:
        raise ConfigurationError(
            f"Dead-letter topic {name} is an internal topic.", "Set errors.deadletterqueue.topic.name to another one."
        )
    try:
        topic = log.describe_topic(name)
    except UnknownTopicError:
        if may_create:
            return _created(log, name)
        raise ConfigurationError(
            f"Dead-letter topic {name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false.",
            "Create it, or set the key to true.",
        ) from None
    # Brokers before Kafka 4.4 do not know the key; there, and in the embedded log, a topic may lack it.
    key = DEAD_LETTER_QUEUE_ENABLE_CONFIG
    if topic.config.get(key, "true") != "true":
        raise ConfigurationError(
            f"Topic {name} is no dead-letter topic: its {key} is {topic.config[key]}.",
            f"Set {key} of the topic to true, or errors.deadletterqueue.topic.name to another one.",
        )
    return topic


def append_dead_letter_records(log: Log, topic: str, records: Mapping[int, Sequence[NewRecord]]) -> int:
    """Append dead-letter records by partition, together if the topic accepts them all unchanged.

    A record that is too large with the copy of its source is appended without the copy.

    Returns:
        The number of records that were appended without the copy.

    Raises:
        LogError: the append failed, or a record is too large without a copy; some records may have been appended.
    """
    try:
        log.append_all([(topic, partition, batch) for partition, batch in records.items()])
    except RecordTooLargeError:
        return sum(_append_halves(log, topic, partition, batch) for partition, batch in records.items())
    return 0


def _append_halves(log: Log, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
    """Append records in halves, since some may be too large: a log names neither the record nor the exceeded limit."""
    try:
        log.append(topic, partition, records)
    except RecordTooLargeError as error:
        middle = len(records) // 2
        if middle:
            halves = (records[:middle], records[middle:])
            return sum(_append_halves(log, topic, partition, half) for half in halves)
        without_copy = NewRecord(None, None, without_copied_headers(records[0].headers))
        if records[0] == without_copy:
            raise
        reason = (NOT_COPIED_HEADER, str(error).encode())
        log.append(topic, partition, [without_copy._replace(headers=(*without_copy.headers, reason))])
        return 1
    return 0


def _created(log: Log, name: str) -> TopicDescription:
    enabled = {DEAD_LETTER_QUEUE_ENABLE_CONFIG: "true", **_CREATED_CONFIG}
    try:
        return log.create_topic(name, _CREATED_PARTITIONS, enabled, if_not_exists=True)
    except ConfigurationError:
        # Brokers before Kafka 4.4 refuse the key.
        return log.create_topic(name, _CREATED_PARTITIONS, _CREATED_CONFIG, if_not_exists=True)
