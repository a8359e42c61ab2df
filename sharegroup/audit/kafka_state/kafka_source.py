"""The records of Kafka's two internal topics about share groups: from a running broker, or from files.

A dump is a folder with `share_group_state.jsonl` and, if the groups' own records are known, too,
`consumer_offsets_share_groups.jsonl`; either may be compressed by gzip (`.jsonl.gz`). A line is a JSON object with
`partition`, `offset`, `timestamp` (epoch ms), and the bytes of key and value: `key_hex` and `value_hex`, or
`key_base64` and `value_base64`, as `sharegroup audit export --dump` writes them. Other fields are ignored.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from sharegroup.errors import InputLineError, KafkaRecordError, UnknownTopicError
from sharegroup.logs.port import Log, LogRecord
from sharegroup.protocol.share_group_records import OFFSETS_TOPIC
from sharegroup.protocol.share_state_records import STATE_TOPIC

DUMP_FILES = {STATE_TOPIC: "share_group_state.jsonl", OFFSETS_TOPIC: "consumer_offsets_share_groups.jsonl"}
_READ_AT_ONCE = 10_000


def dump_records(folder: Path) -> Iterator[LogRecord]:
    """Yield the records of a dump, topic by topic.

    Raises:
        InputLineError: the folder has no dump, a file cannot be read, or a line is not a record.
    """
    paths = {topic: path for topic, name in DUMP_FILES.items() if (path := _existing(folder / name)) is not None}
    if STATE_TOPIC not in paths:
        raise InputLineError(
            f"{folder} has neither {DUMP_FILES[STATE_TOPIC]} nor {DUMP_FILES[STATE_TOPIC]}.gz.",
            "Name the folder of a dump; docs/migration.md describes its files.",
        )
    for topic, path in paths.items():
        yield from _file_records(topic, path)


def broker_records(log: Log) -> Iterator[LogRecord]:
    """Yield the records of both topics that a running Kafka has now, partition by partition.

    Raises:
        UnknownTopicError: the cluster has no share groups.
        LogError: the topics cannot be read.
    """
    for topic in (STATE_TOPIC, OFFSETS_TOPIC):
        try:
            ends = log.offsets(topic)
        except UnknownTopicError:
            if topic == STATE_TOPIC:
                raise UnknownTopicError(
                    f"The cluster has no topic {STATE_TOPIC}.", "It has share groups only from Kafka 4.0 on."
                ) from None
            continue
        for partition, offsets in sorted(ends.items()):
            yield from _partition_records(log, topic, partition, offsets.start_offset, offsets.end_offset)


def topic_names(log: Log) -> dict[str, str]:
    """Return topic id → name of the topics that a running Kafka has now."""
    return {topic.topic_id: topic.name for topic in log.topics()}


def _partition_records(log: Log, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
    while start < end:
        records = log.read(topic, partition, start, end, max_records=_READ_AT_ONCE)
        if not records:
            return
        yield from records
        start = records[-1].offset + 1


def _existing(path: Path) -> Path | None:
    return next((each for each in (path, path.with_name(f"{path.name}.gz")) if each.is_file()), None)


def _file_records(topic: str, path: Path) -> Iterator[LogRecord]:
    try:
        with _opened(path) as lines:
            yield from _records(topic, path, lines)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputLineError(f"The file {path} cannot be read: {error}.") from error


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _records(topic: str, path: Path, lines: Iterable[str]) -> Iterator[LogRecord]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            yield LogRecord(
                topic,
                int(fields.get("partition", 0)),
                int(fields.get("offset", number - 1)),
                int(fields.get("timestamp", 0)),
                _bytes(fields, "key"),
                _bytes(fields, "value"),
            )
        except (ValueError, TypeError, AttributeError, KeyError, KafkaRecordError) as error:
            raise InputLineError(
                f"Line {number} of {path} is not a record: {error!r}.", "docs/migration.md describes the fields."
            ) from error


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    """Return the bytes of a field; None for a null."""
    if f"{name}_hex" in fields:
        text = fields[f"{name}_hex"]
        return None if text is None else bytes.fromhex(text)
    text = fields[f"{name}_base64"]
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
