"""Python share consumers on a real broker: ours, and confluent-kafka's on the broker's own share groups, in turn.

    python -m benchmarks.share_consumers --record-locks 2000 100000

One consumer in a process of its own takes all records of a topic and reads each value. All options of the clients that
are not named are at their defaults. Locks are our group's `share.partition.max.record.locks`, once more with nothing
set; the broker's groups have Kafka's default of 2,000.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from uuid import uuid4

from benchmarks.broker import add_broker_arguments, fill, open_broker, random_values, site_on
from benchmarks.host import ProcessorHost
from benchmarks.processes import die_with_parent
from benchmarks.report import Figure, print_round, print_rounds, round_numbers
from benchmarks.share_clients import ShareClient, share_clients
from tests.support.kafka_broker import KafkaBroker

TARGET_RATIOS = {2_000: 0.5, 100_000: 1.0}
"""Locks → our rate over theirs."""
DEFAULT_TARGET_RATIO = 0.8
"""Our rate with nothing set over our best one."""
PARTITIONS = 4
# What the broker's share groups have; a broker's own default is `simple`, too.
ASSIGNORS = {"group.share.assignors": "simple"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser().parse_args(arguments)
    with open_broker(options) as (broker, folder):
        print_rounds(run(options, broker, folder))


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(made)
    made.add_argument("--records", type=int, default=1_000_000, help="records of the topic")
    made.add_argument("--record-bytes", type=int, default=200, help="their size")
    made.add_argument("--record-locks", type=int, nargs="+", default=[2_000], help="locks of our group")
    made.add_argument("--host", choices=("plain", "spark"), default="spark", help="process that runs our processor")
    return made


def run(options: argparse.Namespace, broker: KafkaBroker, folder: Path) -> list[list[Figure]]:
    """Let both clients take the topic in each round, ours with each number of locks."""
    site = site_on(broker, folder / "site", ASSIGNORS)
    topic = f"throughput-{uuid4().hex[:8]}"
    rounds: list[list[Figure]] = []
    with ProcessorHost(options.host, site):
        site.create_topic(topic, PARTITIONS)
        each = dict.fromkeys(range(PARTITIONS), options.records // PARTITIONS)
        fill(broker, topic, each, random_values(options.record_bytes))
        count = sum(each.values())
        ours, theirs = share_clients(site)
        for number in round_numbers(options.rounds):
            peer = throughput(theirs, topic, count)
            figures: list[Figure] = []
            rates: list[float] = []
            for locks in options.record_locks:
                tuned = throughput(ours, topic, count, locks)
                rates.append(tuned.rate)
                figures += compared(f"locks_{locks}", tuned, peer, TARGET_RATIOS.get(locks))
            default = throughput(ours, topic, count)
            figures += compared("default", default, peer)
            of_best = default.rate / max(rates)
            figures.append(Figure("share_consumers.default.of_best", of_best, "x", DEFAULT_TARGET_RATIO, False))
            rounds.append(figures)
            print_round(number, figures)
    return rounds


@dataclass(frozen=True)
class Taken:
    """Result of one consumer that took all records.

    Attributes:
        joining_s: until the first records.
        rate: records a second, from them to the last ones.
        cpu_us: CPU time of its process for each record, in microseconds.
    """

    joining_s: float
    rate: float
    cpu_us: float


def compared(setting: str, ours: Taken, theirs: Taken, target_ratio: float | None = None) -> list[Figure]:
    """The figures of one setting of our group."""
    name = f"share_consumers.{setting}"
    return [
        Figure(f"{name}.rate", ours.rate, "records/s", peer=theirs.rate),
        Figure(f"{name}.ratio", ours.rate / theirs.rate, "x", target_ratio, False),
        Figure(f"{name}.cpu", ours.cpu_us, "us/record", peer=theirs.cpu_us),
        Figure(f"{name}.joining", ours.joining_s, "s", peer=theirs.joining_s),
    ]


def throughput(client: ShareClient, topic: str, record_count: int, record_locks: int | None = None) -> Taken:
    """Let one consumer of a new group take the topic, in a process of its own."""
    group_id = f"throughput-{uuid4().hex[:8]}"
    client.start_at_earliest(group_id, record_locks)
    context = multiprocessing.get_context("spawn")
    results: Queue[Taken] = context.Queue()
    process = context.Process(target=take, args=(client, topic, group_id, record_count, results), daemon=True)
    process.start()
    taken = results.get(timeout=600)
    process.join()
    return taken


def take(client: ShareClient, topic: str, group_id: str, record_count: int, results: Queue[Taken]) -> None:
    """The one consumer of a topic."""
    die_with_parent()
    started = time.perf_counter()
    first = first_cpu = 0.0
    count = size = 0
    with client.open(group_id) as consumer:
        consumer.subscribe([topic])
        while count < record_count:
            messages = consumer.poll(timeout=1.0)
            for message in messages:
                size += len(message.value())
            count += len(messages)
            if count and not first:
                first, first_cpu = time.perf_counter(), time.process_time()
        ended, ended_cpu = time.perf_counter(), time.process_time()
    results.put(Taken(first - started, count / (ended - first), (ended_cpu - first_cpu) / count * 1e6))


if __name__ == "__main__":
    main()
