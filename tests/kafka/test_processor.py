"""The processor and Spark workers with requests, responses and records on a real broker."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession

from sharegroup.audit.verification.verify import verify
from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.record_state import Cause
from sharegroup.errors import ConfigurationError, LogAccessDeniedError, UnknownTopicError
from sharegroup.logs.port import NewRecord
from sharegroup.processor.topics import ensure_topics
from sharegroup.protocol.rows import RecordType
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.worker import process
from tests.kafka.access import grant, logged_in
from tests.kafka.conftest import Begin
from tests.kafka.site import KafkaSite
from tests.support.eventually import DEADLINE_S
from tests.support.kafka_broker import USERS, KafkaBroker
from tests.support.site import BROKER, places

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
SHORT_TIMEOUT = {"fetch_max_wait_ms": 500, "request_timeout_ms": 2_000}


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Callable[[KafkaConfig], KafkaSite]]:
    """Makes sites of a test's own; they are not started."""
    sites: list[KafkaSite] = []

    def make(kafka: KafkaConfig) -> KafkaSite:
        folder = tmp_path / f"site-{len(sites)}"
        folder.mkdir()
        sites.append(KafkaSite(folder, kafka=kafka))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


NewSite = Callable[[KafkaConfig], KafkaSite]


def without_tls(broker: KafkaBroker) -> KafkaConfig:
    return KafkaConfig(bootstrap_servers=broker.bootstrap_servers)


