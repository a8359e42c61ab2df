"""Kafka → Delta by a Spark worker of a share group, against a plain Spark stream, in one warm session.

Both read the same topic of a real broker and append it to a Delta table; the processor runs in the same session. The
first round warms the session up and does not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.admin import AdminClient
from sharegroup.config.loader import Settings, load_settings
from sharegroup.logs.kafka import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.session import build_session
from sharegroup.spark.worker import process
from tests.support.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "records"
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count")
    parser.add_argument("--records", type=int, default=4_000_000, help="records of the topic")
    parser.add_argument("--record-bytes", type=int, default=200, help="their size")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the topic")
    parser.add_argument("--range-records", type=int, default=1_000_000, help="records that a worker acquires at once")
    parser.add_argument("--workers", type=int, default=2, help="workers of the share group")
    options = parser.parse_args()
    print(f"settings: {vars(options)}, Kafka 4.3.1, one node, local[4]")
    with tempfile.TemporaryDirectory() as name, KafkaBroker("4.3.1", Path(name) / "broker") as broker:
        folder = Path(name)
        with broker.open_log() as log:
            fill(log, options)
            run(options, broker, log, folder)


def fill(log: KafkaLog, options: argparse.Namespace) -> None:
    log.create_topic(TOPIC, options.partitions)
    batch = [NewRecord(None, b"x" * options.record_bytes)] * 4_000
    for number in range(options.records // len(batch)):
        log.append(TOPIC, number % options.partitions, batch)


def run(options: argparse.Namespace, broker: KafkaBroker, log: KafkaLog, folder: Path) -> None:
    flags = {
        "bootstrap.servers": broker.bootstrap_servers,
        "state.table.path": folder / "state",
        "checkpoint.path": folder / "checkpoint",
        "group.share.max.partition.max.record.locks": 1_000_000,
        "group.share.assignors": "all",
    }
    settings = load_settings(ROOT / "conf" / "kafka.yaml", {}, [f"{key}={value}" for key, value in flags.items()])
    spark = build_session("kafka-to-delta")
    processor = ProcessorQuery(spark, settings)
    processor.start()
    plain: list[float] = []
    shared: list[float] = []
    for number in range(options.rounds + 1):
        plain.append(options.records / plain_stream(spark, broker, folder / f"plain-{number}"))
        shared.append(options.records / share_workers(spark, settings, log, folder / f"shared-{number}", options))
        print(f"round {number}: plain stream {plain[-1]:,.0f} records/s, workers {shared[-1]:,.0f} records/s")
    ours, theirs = statistics.median(shared[1:]), statistics.median(plain[1:])
    print(f"Kafka → Delta: {ours:,.0f} against {theirs:,.0f} records/s, ratio {ours / theirs:.2f} (aim: 0.8)")
    processor.stop()
    spark.stop()


def plain_stream(spark: SparkSession, broker: KafkaBroker, folder: Path) -> float:
    """Seconds that a plain stream takes for all records."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    records = source.option("subscribe", TOPIC).option("startingOffsets", "earliest").load().select(COLUMNS)
    writer = records.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    started = time.perf_counter()
    writer.trigger(availableNow=True).start(str(folder / "sink")).awaitTermination()
    return time.perf_counter() - started


def share_workers(
    spark: SparkSession, settings: Settings, log: KafkaLog, folder: Path, options: argparse.Namespace
) -> float:
    """Seconds from the start of the workers until the last record is in the sink, joining included."""
    group_id, sink = f"workers-{uuid4().hex[:8]}", str(folder / "sink")
    config = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": "1000000"}
    AdminClient(log).alter_group_config(group_id, config)
    properties = {
        **settings.link_properties,
        "group.id": group_id,
        "topics": TOPIC,
        "max.poll.records": options.range_records,
    }
    # Two writers that create one table at once conflict.
    schema = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    spark.createDataFrame([], schema).write.format("delta").save(sink)
    stop, lock, written = threading.Event(), threading.Lock(), 0

    def handle(records: DataFrame) -> None:
        nonlocal written
        observation = Observation()
        found = records.select(COLUMNS).observe(observation, F.count("*").alias("count"))
        found.write.format("delta").mode("append").save(sink)
        with lock:
            written += observation.get["count"]
            if written >= options.records:
                stop.set()

    started = time.perf_counter()
    threads = [threading.Thread(target=process, args=(spark, properties, handle, stop)) for _ in range(options.workers)]
    for thread in threads:
        thread.start()
    stop.wait()
    seconds = time.perf_counter() - started
    for thread in threads:
        thread.join()
    return seconds


if __name__ == "__main__":
    main()
