"""Kafka → Delta by a Spark worker of a share group, against a plain Spark stream, in one warm session.

    python -m benchmarks.kafka_to_delta --rounds 5

All read the same topic of a real broker and append it to a Delta table; the processor runs in the same session. The
workers take large ranges. The plain stream takes the topic in one micro-batch, and once more in micro-batches as large
as the ranges. Then the workers take a long topic, with large ranges and with nothing set. The first rounds warm the
session up and do not count. At last the steps of one range are measured one by one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.report import Figure
from benchmarks.worker_site import (
    COLUMNS,
    DEFAULT_TARGET_RATIO,
    WorkerSite,
    drop,
    measure,
    open_worker_site,
    rounds_of,
    with_long_topic,
    work,
    worker_parser,
)
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition
from sharegroup.client.settings import ChannelTopics, FetchSettings, MemberSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.spark.acquired_records import RecordCount, acquired_records
from tests.support.kafka_broker import KafkaBroker

TARGET_RATIO = 0.8
_RANGE_ROUNDS = 5


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    measure(parser().parse_args(arguments), all_rounds)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = worker_parser(__doc__)
    made.add_argument("--range-rounds", type=int, default=_RANGE_ROUNDS, help="ranges whose steps are measured")
    return made


def all_rounds(
    options: argparse.Namespace, spark: SparkSession, broker: KafkaBroker, folder: Path
) -> list[list[Figure]]:
    """Do the rounds, then measure the steps of a range."""
    with open_worker_site(options, spark, broker, folder) as site:
        rounds = rounds_of(site, options, folder, partial(_round, with_long_topic(site, options)))
        for step, seconds in range_steps(site, folder / "range", options).items():
            print(f"a range of {options.range_records:,} records, {step}: {seconds:.2f} s")
    return rounds


def _round(long: WorkerSite, options: argparse.Namespace, site: WorkerSite, folder: Path) -> list[Figure]:
    whole = plain_stream(site, folder / "whole")
    by_ranges = plain_stream(site, folder / "by-ranges", options.range_records)
    workers = work(site, folder / "workers", options)
    best = work(long, folder / "long", options)
    default = work(long, folder / "default", options, record_locks=None)
    return [
        Figure("kafka_to_delta.rate", workers, "records/s", peer=whole),
        Figure("kafka_to_delta.ratio", workers / whole, "x", TARGET_RATIO, False),
        Figure("kafka_to_delta.default.rate", default, "records/s", peer=best),
        Figure("kafka_to_delta.default.of_best", default / best, "x", DEFAULT_TARGET_RATIO, False),
        Figure("kafka_to_delta.stream_by_ranges.rate", by_ranges, "records/s"),
        Figure("kafka_to_delta.stream_by_ranges.ratio", workers / by_ranges, "x"),
    ]


def plain_stream(site: WorkerSite, folder: Path, batch_records: int | None = None) -> float:
    """Return the rate of a plain stream that takes all records."""
    source = site.spark.readStream.format("kafka").option("kafka.bootstrap.servers", site.broker.bootstrap_servers)
    if batch_records is not None:
        source = source.option("maxOffsetsPerTrigger", batch_records)
    records = source.option("subscribe", site.topic).option("startingOffsets", "earliest").load().select(COLUMNS)
    writer = records.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    started_s = time.perf_counter()
    writer.trigger(availableNow=True).start(str(folder / "sink")).awaitTermination()
    duration_s = time.perf_counter() - started_s
    drop(folder)
    return site.record_count / duration_s


def range_steps(site: WorkerSite, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of each step of a range, done one after the other by one member; medians of some ranges."""
    sink, seconds = site.new_table(folder), defaultdict[str, list[float]](list)
    fetch = FetchSettings(max_records=options.range_records, batch_size=options.range_records)
    processor = site.settings.processor
    topics = ChannelTopics(
        request_topic_name=processor.request_topic_name, response_topic_name=processor.response_topic_name
    )
    for _ in range(options.range_rounds):
        with timed(seconds, "joining and the first acquisition"):
            member = GroupMember(site.log, MemberSettings(group_id=site.new_group(), fetch=fetch, topics=topics))
            member.subscribe([site.topic])
            first = acquired(member)
        with timed(seconds, "acquisition"):
            acquired(member)
        records = acquired_records(site.spark, site.settings.log, first.ranges).select(COLUMNS)
        with timed(seconds, "reading"):
            records.write.format("noop").mode("append").save()
        with timed(seconds, "reading and counting"):
            count = RecordCount(site.spark)
            counted = acquired_records(site.spark, site.settings.log, first.ranges, count).select(COLUMNS)
            counted.write.format("noop").mode("append").save()
            count.value()
        with timed(seconds, "reading and Spark's append to Delta"):
            records.write.format("delta").mode("append").save(sink)
        with timed(seconds, "Spark's append of nothing to Delta"):
            records.limit(0).write.format("delta").mode("append").save(sink)
        with timed(seconds, "acknowledgement"):
            member.acknowledge(held.acknowledgement(AcknowledgeType.ACCEPT) for held in first.ranges)
            member.flush(60_000)
        member.close(10_000)
    return {step: statistics.median(times) for step, times in seconds.items()}


def acquired(member: GroupMember) -> Acquisition:
    """Return the member's next acquisition."""
    while (acquisition := member.next_acquisition(1_000)) is None:
        pass
    return acquisition


@contextmanager
def timed(seconds: dict[str, list[float]], step: str) -> Iterator[None]:
    """Note how long the block takes."""
    started = time.perf_counter()
    yield
    seconds[step].append(time.perf_counter() - started)


if __name__ == "__main__":
    main()
