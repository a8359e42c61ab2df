"""Groups on logs with gaps, on a real broker: nothing that exists is skipped, and the start offset never stalls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.audit.verification.verify import verify
from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import Cause
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from tests.client.processor_peer import BROKER, REQUESTS, RESPONSES, ProcessorPeer
from tests.kafka.compacted_topic import compacted_topic
from tests.kafka.conftest import Begin
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.kafka_broker import KafkaBroker

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
ABORTED = "no record in the log: compacted, aborted, or a transaction's marker"
NO_RECORD = "no record in the log: compacted, or a transaction's marker"


@dataclass
class Site:
    """A group, one member of it, and the state table behind them."""

    group_id: str
    admin: AdminClient
    consumer: ShareConsumer
    table: StateTableReader

    def begin(self, topic: str, isolation_level: IsolationLevel = UNCOMMITTED) -> None:
        """Subscribe the member; the group begins at the first record."""
        config = {"share.auto.offset.reset": "earliest", "share.isolation.level": isolation_level.value}
        self.admin.alter_group_config(self.group_id, config)
        self.consumer.subscribe([topic])

    def polled(self, count: int) -> list[int]:
        """Offsets of the next records, not acknowledged yet."""
        offsets: list[int] = []

        def has_all() -> bool:
            if len(offsets) < count:
                offsets.extend(message.offset() or 0 for message in self.consumer.poll(1))
            return len(offsets) >= count

        eventually(has_all, f"{count} records are delivered")
        return offsets

    def accept(self, topic: str, offsets: list[int]) -> None:
        for offset in offsets:
            self.consumer.acknowledge_offset(topic, 0, offset, AcknowledgeType.ACCEPT)
        self.consumer.commit_sync(DEADLINE_S)

    def settled_at(self, end_offset: int) -> None:
        """The start offset gets there, though nobody produces any more, and no record is delivered meanwhile."""

        def is_there() -> bool:
            assert not self.consumer.poll(0.2)
            return self._start_offset() == end_offset

        eventually(is_there, f"the start offset is {end_offset}")

    def gaps(self) -> dict[int, str]:
        """Offset → reason, of all that was reported missing."""
        return {
            offset: entry.reason
            for row in self.table.rows(group_id=self.group_id)
            for entry in row.transitions
            if entry.cause is Cause.GAP
            for offset in range(entry.first_offset, entry.last_offset + 1)
        }

    def _start_offset(self) -> int | None:
        groups = fold(self.table.rows(group_id=self.group_id)).groups.values()
        partitions = [led.share_partition for group in groups for led in group.partitions.values()]
        return partitions[0].start_offset if partitions else None


@pytest.fixture
def site(broker: KafkaBroker, log: KafkaLog, tmp_path: Path) -> Iterator[Site]:
    group_id = f"group-{uuid4().hex[:8]}"
    table = str(tmp_path / "state")
    config: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group_id,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 500,
        "fetch.max.wait.ms": 1_000,
    }
    with ProcessorPeer(log, table_path=table), ShareConsumer(config) as consumer:
        yield Site(group_id, AdminClient(log), consumer, StateTableReader(table))
    for topic in (REQUESTS, RESPONSES):
        log.delete_topic(topic)
    assert verify(StateTableReader(table).rows(), BROKER).findings == []


@pytest.mark.parametrize(
    ("isolation_level", "delivered", "gaps"),
    [
        (UNCOMMITTED, [0, 1, 3, 4], {2: NO_RECORD, 5: NO_RECORD}),
        (COMMITTED, [0, 1], {2: ABORTED, 3: ABORTED, 4: ABORTED, 5: ABORTED}),
    ],
)
def test_aborted_records_and_markers_at_the_end_of_the_log(
    log: KafkaLog,
    events: str,
    begin: Begin,
    site: Site,
    isolation_level: IsolationLevel,
    delivered: list[int],
    gaps: dict[int, str],
) -> None:
    begin(events, ["a", "b"]).commit_transaction(30)  # offsets 0 and 1, marker at 2
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 3, "the first transaction is over")
    begin(events, ["x", "y"]).abort_transaction(30)  # offsets 3 and 4, marker at 5
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 6, "the second transaction is over")
    site.begin(events, isolation_level)
    offsets = site.polled(len(delivered))
    assert offsets == delivered
    site.accept(events, offsets)
    site.settled_at(6)
    assert site.gaps() == gaps


def test_a_read_committed_group_gets_nothing_of_an_open_transaction_and_all_of_it_once_it_is_committed(
    log: KafkaLog, events: str, begin: Begin, site: Site
) -> None:
    log.append(events, 0, [NewRecord(None, b"before")])
    transaction = begin(events, ["a", "b"])  # offsets 1 and 2
    log.append(events, 0, [NewRecord(None, b"after")])  # offset 3
    site.begin(events, COMMITTED)
    site.accept(events, site.polled(1))
    site.settled_at(1)
    transaction.commit_transaction(30)  # marker at 4; the fetch that waits is woken by it
    offsets = site.polled(3)
    assert offsets == [1, 2, 3]
    site.accept(events, offsets)
    site.settled_at(5)


def test_a_compacted_topic(log: KafkaLog, site: Site) -> None:
    topic = compacted_topic(log)

    def is_compacted() -> bool:
        # Only segments that are closed are compacted, and an append closes one that is old enough.
        log.append(topic, 0, [NewRecord(uuid4().bytes, b"filler")])
        return len(log.read(topic, 0, 0, 12)) < 12

    eventually(is_compacted, "the topic is compacted")
    end_offset = log.offsets(topic)[0].end_offset
    left = [record.offset for record in log.read(topic, 0, 0, end_offset)]
    site.begin(topic)
    offsets = site.polled(len(left))
    assert offsets == left
    site.accept(topic, offsets)
    site.settled_at(end_offset)
    assert set(site.gaps()) == set(range(end_offset)) - set(left)


@pytest.mark.parametrize(("start_offset", "delivered"), [(6, [6, 7, 8, 9]), (10, [])])
def test_records_deleted_past_the_start_offset(
    log: KafkaLog, events: str, site: Site, start_offset: int, delivered: list[int]
) -> None:
    log.append(events, 0, [NewRecord(None, b"%d" % number) for number in range(10)])
    site.begin(events)
    held = site.polled(10)
    log.delete_records(events, 0, start_offset)
    for offset in held:
        site.consumer.acknowledge_offset(events, 0, offset, AcknowledgeType.RELEASE)
    site.consumer.commit_sync(DEADLINE_S)
    offsets = site.polled(len(delivered))
    assert offsets == delivered
    site.accept(events, offsets)
    site.settled_at(10)
    assert site.gaps() == dict.fromkeys(range(start_offset), f"deleted: the log starts at offset {start_offset}")
    # The next record is delivered as if nothing had been.
    log.append(events, 0, [NewRecord(None, b"next")])
    site.accept(events, site.polled(1))
    site.settled_at(11)


def test_retention(log: KafkaLog, site: Site) -> None:
    topic = log.create_topic(f"short-{uuid4().hex[:8]}", 1, {"retention.ms": "1000"}).name
    log.append(topic, 0, [NewRecord(None, b"old", timestamp_ms=1)] * 3)
    # It begins at the first record, and acquires none before the broker deletes it.
    site.admin.alter_group_config(site.group_id, {"share.auto.offset.reset": "earliest"})
    site.admin.pause_group(site.group_id)
    site.begin(topic)
    eventually(lambda: log.offsets(topic)[0].start_offset == 3, "the broker deletes what is old")
    site.admin.resume_group(site.group_id)
    site.settled_at(3)
    # It is not old for a while yet.
    log.append(topic, 0, [NewRecord(None, b"new", timestamp_ms=log.now_ms() + 1_800_000)])
    offsets = site.polled(1)
    assert offsets == [3]
    site.accept(topic, offsets)
    site.settled_at(4)
