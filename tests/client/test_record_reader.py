"""Acquired ranges read from a log: limits, offsets without a record, topics that are not the same any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from sharegroup.client.held_records import HeldRange, offset_of
from sharegroup.client.record_reader import Chunk, RecordReader
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord, NewRecord, PartitionOffsets
from sharegroup.logs.topic_properties import LOG_APPEND_TIME, TIMESTAMP_TYPE_CONFIG

UNLIMITED = 1_000_000


class SparseLog(LocalLog):
    """A local log with offsets of every partition that hold no record, or none for a while."""

    compacted: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()
    last_stable_offset: int | None = None
    reads_too_early = 0
    """Reads that find nothing yet, as at a broker that follows the others."""

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        offsets = super().offsets(topic, partitions, timeout_ms)
        if self.last_stable_offset is None:
            return offsets
        return {
            p: replace(partition_offsets, last_stable_offset=self.last_stable_offset)
            for p, partition_offsets in offsets.items()
        }

    def read(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        max_records: int | None = None,
        max_bytes: int | None = None,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[LogRecord]:
        if self.reads_too_early:
            self.reads_too_early -= 1
            return []
        missing = self.compacted
        if isolation_level is IsolationLevel.READ_COMMITTED:
            end_offset = min(end_offset, self.offsets(topic)[partition].last_stable_offset)
            missing |= self.aborted
        records = super().read(topic, partition, start_offset, end_offset)
        left = [record for record in records if record.offset not in missing]
        return left[:max_records]


@pytest.fixture
def held(log: LocalLog) -> HeldRange:
    """Ten records of ten bytes, all acquired."""
    topic = log.create_topic("orders", 1, {})
    log.append("orders", 0, [NewRecord(b"k%d" % i, b"value-%02d" % i) for i in range(10)])
    return HeldRange(topic.topic_id, "orders", 0, 0, 9, 3)


def offsets(chunk: Chunk) -> list[int]:
    return [offset_of(record) for read in chunk.ranges for record in read.records]


def rest(chunk: Chunk) -> list[tuple[int, int]]:
    return [(held.first_offset, held.last_offset) for held in chunk.rest]


def missing(chunk: Chunk) -> list[tuple[int, int, AcknowledgeType, str]]:
    return [(m.first_offset, m.last_offset, m.acknowledge_type, m.reason) for m in chunk.missing]


@pytest.mark.parametrize(
    ("max_records", "max_bytes", "read", "left"),
    [
        (UNLIMITED, UNLIMITED, 10, []),
        (10, UNLIMITED, 10, []),
        (4, UNLIMITED, 4, [(4, 9)]),
        (1, UNLIMITED, 1, [(1, 9)]),
        (UNLIMITED, 1, 1, [(1, 9)]),
        (UNLIMITED, 0, 1, [(1, 9)]),
        (UNLIMITED, 30, 3, [(3, 9)]),
        (4, 30, 3, [(3, 3), (4, 9)]),
    ],
)
def test_a_chunk_stops_at_its_limits(
    log: LocalLog, held: HeldRange, max_records: int, max_bytes: int, read: int, left: list[tuple[int, int]]
) -> None:
    chunk = RecordReader(log, max_bytes).read([held], max_records)
    assert offsets(chunk) == list(range(read))
    assert sorted(rest(chunk)) == left
    assert chunk.missing == []


def test_the_first_ranges_are_read_together_up_to_the_limit(log: LocalLog, held: HeldRange) -> None:
    ranges = [
        HeldRange(held.topic_id, "orders", 0, first, last, count) for first, last, count in ((7, 9, 1), (0, 4, 2))
    ]
    chunk = RecordReader(log, UNLIMITED).read(ranges, 5)
    assert offsets(chunk) == [0, 1, 7, 8, 9]
    assert [read.held.delivery_count for read in chunk.ranges] == [2, 1]
    assert rest(chunk) == [(2, 4)]


@pytest.mark.parametrize(
    ("max_bytes", "max_partition_bytes", "read", "left"),
    [
        (UNLIMITED, UNLIMITED, [(0, 3), (0, 3), (1, 4)], []),
        (UNLIMITED, 40, [(0, 3), (1, 4)], [(0, 7, 9)]),
        (UNLIMITED, 30, [(0, 3), (1, 3)], [(0, 7, 9), (1, 3, 3)]),
        (UNLIMITED, 0, [(0, 1), (1, 1)], [(0, 1, 2), (0, 7, 9), (1, 1, 3)]),
        (40, 30, [(0, 2), (1, 2)], [(0, 2, 2), (0, 7, 9), (1, 2, 3)]),
    ],
)
def test_partitions_are_read_together_each_up_to_its_limit(
    log: LocalLog, max_bytes: int, max_partition_bytes: int, read: list[tuple[int, int]], left: list[tuple[int, ...]]
) -> None:
    topic = log.create_topic("many", 2, {})
    for partition in range(2):
        log.append("many", partition, [NewRecord(b"k%d" % i, b"value-%02d" % i) for i in range(10)])
    ranges = [
        HeldRange(topic.topic_id, "many", p, first, last, 1) for p, first, last in ((0, 0, 2), (1, 0, 3), (0, 7, 9))
    ]
    chunk = RecordReader(log, max_bytes, max_partition_bytes).read(ranges, UNLIMITED)
    assert [(part.held.partition, len(part.records)) for part in chunk.ranges] == read
    assert sorted((r.partition, r.first_offset, r.last_offset) for r in chunk.rest) == left


def test_a_range_far_away_from_the_others_waits_for_the_next_read(log: LocalLog) -> None:
    topic = log.create_topic("long", 1, {})
    log.append("long", 0, [NewRecord(None, b"v")] * 3_000)
    ranges = [HeldRange(topic.topic_id, "long", 0, offset, offset, 1) for offset in (2_500, 0, 900)]
    chunk = RecordReader(log, UNLIMITED).read(ranges, UNLIMITED)
    assert offsets(chunk) == [0, 900]
    assert offsets(RecordReader(log, UNLIMITED).read(chunk.rest, UNLIMITED)) == [2_500]


@pytest.mark.parametrize(
    ("compacted", "gaps"),
    [
        ({4}, [(4, 4)]),
        ({0, 1, 9}, [(0, 1), (9, 9)]),
        ({5, 6, 7, 8, 9}, [(5, 9)]),
        (set(range(10)), [(0, 9)]),
    ],
)
def test_offsets_without_a_record_are_gaps(
    log: LocalLog, held: HeldRange, compacted: set[int], gaps: list[tuple[int, int]]
) -> None:
    with SparseLog(log.path) as sparse:
        sparse.compacted = frozenset(compacted)
        reader = RecordReader(sparse, UNLIMITED)
        chunks = [reader.read([held], UNLIMITED)]
        while chunks[-1].rest:
            chunks.append(reader.read(chunks[-1].rest, UNLIMITED))
    assert [o for chunk in chunks for o in offsets(chunk)] == [o for o in range(10) if o not in compacted]
    reason = "no record in the log: compacted, or a transaction's marker"
    assert [m for chunk in chunks for m in missing(chunk)] == [
        (first, last, AcknowledgeType.GAP, reason) for first, last in gaps
    ]


def test_a_gap_at_the_end_comes_with_the_next_read(log: LocalLog, held: HeldRange) -> None:
    with SparseLog(log.path) as sparse:
        sparse.compacted = frozenset({8, 9})
        reader = RecordReader(sparse, UNLIMITED)
        first = reader.read([held], UNLIMITED)
        second = reader.read(first.rest, UNLIMITED)
    assert (first.missing, rest(first)) == ([], [(8, 9)])
    assert offsets(second) == []
    assert [(m.first_offset, m.last_offset) for m in second.missing] == [(8, 9)]


@pytest.mark.parametrize(
    ("isolation_level", "read", "gaps"),
    [
        (IsolationLevel.READ_UNCOMMITTED, list(range(10)), []),
        (
            IsolationLevel.READ_COMMITTED,
            [0, 3, 4],
            [
                (1, 2, AcknowledgeType.GAP, "no record in the log: compacted, aborted, or a transaction's marker"),
                (5, 5, AcknowledgeType.GAP, "no record in the log: compacted, aborted, or a transaction's marker"),
                (6, 9, AcknowledgeType.UNREAD, "not committed yet: the last stable offset is 6"),
            ],
        ),
    ],
)
def test_a_range_is_read_with_the_isolation_level_under_which_it_was_acquired(
    log: LocalLog,
    held: HeldRange,
    isolation_level: IsolationLevel,
    read: list[int],
    gaps: list[tuple[int, int, AcknowledgeType, str]],
) -> None:
    with SparseLog(log.path) as transactional:
        transactional.aborted, transactional.last_stable_offset = frozenset({1, 2, 5}), 6
        reader = RecordReader(transactional, UNLIMITED)
        first = reader.read([replace(held, isolation_level=isolation_level)], 10)
        second = reader.read(first.rest, 10)
    assert [*offsets(first), *offsets(second)] == read
    assert [*missing(first), *missing(second)] == gaps


def test_a_record_that_comes_between_two_polls_of_the_log_is_no_gap(log: LocalLog, held: HeldRange) -> None:
    with SparseLog(log.path) as late:
        late.reads_too_early = 1
        chunk = RecordReader(late, UNLIMITED).read([held], UNLIMITED)
    assert (offsets(chunk), chunk.missing) == (list(range(10)), [])


def test_deleted_records_are_gaps_with_a_reason_of_their_own(log: LocalLog, held: HeldRange) -> None:
    log.delete_records("orders", 0, 6)
    chunk = RecordReader(log, UNLIMITED).read([held], UNLIMITED)
    assert offsets(chunk) == [6, 7, 8, 9]
    assert missing(chunk) == [(0, 5, AcknowledgeType.GAP, "deleted: the log starts at offset 6")]


def test_offsets_past_the_end_of_the_log_are_returned_unread(log: LocalLog, held: HeldRange) -> None:
    beyond = HeldRange(held.topic_id, "orders", 0, 8, 12, 1)
    reader = RecordReader(log, UNLIMITED)
    chunk = reader.read([beyond], UNLIMITED)
    assert offsets(chunk) == [8, 9]
    rest_of = reader.read(chunk.rest, UNLIMITED)
    assert missing(rest_of) == [(10, 12, AcknowledgeType.UNREAD, "not in the log, which ends at offset 10")]


@pytest.mark.parametrize("is_created_again", [True, False])
def test_records_of_a_topic_that_is_not_the_same_any_more_are_returned_unread(
    log: LocalLog, held: HeldRange, is_created_again: bool
) -> None:
    log.delete_topic("orders")
    if is_created_again:
        log.create_topic("orders", 1, {})
        log.append("orders", 0, [NewRecord(None, b"another")] * 10)
    other = log.create_topic("other", 1, {})
    log.append("other", 0, [NewRecord(None, b"v")])
    chunk = RecordReader(log, UNLIMITED).read([held, HeldRange(other.topic_id, "other", 0, 0, 0, 1)], UNLIMITED)
    assert ([read.held.topic for read in chunk.ranges], chunk.missing, chunk.rest) == (["other"], [], ())
    reason = "the topic does not exist, or was created again"
    assert [(read.held, read.records, list(read.missing)) for read in chunk.unreadable] == [
        (held, [], [held.acknowledgement(AcknowledgeType.UNREAD, reason)])
    ]


@pytest.mark.parametrize(("config", "kind"), [({}, 1), ({TIMESTAMP_TYPE_CONFIG: LOG_APPEND_TIME}, 2)])
def test_timestamps_are_of_the_topics_type(log: LocalLog, config: dict[str, str], kind: int) -> None:
    topic = log.create_topic("stamped", 1, config)
    log.append("stamped", 0, [NewRecord(None, b"v")])
    chunk = RecordReader(log, UNLIMITED).read([HeldRange(topic.topic_id, "stamped", 0, 0, 0, 1)], 1)
    assert chunk.ranges[0].records[0].timestamp()[0] == kind


@pytest.mark.parametrize("compacted", [set(), {0}, {4, 5}, {9}, {1, 3, 8}])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_range_is_handed_out_in_parts_that_lose_nothing(
    log: LocalLog, held: HeldRange, compacted: set[int], size: int
) -> None:
    with SparseLog(log.path) as sparse:
        sparse.compacted = frozenset(compacted)
        reader = RecordReader(sparse, UNLIMITED)
        chunk = reader.read([held], UNLIMITED)
    (whole,) = chunk.ranges
    parts = [whole.part(first, first + size) for first in range(0, len(whole.records), size)]
    assert [offset_of(record) for part in parts for record in part.records] == offsets(chunk)
    assert [missing for part in parts for missing in part.missing] == list(whole.missing)
    covered = [offset for part in parts for offset in range(part.held.first_offset, part.held.last_offset + 1)]
    assert covered == list(range(whole.held.first_offset, whole.held.last_offset + 1))
    assert [o for part in parts for first, last in part.runs() for o in range(first, last + 1)] == offsets(chunk)
