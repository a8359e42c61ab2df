"""A Spark worker that writes exactly once, against the same worker without a sink, and against a plain Spark stream.

    python -m benchmarks.worker_sink --rounds 5

All read one topic of a real broker and append it to a Delta table, in turn, in one warm session; the processor has a
process of its own. Without a sink, the handler appends its records itself. The workers take large ranges, then ranges
of 10,000 and of 100 records. Commits of the table are counted by their files: large ranges are few, so their time runs
from the start of the workers, as that of the plain stream does; that of the others from the first commit. The first
rounds warm the session up and do not count.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.broker import site_on
from benchmarks.host import ProcessorHost
from benchmarks.kafka_to_delta import plain_stream
from benchmarks.report import Figure
from benchmarks.table_rows import TableRows, rate_of
from benchmarks.worker_site import (
    COLUMNS,
    LARGE_LOCKS,
    WorkerSite,
    drop,
    filled_topic,
    measure,
    rounds_of,
    worker_parser,
)
from sharegroup.spark.handler_calls import Handler, SinkHandler
from sharegroup.spark.worker import process
from tests.support.kafka_broker import KafkaBroker

TARGET_RATIOS = {1_000_000: 0.95, 10_000: 0.9}
"""Records of a range → the rate with a sink over that without."""
TARGET_OF_STREAM = 1.0
"""The rate with a sink over that of the plain stream, with large ranges."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of one size.

    Attributes:
        records: of each of them.
        count: of all that are written.
        are_large: their time runs from the start of the workers.
    """

    records: int
    count: int
    are_large: bool = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    measure(parser().parse_args(arguments), all_rounds)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = worker_parser(__doc__)
    made.add_argument("--small-ranges", type=int, nargs="+", default=[10_000, 100], help="records of smaller ranges")
    made.add_argument("--small-range-count", type=int, default=60, help="ranges of each smaller size")
    return made


def all_rounds(
    options: argparse.Namespace, spark: SparkSession, broker: KafkaBroker, folder: Path
) -> list[list[Figure]]:
    """Do the rounds."""
    at = site_on(broker, folder / "site", {"group.share.assignors": "all"})
    with ProcessorHost("plain", at), broker.open_log() as log:
        topic = filled_topic(options, broker, log, options.records)
        site = WorkerSite(spark, at.settings, broker, log, topic, options.records)
        return rounds_of(site, options, folder, _round)


def _round(options: argparse.Namespace, site: WorkerSite, folder: Path) -> list[Figure]:
    large = options.range_records
    sizes = [Ranges(large, options.records // large, are_large=True)]
    sizes += [Ranges(records, options.small_range_count) for records in options.small_ranges]
    stream = plain_stream(site, folder / "stream")
    figures: list[Figure] = []
    for ranges in sizes:
        without = rate(site, folder / f"without-{ranges.records}", options.workers, ranges, has_sink=False)
        once = rate(site, folder / f"once-{ranges.records}", options.workers, ranges, has_sink=True)
        name = f"worker_sink.spark.ranges_{ranges.records}"
        figures.append(Figure(f"{name}.rate", once, "records/s", peer=without))
        figures.append(Figure(f"{name}.ratio", once / without, "x", TARGET_RATIOS.get(ranges.records), False))
        if ranges.are_large:
            figures.append(Figure(f"{name}.stream.rate", once, "records/s", peer=stream))
            figures.append(Figure(f"{name}.stream.ratio", once / stream, "x", TARGET_OF_STREAM, False))
    return figures


def rate(site: WorkerSite, folder: Path, worker_count: int, ranges: Ranges, *, has_sink: bool) -> float:
    """Return the rate of workers of a new group that append records to a new table, which is removed."""
    group_id, table = site.new_group(LARGE_LOCKS, is_exactly_once=has_sink), site.new_table(folder)
    properties = {
        **site.settings.channel_properties,
        "group.id": group_id,
        "topics": site.topic,
        "max.poll.records": str(ranges.records),
    }
    handler: Handler | SinkHandler = _rows if has_sink else _appending(table)
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            process(site.spark, properties, handler, stop, sink=table if has_sink else None)
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    rows = TableRows(folder)
    started_s = time.time()
    threads = [threading.Thread(target=run) for _ in range(worker_count)]
    for thread in threads:
        thread.start()
    try:
        appended = rows.await_count(ranges.records * ranges.count, lambda: bool(failures))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
    drop(folder)
    return rate_of(appended, started_s if ranges.are_large else None)


def _rows(records: DataFrame) -> DataFrame:
    return records.select(COLUMNS)


def _appending(table: str) -> Handler:
    def append(records: DataFrame) -> None:
        records.select(COLUMNS).write.format("delta").mode("append").save(table)

    return append


if __name__ == "__main__":
    main()
