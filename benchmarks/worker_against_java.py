"""Kafka → Delta by a Spark worker of a share group, against Kafka's Java share consumer, which does no work.

    python -m benchmarks.worker_against_java --rounds 5

The worker has large ranges, and once more a group with Kafka's default of 2,000 locks a share-partition, with fewer
records in all; the Java consumer's group has that default, too. Then the worker takes a long topic, with large ranges
and with nothing set. The worker's time begins with its start and ends with the last record in the Delta table. The Java
consumer's begins with its first records: its joining is not in it. The first rounds warm the Spark session and the
broker up and do not count: their JVMs compile for minutes, and each becomes twice as fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.java_consumer import take_by_java
from benchmarks.report import Figure
from benchmarks.worker_site import (
    DEFAULT_TARGET_RATIO,
    WorkerSite,
    measure,
    open_worker_site,
    rounds_of,
    with_long_topic,
    work,
    worker_parser,
)
from tests.support.kafka_broker import KafkaBroker

TARGET_RATIO = 2.0
KAFKAS_LOCKS = 2_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    measure(parser().parse_args(arguments), all_rounds)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = worker_parser(__doc__)
    # One worker, as there is one consumer. A range has the records of two partitions, so a job keeps both cores busy.
    made.set_defaults(workers=1, range_records=2_000_000, warm_up_rounds=3)
    made.add_argument("--few-records", type=int, default=10_000, help="records of the worker with 2,000 locks")
    return made


def all_rounds(
    options: argparse.Namespace, spark: SparkSession, broker: KafkaBroker, folder: Path
) -> list[list[Figure]]:
    """Let the worker and the Java consumer take the topic in turns."""
    with open_worker_site(options, spark, broker, folder) as site:
        return rounds_of(site, options, folder, partial(_round, with_long_topic(site, options)))


def _round(long: WorkerSite, options: argparse.Namespace, site: WorkerSite, folder: Path) -> list[Figure]:
    large = work(site, folder / "large", options)
    best = work(long, folder / "long", options)
    default = work(long, folder / "default", options, record_locks=None)
    few_locks = work(site, folder / "few-locks", options, KAFKAS_LOCKS, options.few_records)
    java = take_by_java(site.broker.bootstrap_servers, site.topic, site.record_count).rate
    return [
        Figure("worker_against_java.rate", large, "records/s", peer=java),
        Figure("worker_against_java.ratio", large / java, "x", TARGET_RATIO, False),
        Figure("worker_against_java.default.rate", default, "records/s", peer=best),
        Figure("worker_against_java.default.of_best", default / best, "x", DEFAULT_TARGET_RATIO, False),
        Figure("worker_against_java.locks_2000.rate", few_locks, "records/s", peer=java),
        Figure("worker_against_java.locks_2000.ratio", few_locks / java, "x"),
    ]


if __name__ == "__main__":
    main()
