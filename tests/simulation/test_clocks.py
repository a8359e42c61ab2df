"""Clocks that are put back: the time of a request partition goes on."""

from __future__ import annotations

from sharegroup.client.settings import FetchSettings
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.processor import ProcessorConfig
from sharegroup.core.record_state import Cause
from sharegroup.protocol.rows import RecordType
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.member import REQUEST_TOPIC, RESPONSE_TOPIC, Network, SimulatedMember
from tests.simulation.processor import SimulatedProcessor
from tests.simulation.schedule import TOPIC_CONFIG
from tests.simulation.table import StoredTable
from tests.simulation.world import World

GROUP = "group-1"


class Site:
    """A processor, and a member that holds a record and is gone."""

    def __init__(self) -> None:
        self.world = World(seed=1)
        self.log = StoredLog(self.world)
        for topic in (REQUEST_TOPIC, RESPONSE_TOPIC):
            self.log.create(topic, 1, TOPIC_CONFIG)
        self.log.create("orders", 1, {})
        self.log.grow("orders", 0, 1)
        broker = BrokerConfig()
        self.ledger = Ledger(broker.group_share_delivery_count_limit, broker.group_share_record_lock_duration_ms)
        self.table = StoredTable(self.ledger.committed)
        self.take_over()
        member = SimulatedMember(
            self.world, self.log, self.ledger, GROUP, "anna", ["orders"], Network(), FetchSettings(max_records=1)
        )
        self.log.topic(RESPONSE_TOPIC).observers += [self.ledger.answered, member.deliver]
        while not self.transitions(Cause.ACQUIRE):
            self.world.run_until(self.world.now_ms + 1)
        member.die()

    def take_over(self) -> None:
        processor = SimulatedProcessor(
            self.world,
            self.log,
            self.table,
            self.ledger,
            ProcessorConfig(state_table_path="s", checkpoint_path="c", response_topic_partitions=1),
            BrokerConfig(),
            {GROUP: {"share.auto.offset.reset": "earliest"}},
            lambda _: None,
        )
        self.log.topic(REQUEST_TOPIC).observers.append(lambda _: processor.wake_if_running())
        processor.start()

    def transitions(self, cause: Cause) -> list[int]:
        """When records changed for a cause; epoch ms."""
        return [entry.time_ms for row in self.table.rows for entry in row.transitions if entry.cause is cause]

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
