"""Spark workers that work on a queue of slow records, at their defaults.

    python -m benchmarks.worker_queue --rounds 5

A handler works for some milliseconds on each of a few records that lie there already. With perfect division the workers
need records x milliseconds / workers. They may be faster, since each calls its handler in two threads
(`worker.ranges.in.flight`): the other figure divides by the threads.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from benchmarks.broker import add_broker_arguments, site_on
from benchmarks.report import Figure, print_round, round_numbers
from benchmarks.share_clients import share_clients
from benchmarks.site import Site
from benchmarks.worker_site import measure
from sharegroup.config.members import WorkerConfig
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.processor_query import ProcessorQuery
from sharegroup.spark.worker import process
from tests.support.kafka_broker import KafkaBroker

TARGET_OF_IDEAL = 1.4
PARTITIONS = 3
THREADS = int(WorkerConfig.model_fields["worker_ranges_in_flight"].default)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    measure(parser().parse_args(arguments), run)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(made)
    made.add_argument("--workers", type=int, default=3, help="workers of the queue")
    made.add_argument("--records", type=int, default=600, help="records of the queue")
    made.add_argument("--work-ms", type=int, default=50, help="work on each of them")
    made.add_argument("--driver-memory", default="4g", help="heap of Spark's JVM, as of spark-submit")
    made.add_argument("--warm-up-rounds", type=int, default=1, help="rounds before those that count")
    return made


def run(options: argparse.Namespace, spark: SparkSession, broker: KafkaBroker, folder: Path) -> list[list[Figure]]:
    """Work off one queue after the other."""
    site = site_on(broker, folder / "site")
    processor = ProcessorQuery(spark, site.settings)
    processor.start()
    rounds: list[list[Figure]] = []
    try:
        with broker.open_log() as log:
            for number in range(options.warm_up_rounds):
                print_round(f"warm-up {number}", _round(options, spark, site, log))
            for number in round_numbers(options.rounds):
                rounds.append(_round(options, spark, site, log))
                print_round(number, rounds[-1])
    finally:
        processor.stop()
    return rounds


def _round(options: argparse.Namespace, spark: SparkSession, site: Site, log: KafkaLog) -> list[Figure]:
    done = queue(options, spark, site, log)
    time_s = max(ended_s for _, _, ended_s in done) - min(started_s for _, started_s, _ in done)
    ideal_s = options.records * options.work_ms / 1_000 / options.workers
    return [
        Figure("worker_queue.workers.time", time_s, "s"),
        Figure("worker_queue.workers.of_ideal", time_s / ideal_s, "x", TARGET_OF_IDEAL),
        Figure("worker_queue.workers.of_ideal_threads", time_s / ideal_s * THREADS, "x"),
        Figure(
            "worker_queue.workers.at_work",
            len({worker for worker, _, _ in done}),
            "workers",
            options.workers,
            is_lower_better=False,
        ),
    ]


def queue(
    options: argparse.Namespace, spark: SparkSession, site: Site, log: KafkaLog
) -> list[tuple[int, float, float]]:
    """Let workers work off a new topic; return who began and ended each record when."""
    topic = f"queue-{uuid4().hex[:8]}"
    log.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        log.append(topic, partition, [NewRecord(None, b"x")] * (options.records // PARTITIONS))
    ours, _ = share_clients(site)
    ours.start_at_earliest(topic)
    done: list[tuple[int, float, float]] = []
    failures: list[BaseException] = []
    stop = threading.Event()
    wanted = PARTITIONS * (options.records // PARTITIONS)

    def run_worker(worker: int) -> None:
        def handle(records: DataFrame) -> None:
            for _ in records.select("offset").collect():
                started_s = time.perf_counter()
                time.sleep(options.work_ms / 1_000)
                done.append((worker, started_s, time.perf_counter()))
            if len(done) >= wanted:
                stop.set()

        try:
            process(spark, {**site.settings.channel_properties, "group.id": topic, "topics": topic}, handle, stop)
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    threads = [threading.Thread(target=run_worker, args=(worker,)) for worker in range(options.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return done


if __name__ == "__main__":
    main()
