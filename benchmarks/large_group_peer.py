"""The peer of the large group: confluent-kafka's ShareConsumers as threads of two processes, on their own broker."""

from __future__ import annotations

import multiprocessing
import threading
import time
from itertools import repeat
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from uuid import uuid4

import confluent_kafka

from benchmarks.broker import BenchmarkBroker, fill
from benchmarks.processes import die_with_parent
from benchmarks.share_clients import start_at_earliest
from tests.support.kafka_broker import KafkaBroker

PROCESSES = 2
_JOIN_TIMEOUT_S = 60.0
"""With few locks some consumers get no records while the others ask again and again."""
_REPORT_TIMEOUT_S = 120.0
_POLL_S = 0.5


def peer_rate(
    members: int, partitions: int, work_ms: float, warm_up_s: float, duration_s: float, record_locks: int = 2_000
) -> float | None:
    """Return the records a second that a group of the broker's own works off; None if its consumers do not end.

    Consumers that had no records after a minute do not keep the others from being measured.

    Args:
        work_ms: work on each record.
        warm_up_s: time that is not measured, after all have had records or the minute is over.
        duration_s: time that is measured.
        record_locks: locks of a share-partition (Kafka: 2,000).
    """
    settings = {
        "group.share.max.size": 1_000,
        "group.share.max.share.sessions": 2_000,
        "group.share.partition.max.record.locks": record_locks,
    }
    with TemporaryDirectory(prefix="benchmark-") as name, BenchmarkBroker(Path(name) / "broker", settings) as broker:
        return peer_rate_on(broker, members, partitions, work_ms, warm_up_s, duration_s)


def peer_rate_on(
    broker: KafkaBroker, members: int, partitions: int, work_ms: float, warm_up_s: float, duration_s: float
) -> float | None:
    """Return the same on a broker whose groups may be so large; see `peer_rate`."""
    topic = f"work-{uuid4().hex[:8]}"
    # They work while they join; when all are kept busy they have joined long before the minute is over.
    records = int(1_000 * members / work_ms * (_JOIN_TIMEOUT_S / 2 + warm_up_s + duration_s)) + 10_000
    with broker.open_log() as log:
        log.create_topic(topic, partitions)
    fill(broker, topic, dict.fromkeys(range(partitions), records // partitions), repeat(b"x"))
    start_at_earliest(broker.bootstrap_servers, topic)
    context = multiprocessing.get_context("spawn")
    joined, measuring, stop = context.Semaphore(0), context.Event(), context.Event()
    results: Queue[int] = context.Queue()
    processes = [
        context.Process(
            target=work_off,
            args=(broker.bootstrap_servers, topic, len(own), work_ms, joined, measuring, stop, results),
            daemon=True,
        )
        for own in (range(number, members, PROCESSES) for number in range(PROCESSES))
    ]
    for process in processes:
        process.start()
    try:
        give_up_s = time.monotonic() + _JOIN_TIMEOUT_S
        for number in range(members):
            if not joined.acquire(timeout=max(0.0, give_up_s - time.monotonic())):
                print(f"confluent-kafka: {number} of {members} consumers had records after a minute", flush=True)
                break
        time.sleep(warm_up_s)
        measuring.set()
        started_s = time.monotonic()
        time.sleep(duration_s)
        measuring.clear()
        elapsed_s = time.monotonic() - started_s
        stop.set()
        return sum(results.get(timeout=_REPORT_TIMEOUT_S) for _ in processes) / elapsed_s
    except Empty:
        print("confluent-kafka: unmeasured, its consumers did not end in time", flush=True)
        return None
    finally:
        for process in processes:
            process.kill()
            process.join()


def work_off(
    bootstrap_servers: str,
    topic: str,
    members: int,
    work_ms: float,
    joined: threading.Semaphore,
    measuring: Event,
    stop: Event,
    results: Queue[int],
) -> None:
    """Be one of the processes: a thread for each consumer, which reports its first records; then the sum of all."""
    die_with_parent()
    worked = [0] * members

    def consume(number: int) -> None:
        consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": bootstrap_servers, "group.id": topic})
        consumer.subscribe([topic])
        is_in = False
        while not stop.is_set():
            messages = consumer.poll(timeout=_POLL_S)
            if messages and not is_in:
                is_in = True
                joined.release()
            for _ in messages:
                time.sleep(work_ms / 1_000)
                if measuring.is_set():
                    worked[number] += 1
                if stop.is_set():
                    break

    threads = [threading.Thread(target=consume, args=(number,), daemon=True) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_REPORT_TIMEOUT_S / 2)
    results.put(sum(worked))
