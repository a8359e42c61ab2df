"""The history of a Kafka cluster's share groups: its records, decoded and in one order.

The state of share-partitions and the records of their groups are in two topics, whose partitions have no common order.
Their timestamps give one: within a partition the order of offsets counts, and time never goes back. A record that this
release cannot read is listed, and the rest is read all the same.

The topics may be larger than the memory: their records are put in order on the disk, as the bytes that they are.
"""

from __future__ import annotations

import heapq
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sharegroup.errors import KafkaRecordError, ShareGroupError, UnsupportedFormatVersionError
from sharegroup.logs.port import LogRecord
from sharegroup.protocol import share_group_records, share_state_records
from sharegroup.protocol.share_group_records import OFFSETS_TOPIC, ShareGroupRecord, StatePartitionMetadata
from sharegroup.protocol.share_state_records import STATE_TOPIC, ShareStateRecord
from sharegroup.state.spilled_rows import temporary_files

RUN_BYTES = 32 * 1024 * 1024
"""Bytes of a run."""

_ITEM_BYTES = 200
"""Memory that a record takes beside its bytes, more or less."""


class SortedItems:
    """Takes tuples in any order, and returns them in theirs; no two may be equal up to a field without an order.

    More than fit into memory: sorted runs in temporary files, merged while they are read.

    Args:
        run_bytes: bytes of the items that are in memory.
    """

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._run: list[tuple[Any, ...]] = []
        self._size_bytes = 0
        self._paths: list[Path] = []
        self._folder: TemporaryDirectory[str] | None = None

    def add(self, item: tuple[Any, ...], size_bytes: int) -> None:
        """Take an item, and how many bytes it counts for.

        Raises:
            TemporaryFilesError: the disk is full or failed.
        """
        self._run.append(item)
        self._size_bytes += size_bytes
        if self._size_bytes >= self._run_bytes:
            self._spill()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield all items in their order; may be called again, also meanwhile."""
        return heapq.merge(*map(_stored, self._paths), sorted(self._run))

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="sharegroup-import-")
        path = Path(self._folder.name) / str(len(self._paths))
        with temporary_files(path.parent), path.open("wb") as file:
            for item in sorted(self._run):
                pickle.dump(item, file, pickle.HIGHEST_PROTOCOL)
        self._paths.append(path)
        self._run, self._size_bytes = [], 0


def _stored(path: Path) -> Iterator[tuple[Any, ...]]:
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


class HistoryRecord(NamedTuple):
    """A record of the history.

    Attributes:
        source: its topic, partition and offset, as topic-partition@offset.
        timestamp_ms: when it was written; never earlier than the record before it in its partition.
    """

    source: str
    timestamp_ms: int
    record: ShareStateRecord | ShareGroupRecord


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """A record, or a part of one, that this release cannot read.

    Attributes:
        source: its topic, partition and offset, as topic-partition@offset.
        reason: the type, version or field that is not known, or what is wrong with the bytes.
    """

    source: str
    reason: str


@dataclass(slots=True)
class KafkaHistory:
    """The decoded records.

    Attributes:
        record_counts: topic → its records.
        unread: records that could not be decoded.
        unknown_fields: decoded records with tagged fields of a later release, which are kept but not understood.
        other_group_count: records of groups of other kinds.
        topic_names: topic id → name, as the groups' records have them.
    """

    record_counts: Counter[str] = field(default_factory=Counter)
    unread: list[UnreadRecord] = field(default_factory=list)
    unknown_fields: list[UnreadRecord] = field(default_factory=list)
    other_group_count: int = 0
    topic_names: dict[str, str] = field(default_factory=dict)
    _items: SortedItems = field(default_factory=SortedItems)
    _last_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def records(self) -> Iterator[HistoryRecord]:
        """Yield all records in the order of time, and those of one partition in the order of their offsets."""
        for time_ms, is_state, partition, _, offset, key, value in self._items:
            topic = STATE_TOPIC if is_state else OFFSETS_TOPIC
            decoded = _decoded(LogRecord(topic, partition, offset, time_ms, key, value))
            assert decoded is not None
            yield HistoryRecord(_source(topic, partition, offset), time_ms, decoded)

    def add(self, record: LogRecord) -> None:
        """Decode a record and add it."""
        self.record_counts[record.topic] += 1
        source = _source(record.topic, record.partition, record.offset)
        try:
            decoded = _decoded(record)
        except ShareGroupError as error:
            self.unread.append(UnreadRecord(source, str(error)))
            return
        if decoded is None:
            self.other_group_count += 1
            return
        if decoded.unknown_tagged_fields:
            names = ", ".join(map(str, decoded.unknown_tagged_fields))
            self.unknown_fields.append(UnreadRecord(source, names))
        if isinstance(decoded.value, StatePartitionMetadata):
            for topic in (*decoded.value.initializing_topics, *decoded.value.initialized_topics):
                self.topic_names[topic.topic_id] = topic.topic_name
            for deleted in decoded.value.deleting_topics:
                self.topic_names[deleted.topic_id] = deleted.topic_name
        partition = record.topic, record.partition
        time_ms = self._last_ms[partition] = max(record.timestamp_ms, self._last_ms.get(partition, 0))
        # At one time, a group's record comes first: it asks for the states.
        order = (time_ms, record.topic == STATE_TOPIC, record.partition, self.record_counts.total())
        size_bytes = _ITEM_BYTES + len(record.key or b"") + len(record.value or b"")
        self._items.add((*order, record.offset, record.key, record.value), size_bytes)


def _source(topic: str, partition: int, offset: int) -> str:
    return f"{topic}-{partition}@{offset}"


def _decoded(record: LogRecord) -> ShareStateRecord | ShareGroupRecord | None:
    """Return a record of a share group; None for those of other groups."""
    if record.key is None:
        raise KafkaRecordError("The record has no key.")
    if record.topic == STATE_TOPIC:
        return share_state_records.decoded(record.key, record.value)
    if record.topic != OFFSETS_TOPIC:
        raise UnsupportedFormatVersionError(f"Topic {record.topic} has no records of share groups.")
    if not share_group_records.is_share_group_record(record.key):
        return None
    return share_group_records.decoded(record.key, record.value)


def kafka_history(records: Iterable[LogRecord], run_bytes: int = RUN_BYTES) -> KafkaHistory:
    """Return the history that records of both topics make.

    Args:
        records: the records; those of a partition come in the order of their offsets.
        run_bytes: bytes of records that are held in memory.
    """
    history = KafkaHistory(_items=SortedItems(run_bytes))
    for record in records:
        history.add(record)
    return history
