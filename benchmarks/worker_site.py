"""A topic on a broker, a processor in a Spark session, and Spark workers that append the topic to a Delta table."""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from benchmarks.broker import add_broker_arguments, fill, open_broker, random_values, site_on
from benchmarks.report import Figure, print_round, print_rounds
from sharegroup.client.admin import AdminClient
from sharegroup.config.loader import Settings
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.session import build_session
from sharegroup.spark.worker import process
from tests.support.kafka_broker import KafkaBroker

DEFAULT_TARGET_RATIO = 0.8
"""The rate with nothing set over the best one."""
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp"]
LARGE_LOCKS = 1_000_000
"""Records that a worker's group may lock in a share-partition: all those of a topic of 4 million in 4 partitions."""


@dataclass(frozen=True, slots=True)
class WorkerSite:
    """The session, the topic and the processor of workers."""

    spark: SparkSession
    settings: Settings
    broker: KafkaBroker
    log: KafkaLog
    topic: str
    record_count: int

    def new_group(self, record_locks: int | None = LARGE_LOCKS, *, is_exactly_once: bool = False) -> str:
        """Return a group that begins at the earliest record, with so many locks a share-partition (None: default)."""
        group_id = f"workers-{uuid4().hex[:8]}"
        config = {"share.auto.offset.reset": "earliest"}
        if is_exactly_once:
            config["share.exactly.once.enable"] = "true"
        if record_locks is not None:
            config["share.partition.max.record.locks"] = str(record_locks)
        with AdminClient(self.settings.channel_properties) as administrator:
            administrator.alter_group_config(group_id, config)
        return group_id

    def new_table(self, path: Path) -> str:
        """Create an empty Delta table: two writers that create one at once conflict."""
        self.spark.createDataFrame([], SCHEMA).write.format("delta").save(str(path))
        return str(path)


AllRounds = Callable[[argparse.Namespace, SparkSession, KafkaBroker, Path], list[list[Figure]]]
"""Measures all rounds, and returns those that count."""
OneRound = Callable[[argparse.Namespace, WorkerSite, Path], list[Figure]]
"""Measures one round at a site, with tables in a folder."""


def worker_parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of a benchmark of workers."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(parser)
    parser.add_argument("--records", type=int, default=4_000_000, help="records of the topic")
    parser.add_argument("--long-records", type=int, default=16_000_000, help="records of the long topic")
    parser.add_argument("--record-bytes", type=int, default=200, help="size of their values, random letters")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the topic")
    parser.add_argument("--range-records", type=int, default=1_000_000, help="records that a worker acquires at once")
    parser.add_argument("--workers", type=int, default=2, help="workers of the share group")
    # Kafka's own consumer may take a quarter of the machine's memory: that is Java's default.
    parser.add_argument("--driver-memory", default="4g", help="heap of Spark's JVM, as of spark-submit")
    parser.add_argument("--warm-up-rounds", type=int, default=2, help="rounds before those that count")
    return parser


def measure(options: argparse.Namespace, all_rounds: AllRounds) -> None:
    """Measure in a new session and on a new broker."""
    with open_broker(options) as (broker, folder):
        spark = build_session("benchmark", {"spark.driver.memory": options.driver_memory})
        print_rounds(all_rounds(options, spark, broker, folder))
        spark.stop()


@contextmanager
def open_worker_site(
    options: argparse.Namespace, spark: SparkSession, broker: KafkaBroker, folder: Path
) -> Iterator[WorkerSite]:
    """Fill a new topic, and run a processor in the session until the context ends.

    Args:
        options: of a `worker_parser`.
        folder: for the state table and the checkpoint.
    """
    settings = site_on(broker, folder / "site", {"group.share.assignors": "all"}).settings
    with broker.open_log() as log:
        topic = filled_topic(options, broker, log, options.records)
        processor = ProcessorQuery(spark, settings)
        processor.start()
        try:
            yield WorkerSite(spark, settings, broker, log, topic, options.records)
        finally:
            processor.stop()


def with_long_topic(site: WorkerSite, options: argparse.Namespace) -> WorkerSite:
    """Return the site with a long topic: ranges that begin with 100 records need seconds to reach their size."""
    topic = filled_topic(options, site.broker, site.log, options.long_records)
    return replace(site, topic=topic, record_count=options.long_records)


def filled_topic(options: argparse.Namespace, broker: KafkaBroker, log: KafkaLog, record_count: int) -> str:
    """Return the name of a new topic with so many records, a multiple of the partitions."""
    topic = f"records-{uuid4().hex[:8]}"
    log.create_topic(topic, options.partitions)
    each = dict.fromkeys(range(options.partitions), record_count // options.partitions)
    fill(broker, topic, each, random_values(options.record_bytes))
    return topic


def rounds_of(site: WorkerSite, options: argparse.Namespace, folder: Path, one: OneRound) -> list[list[Figure]]:
    """Return the figures of each round after those that warm the session up, and print them as they come.

    Args:
        options: of a `worker_parser`.
        folder: for the tables, one folder a round.
    """
    for number in range(options.warm_up_rounds):
        print_round(f"warm-up {number}", one(options, site, folder / f"warm-up-{number}"))
    rounds: list[list[Figure]] = []
    for number in range(options.rounds):
        rounds.append(one(options, site, folder / f"round-{number}"))
        print_round(number, rounds[-1])
    return rounds


def drop(folder: Path) -> None:
    """Remove a table that was measured: a disk that still writes some of them back slows down the next measurement."""
    shutil.rmtree(folder)


def work(
    site: WorkerSite,
    folder: Path,
    options: argparse.Namespace,
    record_locks: int | None = LARGE_LOCKS,
    record_count: int | None = None,
) -> float:
    """Return the rate of workers from their start until the last record is in the table, joining included.

    Args:
        folder: for the table, which is removed at the end.
        options: of a `worker_parser`.
        record_locks: None sets neither them nor the size of ranges.
        record_count: records after which they end; None is all.
    """
    group_id, sink = site.new_group(record_locks), site.new_table(folder)
    wanted = site.record_count if record_count is None else record_count
    properties = {
        **site.settings.channel_properties,
        "group.id": group_id,
        "topics": site.topic,
    }
    if record_locks is not None:
        properties["max.poll.records"] = str(min(options.range_records, record_locks))
    stop, lock, written = threading.Event(), threading.Lock(), 0
    reached_s = 0.0

    def handle(records: DataFrame) -> None:
        nonlocal written, reached_s
        observation = Observation()
        counted = records.select(COLUMNS).observe(observation, F.count("*").alias("count"))
        counted.write.format("delta").mode("append").save(sink)
        with lock:
            written += observation.get["count"]
            if written >= wanted and not stop.is_set():
                reached_s = time.perf_counter()
                stop.set()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            process(site.spark, properties, handle, stop)
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    started_s = time.perf_counter()
    threads = [threading.Thread(target=run) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drop(folder)
    if failures:
        raise failures[0]
    return written / (reached_s - started_s)
