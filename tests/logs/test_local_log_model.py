"""The local log against a model in dictionaries: whatever is done to both, they agree."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sharegroup.errors import OffsetOutOfRangeError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_follower import LocalFollower
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import LogRecord, NewRecord, PartitionOffsets
from tests.support.examples import examples

TOPICS = {"requests": {"message.timestamp.type": "LogAppendTime"}, "events": {}}

LARGEST_RECORD_BYTES = 300
"""More than any record here has, its headers as they are stored included."""

headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
new_records = st.builds(
    NewRecord,
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=8),
    headers=headers,
    timestamp_ms=st.none() | st.integers(0, 10_000),
)
batches = st.lists(new_records, max_size=5)
partitions = st.tuples(st.sampled_from(sorted(TOPICS)), st.integers(0, 1))


def size_bytes(record: LogRecord) -> int:
    return len(record.key or b"") + len(record.value or b"")


@dataclass
class PartitionModel:
    """The expected content of one partition."""

    start_offset: int = 0
    end_offset: int = 0
    last_stamp_ms: int = 0
    records: dict[int, LogRecord] = field(default_factory=dict)


class LogModel(RuleBasedStateMachine):
    """Random appends, deletions, reads, clock jumps and re-openings."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now_ms = 5_000
        self.latest_ms = 0
        self.positions = {0: 0, 1: 0}
        self.follower: LocalFollower | None = None
        self.model = {(topic, partition): PartitionModel() for topic in TOPICS for partition in (0, 1)}

    @initialize()
    def create(self) -> None:
        self.open()
        for topic, config in TOPICS.items():
            self.log.create_topic(topic, 2, config)

    def open(self) -> None:
        clock = LogClock(lambda: self.now_ms, lambda: 0)
        self.log = LocalLog(Path(self.folder.name) / "events.log", clock)
        self.latest_ms = max(self.now_ms, *(model.last_stamp_ms for model in self.model.values()))

    def expect(self, topic: str, partition: int, records: list[NewRecord]) -> int:
        model = self.model[topic, partition]
        first = model.end_offset
        stamp_all = topic == "requests"
        if records and stamp_all:
            self.latest_ms = max(self.now_ms, self.latest_ms, model.last_stamp_ms)
        now_ms = self.latest_ms if stamp_all else self.now_ms
        for record in records:
            stamp = now_ms if stamp_all or record.timestamp_ms is None else record.timestamp_ms
            model.records[model.end_offset] = LogRecord(
                topic, partition, model.end_offset, stamp, record.key, record.value, record.headers
            )
            model.end_offset += 1
            model.last_stamp_ms = now_ms
        return first

    @rule(at=partitions, records=batches)
    def append(self, at: tuple[str, int], records: list[NewRecord]) -> None:
        assert self.log.append(*at, records) == self.expect(*at, records)

    @rule(several=st.lists(st.tuples(partitions, batches), max_size=3))
    def append_all(self, several: list[tuple[tuple[str, int], list[NewRecord]]]) -> None:
        firsts = self.log.append_all([(*at, records) for at, records in several])
        assert firsts == [self.expect(*at, records) for at, records in several]

    @rule(at=partitions, before_offset=st.integers(0, 30))
    def delete_records(self, at: tuple[str, int], before_offset: int) -> None:
        model = self.model[at]
        if before_offset > model.end_offset:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.delete_records(*at, before_offset)
            return
        self.log.delete_records(*at, before_offset)
        model.start_offset = max(model.start_offset, before_offset)
        model.records = {offset: record for offset, record in model.records.items() if offset >= before_offset}

    @rule(at=partitions, offset=st.integers(0, 30))
    def raise_end_offset(self, at: tuple[str, int], offset: int) -> None:
        model = self.model[at]
        self.log.raise_end_offset(*at, offset)
        if model.start_offset == model.end_offset:
            model.start_offset = max(model.start_offset, offset)
        model.end_offset = max(model.end_offset, offset)

    @rule(at=partitions, start=st.integers(0, 30), length=st.integers(0, 30), limit=st.none() | st.integers(0, 4))
    def read(self, at: tuple[str, int], start: int, length: int, limit: int | None) -> None:
        expected = [record for offset, record in self.model[at].records.items() if start <= offset < start + length]
        assert self.log.read(*at, start, start + length, limit) == expected[:limit]

    @rule(max_records=st.integers(1, 6), max_bytes=st.integers(0, 600), starts_again=st.booleans())
    def follow(self, max_records: int, max_bytes: int, starts_again: bool) -> None:
        if self.follower is None or starts_again:
            self.close_follower()
            self.follower = self.log.follow("requests", self.positions)
        remaining = {p: self.remaining(p) for p in self.positions}
        taken = self.follower.take(max_records, max_bytes, 0)
        if taken:
            # The log's clock goes on from the stamps that are read, and from the machine's time then.
            self.latest_ms = max(self.now_ms, self.latest_ms)
        assert bool(taken) == any(remaining.values())
        assert len(taken) <= max_records
        assert len(taken) == 1 or sum(map(size_bytes, taken)) <= max_bytes
        for partition, records in remaining.items():
            of_partition = [record for record in taken if record.partition == partition]
            assert of_partition == records[: len(of_partition)]
        if not taken or (len(taken) < max_records and sum(map(size_bytes, taken)) <= max_bytes - LARGEST_RECORD_BYTES):
            assert len(taken) == sum(map(len, remaining.values()))
        self.positions |= {record.partition: record.offset + 1 for record in taken}
        for partition, position in self.follower.positions.items():
            assert self.remaining(partition) == self.remaining(partition, position)

    def remaining(self, partition: int, position: int | None = None) -> list[LogRecord]:
        start = self.positions[partition] if position is None else position
        return [record for offset, record in self.model["requests", partition].records.items() if offset >= start]

    def close_follower(self) -> None:
        if self.follower is not None:
            self.follower.close()
            self.follower = None

    @rule(now_ms=st.integers(0, 10_000))
    def set_clock(self, now_ms: int) -> None:
        self.now_ms = now_ms

    @rule()
    def reopen(self) -> None:
        self.close_follower()
        self.log.close()
        self.open()

    @invariant()
    def offsets_agree(self) -> None:
        for topic in TOPICS:
            assert self.log.offsets(topic) == {
                partition: PartitionOffsets(
                    self.model[topic, partition].start_offset,
                    self.model[topic, partition].end_offset,
                    self.model[topic, partition].end_offset,
                )
                for partition in (0, 1)
            }

    def teardown(self) -> None:
        self.close_follower()
        for (topic, partition), model in self.model.items():
            assert self.log.read(topic, partition, 0, model.end_offset) == list(model.records.values())
        self.log.close()
        self.folder.cleanup()


TestLogModel = pytest.mark.slow(LogModel.TestCase)
TestLogModel.settings = settings(max_examples=examples(10), stateful_step_count=30)
