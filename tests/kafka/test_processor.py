"""The processor and Spark workers with requests, responses and records on a real broker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.audit.verify import verify
from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.record_state import Cause
from sharegroup.spark.worker import process
from tests.kafka.conftest import Begin
from tests.kafka.site import KafkaSite
from tests.spark.site import BROKER, places
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(
    spark: SparkSession, kafka_4_3_1: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaSite]:
    """A running processor that the tests of this file share."""
    site = KafkaSite(
        spark, tmp_path_factory.mktemp("site"), kafka=KafkaConfig(bootstrap_servers=kafka_4_3_1.bootstrap_servers)
    )
    site.start()
    yield site
    site.close()


class Seen:
    """A handler that accepts all records and keeps what it was given."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, bytes]] = []
        self._lock = threading.Lock()

    def __call__(self, records: DataFrame) -> None:
        rows = [(r.partition, r.offset, r.delivery_count, bytes(r.value)) for r in records.collect()]
        with self._lock:
            self.rows += rows


def work(site: KafkaSite, group_id: str, topic: str, handler: Seen) -> None:
    """A Spark worker, until there is nothing left."""
    assert site.spark is not None
    config = {**site.settings.link_properties, "group.id": group_id, "topics": topic}
    process(site.spark, config, handler, once_timeout_s=60)


def test_a_topic_is_drained_by_a_consumer_and_a_worker(site: KafkaSite) -> None:
    topic = site.new_topic(partition_count=2, record_count=300)
    group_id = site.new_group()
    with site.consumer(group_id, topic, max_poll_records=50) as consumer:
        polled = site.poll(consumer, 100)
        consumer.commit_sync()
    seen = Seen()
    work(site, group_id, topic, seen)
    worked = {(partition, offset) for partition, offset, _, _ in seen.rows}
    assert worked | places(polled) == {(partition, offset) for partition in range(2) for offset in range(300)}
    assert len(seen.rows) == len(worked)
    assert site.is_drained(group_id, topic)
    assert verify(site.rows(), BROKER).findings == []


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_worker_reports_offsets_without_a_record(site: KafkaSite, begin: Begin, isolation_level: str) -> None:
    topic = site.new_topic(record_count=2)
    group_id = site.new_group(share_isolation_level=isolation_level)
    begin(topic, ["aborted", "aborted"]).abort_transaction(30)  # offsets 2 and 3, marker at 4
    begin(topic, ["committed"]).commit_transaction(30)  # offset 5, marker at 6
    site.until(lambda: site.log.offsets(topic)[0].last_stable_offset == 7, "the transactions are over")
    site.produce(topic, 0, 1)
    with site.consumer(group_id, topic, max_poll_records=1, share_acquire_mode="record_limit") as consumer:
        # The first record is delivered, and given back at the end.
        assert places(site.poll(consumer, 1)) == {(0, 0)}
        consumer.unsubscribe()
    seen = Seen()
    work(site, group_id, topic, seen)
    aborted = [] if isolation_level == "read_committed" else [2, 3]
    assert sorted(offset for _, offset, _, _ in seen.rows) == sorted([0, 1, 5, 7, *aborted])
    assert site.is_drained(group_id, topic)
    causes = Counter[Cause]()
    for row in site.rows(group_id):
        for entry in row.transitions:
            causes[entry.cause] += entry.last_offset - entry.first_offset + 1
    assert causes[Cause.GAP] == 4 - len(aborted)
