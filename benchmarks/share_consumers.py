"""Python share consumers on a real broker: ours, and confluent-kafka's on the broker's own share groups, in turn.

Throughput: one consumer takes all records of a topic and looks at each value. Queue: consumers in processes of their
own work for some milliseconds on each of a few messages that lie there already; with perfect division they need
messages x milliseconds / consumers. All options of the clients are at their defaults.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
from confluent_kafka import admin as kafka_admin

from benchmarks.host import ProcessorHost
from benchmarks.site import ROOT, Site
from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.loader import load_settings
from sharegroup.logs.kafka import KafkaLog
from sharegroup.logs.port import NewRecord
from tests.support.kafka_broker import KafkaBroker

PRODUCED_BATCH_BYTES = 16_384
"""Size of a produced batch: the Java producer's default. The broker's share groups hand out by batches."""
QUEUED_RECORDS = 50_000


@dataclass(frozen=True)
class Client:
    """One of the two clients.

    Attributes:
        name: for the report.
        consumer: makes a consumer from its configuration.
        start_at_earliest: lets a group begin at the start of its topics.
    """

    name: str
    consumer: Callable[[dict[str, object]], Any]
    start_at_earliest: Callable[[str], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds, in each of which both clients run")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of the throughput's topic")
    parser.add_argument("--record-bytes", type=int, default=200, help="their size")
    parser.add_argument(
        "--record-locks", type=int, default=2_000, help="our group's share.partition.max.record.locks (Kafka: 2,000)"
    )
    parser.add_argument("--messages", type=int, default=120, help="messages of the queue")
    parser.add_argument("--work-ms", type=int, default=50, help="work on each of them")
    parser.add_argument("--consumers", type=int, default=6, help="consumers of the queue")
    parser.add_argument("--host", choices=("plain", "spark"), default="spark", help="process that runs our processor")
    options = parser.parse_args()
    print(f"settings: {vars(options)}, Kafka 4.3.1, one node, 4 partitions (queue: 3)")
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaBroker("4.3.1", Path(folder) / "broker") as broker,
        ProcessorHost(options.host, site_of(broker, Path(folder))),
        broker.open_log() as log,
    ):
        run(options, broker, log)


def site_of(broker: KafkaBroker, folder: Path) -> Site:
    values = {
        "bootstrap.servers": broker.bootstrap_servers,
        "state.table.path": folder / "state",
        "checkpoint.path": folder / "checkpoint",
        # What the broker's share groups have; a broker's own default is `simple`, too.
        "group.share.assignors": "simple",
        "group.share.max.partition.max.record.locks": 1_000_000,
    }
    overrides = tuple(f"{key}={value}" for key, value in values.items())
    config = ROOT / "conf" / "kafka.yaml"
    return Site(folder, config, overrides, load_settings(config, {}, overrides))


def run(options: argparse.Namespace, broker: KafkaBroker, log: KafkaLog) -> None:
    clients = [
        Client("sharegroup", ShareConsumer, lambda group: start_ours_at_earliest(log, group, options.record_locks)),
        Client("confluent-kafka", confluent_kafka.ShareConsumer, lambda group: start_at_earliest(broker, group)),
    ]
    log.create_topic("throughput", 4)
    fill(broker, options.records, b"x" * options.record_bytes)
    taken: dict[str, list[float]] = {client.name: [] for client in clients}
    queued: dict[str, list[float]] = {client.name: [] for client in clients}
    for number in range(options.rounds):
        for client in clients:
            joining_s, seconds = throughput(client, broker, options.records)
            rate = options.records / seconds
            taken[client.name].append(rate)
            print(f"round {number}: {client.name:<16} {rate:>9,.0f} records/s, joined in {joining_s:.2f} s")
        for client in clients:
            seconds, workers = queue(client, broker, log, options)
            queued[client.name].append(seconds)
            print(f"round {number}: {client.name:<16} queue {seconds:.2f} s, {workers} of {options.consumers} worked")
    ours, theirs = (statistics.median(taken[client.name]) for client in clients)
    print(f"throughput: {ours:,.0f} against {theirs:,.0f} records/s, ratio {ours / theirs:.2f} (more is better)")
    ours, theirs = (statistics.median(queued[client.name]) for client in clients)
    print(f"queue: {ours:.2f} against {theirs:.2f} s, ratio {ours / theirs:.2f} (less is better)")


def fill(broker: KafkaBroker, record_count: int, value: bytes) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": PRODUCED_BATCH_BYTES, "linger.ms": 1000}
    producer = confluent_kafka.Producer(config)
    for number in range(record_count):
        producer.produce("throughput", value, partition=number % 4)
        if number % QUEUED_RECORDS == 0:
            producer.flush()
    producer.flush()


def start_ours_at_earliest(log: KafkaLog, group_id: str, record_locks: int) -> None:
    config = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(record_locks)}
    AdminClient(log).alter_group_config(group_id, config)


def start_at_earliest(broker: KafkaBroker, group_id: str) -> None:
    kafka: Any = kafka_admin  # it does not say what it exports
    set_it = kafka.AlterConfigOpType.SET
    entry = kafka.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=set_it)
    resource = kafka.ConfigResource(kafka.ResourceType.GROUP, group_id, incremental_configs=[entry])
    admin = kafka.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def throughput(client: Client, broker: KafkaBroker, record_count: int) -> tuple[float, float]:
    """Seconds until the first records, and from them to the last ones."""
    group_id = f"throughput-{uuid4().hex[:8]}"
    client.start_at_earliest(group_id)
    started = time.perf_counter()
    first = 0.0
    found = looked_at = 0
    with client.consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id}) as consumer:
        consumer.subscribe(["throughput"])
        while found < record_count:
            messages = consumer.poll(timeout=1.0)
            for message in messages:
                looked_at += len(message.value())
            found += len(messages)
            first = first or (time.perf_counter() if found else 0.0)
        ended = time.perf_counter()
    return first - started, ended - first


def queue(client: Client, broker: KafkaBroker, log: KafkaLog, options: argparse.Namespace) -> tuple[float, int]:
    """Seconds from the first message's start to the last one's end, and how many consumers had one."""
    topic = f"queue-{uuid4().hex[:8]}"
    log.create_topic(topic, 3)
    for number in range(options.messages):
        log.append(topic, number % 3, [NewRecord(None, b"x")])
    client.start_at_earliest(topic)
    context = multiprocessing.get_context("spawn")
    results: Queue[tuple[int, float, float]] = context.Queue()
    stop = context.Event()
    arguments = (client.name, broker.bootstrap_servers, topic, options.work_ms, results, stop)
    processes = [context.Process(target=work, args=(number, *arguments)) for number in range(options.consumers)]
    for process in processes:
        process.start()
    done = [results.get(timeout=120) for _ in range(options.messages)]
    stop.set()
    for process in processes:
        process.join()
    return max(end for _, _, end in done) - min(start for _, start, _ in done), len({number for number, _, _ in done})


def work(
    number: int,
    client: str,
    bootstrap_servers: str,
    topic: str,
    work_ms: int,
    results: Queue[tuple[int, float, float]],
    stop: Event,
) -> None:
    """One consumer of the queue; it says when it began and ended each message."""
    make: Any = ShareConsumer if client == "sharegroup" else confluent_kafka.ShareConsumer
    with make({"bootstrap.servers": bootstrap_servers, "group.id": topic}) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            for _ in consumer.poll(timeout=0.2):
                started = time.time()
                time.sleep(work_ms / 1000)
                results.put((number, started, time.time()))


if __name__ == "__main__":
    main()
