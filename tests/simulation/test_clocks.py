"""Clocks that are put back: the time of a request partition goes on."""

from __future__ import annotations

from sharegroup.client.settings import FetchSettings
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.core.record_state import Cause
from sharegroup.logs.partitioner import partition_for
from sharegroup.protocol.rows import RecordType
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, Network, SimulatedMember
from tests.simulation.processor import SimulatedProcessor
from tests.simulation.schedule import TOPIC_CONFIG
from tests.simulation.table import StoredTable
from tests.simulation.world import START_MS, World

GROUP = "group-1"
OTHER_GROUP = "second"
"""In another partition of the request log, if that has two."""


class Site:
    """A processor, and a member that holds a record and is gone.

    Args:
        partition_count: partitions of the request log.
    """

    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count
        self.world = World(seed=1)
        self.log = StoredLog(self.world)
        self.log.create(REQUEST_TOPIC, partition_count, TOPIC_CONFIG)
        self.log.create(RESPONSE_TOPIC, 1, TOPIC_CONFIG)
        self.log.create("orders", 1, {})
        self.log.grow("orders", 0, 1)
        broker = BrokerConfig()
        self.ledger = Ledger(broker.group_share_delivery_count_limit, broker.group_share_record_lock_duration_ms)
        self.table = StoredTable(self.ledger.committed)
        self.take_over()
        member = SimulatedMember(
            self.world, self.log, self.ledger, GROUP, "anna", ["orders"], Network(), FetchSettings(max_records=1)
        )
        self.log.topic(RESPONSE_TOPIC).observers += [self.ledger.note_response, member.deliver]
        while not self.transitions(Cause.ACQUIRE):
            self.world.run_until(self.world.now_ms + 1)
        member.die()

    def take_over(self) -> None:
        processor = SimulatedProcessor(
            self.world,
            self.log,
            self.table,
            self.ledger,
            ProcessorConfig(
                state_table_path="s",
                checkpoint_path="c",
                request_topic_partitions=self.partition_count,
                response_topic_partitions=1,
            ),
            BrokerConfig(),
            {group_id: {"share.auto.offset.reset": "earliest"} for group_id in (GROUP, OTHER_GROUP)},
            lambda _: None,
        )
        self.log.topic(REQUEST_TOPIC).observers.append(lambda _: processor.wake_if_running())
        processor.start()

    def transitions(self, cause: Cause) -> list[int]:
        """When records of the first group changed for a cause; epoch ms."""
        rows = [row for row in self.table.rows if row.group_id == GROUP]
        return [entry.time_ms for row in rows for entry in row.transitions if entry.cause is cause]

    @property
    def message_count(self) -> int:
        return self.log.topic(REQUEST_TOPIC).end_offsets[0]


def test_a_lock_ends_in_time_after_the_broker_put_its_clock_back() -> None:
    site = Site()
    before = site.message_count
    site.log.jump(REQUEST_TOPIC, 0, -600_000)
    site.world.run_until(site.world.now_ms + 31_000)
    assert len(site.transitions(Cause.LOCK_TIMEOUT)) == 1
    # Not one Tick after the other until the broker's clock is where it was.
    assert site.message_count - before < 10


def test_time_does_not_go_back_with_a_takeover() -> None:
    site = Site()
    site.log.jump(REQUEST_TOPIC, 0, -600_000)
    site.take_over()
    late = SimulatedMember(
        site.world, site.log, site.ledger, GROUP, "ben", ["orders"], Network(), FetchSettings(max_records=1)
    )
    site.log.topic(RESPONSE_TOPIC).observers.append(late.deliver)
    site.world.run_until(site.world.now_ms + 5_000)
    markers = [row for row in site.table.rows if row.record_type is RecordType.COMMIT_MARKER]
    assert markers[-1].leader_epoch == 2
    times_ms = [time_ms for row in markers for time_ms in row.payload["message_times_ms"].values()]
    assert times_ms == sorted(times_ms)


def test_time_does_not_go_back_in_a_partition_that_the_last_marker_has_no_cut_of() -> None:
    site = Site(partition_count=2)
    partition, other = (partition_for(group_id, 2) for group_id in (GROUP, OTHER_GROUP))
    assert partition != other
    site.log.jump(REQUEST_TOPIC, partition, -600_000)
    site.world.run_until(site.world.now_ms + 120_000)
    late = SimulatedMember(
        site.world, site.log, site.ledger, OTHER_GROUP, "ben", ["orders"], Network(), FetchSettings(max_records=1)
    )
    site.log.topic(RESPONSE_TOPIC).observers.append(late.deliver)
    site.world.run_until(site.world.now_ms + 10_000)
    late.die()
    markers = [row.payload for row in site.table.rows if row.record_type is RecordType.COMMIT_MARKER]
    assert {cut["partition"] for cut in markers[-1]["cuts"]} == {other}
    site.take_over()
    site.world.run_until(site.world.now_ms + 60_000)
    times_ms = [
        cut["time_ms"]
        for row in site.table.rows
        if row.record_type is RecordType.COMMIT_MARKER and row.leader_epoch == 2
        for cut in row.payload["cuts"]
        if cut["partition"] == partition
    ]
    (lock_end_ms,) = site.transitions(Cause.LOCK_TIMEOUT)
    assert min(times_ms) >= lock_end_ms


def test_a_commit_without_a_cut_has_a_time() -> None:
    site = Site()
    for _ in range(4):
        # None of them commits before the next one: so the last one announces each message before it applies it.
        site.take_over()
    site.world.run_until(site.world.now_ms + 1_000)
    markers = [row for row in site.table.rows if row.record_type is RecordType.COMMIT_MARKER]
    assert any(row.payload["attempted_offset"] and not row.payload["cuts"] for row in markers)
    assert min(row.time_ms for row in markers) >= START_MS