class Seen:
    """A handler that accepts all records and keeps what it was given."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self.plans: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, records: DataFrame) -> None:
        offsets = [(row.partition, row.offset) for row in records.collect()]
        with self._lock:
            self.places += offsets
            self.plans.append(records._jdf.queryExecution().toString())


def work(spark: SparkSession, site: KafkaSite, group_id: str, topic: str) -> Seen:
    """Let a Spark worker work until there is nothing left."""
    seen = Seen()
    config = {**site.settings.channel_properties, "group.id": group_id, "topics": topic}
    process(spark, config, seen, once_timeout_s=DEADLINE_S)
    return seen


def test_a_topic_with_gaps_is_drained_by_a_consumer_and_a_worker(
    spark: SparkSession, site: KafkaSite, begin: Begin
) -> None:
    topic = site.new_topic(partition_count=2, record_count=300)
    begin(topic, ["aborted"] * 2).abort_transaction(30)  # offsets 300 and 301 of partition 0, marker at 302
    # The brokers write the marker after their response to the abort, so it could follow the next transaction's record.
    site.until(lambda: site.log.offsets(topic)[0].last_stable_offset == 303, "the first transaction is over")
    begin(topic, ["committed"]).commit_transaction(30)  # offset 303, marker at 304
    site.until(lambda: site.log.offsets(topic)[0].last_stable_offset == 305, "the second transaction is over")
    site.produce(topic, 0, 1)
    group_id = site.new_group(share_isolation_level="read_committed")
    with site.consumer(group_id, topic, max_poll_records=50) as consumer:
        polled = places(site.poll(consumer, 100))
        consumer.commit_sync()
    worked = work(spark, site, group_id, topic).places
    records = {(partition, offset) for partition in range(2) for offset in range(300)} | {(0, 303), (0, 305)}
    assert polled | set(worked) == records
    assert len(polled) + len(worked) == len(records)
    assert site.is_drained(group_id, topic)
    causes = Counter[Cause]()
    for row in site.rows(group_id):
        for entry in row.transitions:
            causes[entry.cause] += entry.last_offset - entry.first_offset + 1
    assert (causes[Cause.ACCEPT], causes[Cause.GAP]) == (602, 4)
    assert verify(site.rows(), BROKER).findings == []


def test_a_group_goes_on_when_its_topic_changes(site: KafkaSite, broker: KafkaBroker) -> None:
    topic = site.new_topic(record_count=5)
    group_id = site.new_group()
    with site.consumer(group_id, topic) as consumer:
        assert places(site.poll(consumer, 5)) == {(0, offset) for offset in range(5)}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result()
        site.until(lambda: len(site.log.offsets(topic)) == 2, "the partition is there")
        site.produce(topic, 1, 5)
        assert places(site.poll(consumer, 5)) == {(1, offset) for offset in range(5)}
        site.log.delete_topic(topic)
        site.log.create_topic(topic, 1)
        # Deliveries of today, with the clocks of producers that are a day behind.
        stale_ms = site.log.now_ms() - DAY_MS
        site.log.append(topic, 0, [NewRecord(None, b"value", timestamp_ms=stale_ms)] * 3)
        assert places(site.poll(consumer, 3)) == {(0, offset) for offset in range(3)}


def test_members_ask_again_when_the_response_topic_was_deleted(site: KafkaSite) -> None:
    topic = site.new_topic(record_count=10)
    group_id = site.new_group()
    with site.consumer(group_id, topic, max_poll_records=5, **SHORT_TIMEOUT) as consumer:
        site.poll(consumer, 5)
        site.log.delete_topic(site.settings.processor.response_topic_name)
        consumer.commit_sync()
        site.poll(consumer, 5)
        consumer.commit_sync()
    site.until(lambda: site.is_drained(group_id, topic), "the topic is drained")


def test_what_anybody_appends_to_the_request_topic(site: KafkaSite) -> None:
    figures = site.running_processor().processor.figures
    before, now_ms = figures.undecodable_messages, site.log.now_ms()
    requests = site.settings.processor.request_topic_name
    # More than a broker takes by default, and clocks that are a day off: LogAppendTime ignores them.
    site.log.append(requests, 0, [NewRecord(None, bytes(2_000_000))])
    for stamp_ms in (now_ms - DAY_MS, now_ms + DAY_MS):
        site.log.append(requests, 0, [NewRecord(None, b"x", timestamp_ms=stamp_ms)])
    site.until(lambda: figures.undecodable_messages - before == 3, "all are counted")
    group_id = site.new_group()
    (row,) = site.rows(group_id, RecordType.GROUP_METADATA)
    assert abs(row.time_ms - now_ms) < DAY_MS / 2


@pytest.mark.long("a processor without a broker's group coordinator waits for seconds")
def test_a_processor_that_is_started_again_goes_on(new_site: NewSite, broker: KafkaBroker) -> None:
    site = new_site(without_tls(broker))
    requests = site.settings.processor.request_topic_name
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group()
        consumer = site.consumer(group_id, topic, max_poll_records=5, **SHORT_TIMEOUT)
        site.poll(consumer, 5)
    with consumer:
        with site.running():
            assert len(site.poll(consumer, 5)) == 5
            consumer.commit_sync()
            before = site.reader.last_marker()
            assert before is not None
            site.log.delete_topic(requests)
            with pytest.raises(UnknownTopicError, match=f"request topic {requests} was deleted"):
                site.until(lambda: False, "the processor ends")
        site.produce(topic, 0, 5)
        with site.running():
            # The offsets that the state table has seen do not come again.
            assert site.log.offsets(requests)[0].end_offset >= before.end_offsets[0]
            site.poll(consumer, 5)
            consumer.commit_sync()
            site.until(lambda: site.is_drained(group_id, topic), "the topic is drained")
            # Without a processor it would wait for responses.
            consumer.close()
    assert verify(site.rows(), BROKER).findings == []


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "has message.timestamp.type=CreateTime, but LogAppendTime is needed"),
        ({"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}, "retention.ms=60000, but 604800000"),
        ({"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}, "cleanup.policy=compact, but del"),
        ({"message.timestamp.type": "LogAppendTime", "retention.bytes": "1000"}, "retention.bytes=1000, but -1"),
    ],
)
def test_a_request_topic_that_will_not_do(
    new_site: NewSite, broker: KafkaBroker, config: dict[str, str], complaint: str
) -> None:
    site = new_site(without_tls(broker))
    processor = site.settings.processor
    site.log.create_topic(processor.request_topic_name, 1, config)
    with pytest.raises(ConfigurationError, match=f"Topic {processor.request_topic_name}.*{complaint}.*Set "):
        ensure_topics(site.log, processor)


def grant_all(broker: KafkaBroker, stem: str) -> None:
    """Let alice do everything with the topics of a site; she has no right on any consumer group."""
    for name in ("requests", "responses", "topic"):
        grant(broker, f"{name}-{stem}", AclOperation.ALL, is_prefix=True)


@pytest.mark.long("a processor that is refused, and starts again")
def test_a_processor_that_logs_in(
    spark: SparkSession,
    new_site: NewSite,
    broker: KafkaBroker,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # As with --verbose.
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "sharegroup")
    site = new_site(logged_in(broker, "alice", USERS["alice"]))
    requests = site.settings.processor.request_topic_name
    with pytest.raises(LogAccessDeniedError, match=f"create topic '{requests}'"), site.running():
        pass
    site.stop()
    assert not site.state_path.exists()

    grant_all(broker, site.stem)
    site.until(lambda: can_create(site, requests), "the rights are granted")
    processor = ProcessorQuery(spark, site.settings)
    processor.start()
    try:
        topic = site.new_topic(record_count=10)
        seen = work(spark, site, site.new_group(), topic)
        assert len(seen.places) == 10
        (query,) = processor.session.streams.active
        plans = [query._jsq.explainInternal(True), str(query.lastProgress), *seen.plans]
    finally:
        processor.stop()
    assert all(plans)
    files = [path for path in site.folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if USERS["alice"].encode() in path.read_bytes()]
    assert USERS["alice"] not in "".join((*plans, caplog.text, *capfd.readouterr()))


def can_create(site: KafkaSite, topic: str) -> bool:
    try:
        ensure_topics(site.log, site.settings.processor)
    except LogAccessDeniedError:
        return False
    return bool(site.log.describe_topic(topic))


@pytest.mark.long("a broker that is killed, a JVM of its own")
def test_an_outage(new_site: NewSite, kafka_to_kill: KafkaBroker) -> None:
    broker = kafka_to_kill
    site = new_site(without_tls(broker))
    # Down at the start.
    broker.kill()
    starting = threading.Thread(target=site.start)
    starting.start()
    broker.start()
    starting.join()
    topic = site.new_topic(record_count=20)
    group_id = site.new_group(share_record_lock_duration_ms="60000")
    with site.consumer(group_id, topic, max_poll_records=5, **SHORT_TIMEOUT) as consumer:
        first = site.poll(consumer, 5)
        # Down while records are held, and their acknowledgements are under way.
        broker.kill()
        consumer.commit_async()
        broker.start()
        rest = site.poll(consumer, 15)
        consumer.commit_sync()
        site.until(lambda: site.is_drained(group_id, topic), "the topic is drained")
    assert places([*first, *rest]) == {(0, offset) for offset in range(20)}
    assert verify(site.rows(), BROKER).findings == []
    # A processor that waits for Kafka can be stopped.
    broker.kill()
    site.stop()


@pytest.mark.long("Kafka 3.9.2")
def test_the_oldest_version(spark: SparkSession, new_site: NewSite, kafka_3_9_2: KafkaBroker) -> None:
    site = new_site(without_tls(kafka_3_9_2))
    with site.running():
        topic = site.new_topic(partition_count=2, record_count=50)
        group_id = site.new_group(f"group-{uuid4().hex[:8]}")
        with site.consumer(group_id, topic, max_poll_records=20) as consumer:
            polled = places(site.poll(consumer, 20))
            consumer.commit_sync()
        worked = work(spark, site, group_id, topic).places
        assert len(polled) + len(worked) == 100
        assert site.is_drained(group_id, topic)
    assert verify(site.rows(), BROKER).findings == []
