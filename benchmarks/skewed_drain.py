"""Draining a topic whose partitions have unlike backlogs, by one share consumer in record_limit mode.

    python -m benchmarks.skewed_drain --rounds 5 --peer

`half`: half of 12 partitions have a tenth of the records of the others, and empty out; the rate of the last half of
all records is compared with that on a topic with the other partitions alone. `zipf`: the second of 12 partitions has
half of the first one's records, the third a third, and so on; the rate is that of all records, and of the last tenth.
The peer is Kafka's Java share consumer in the same mode, on the same topics.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from multiprocessing.queues import Queue
from pathlib import Path
from uuid import uuid4

from benchmarks.broker import add_broker_arguments, fill, open_broker, site_on
from benchmarks.host import ProcessorHost
from benchmarks.java_consumer import Progress, take_by_java
from benchmarks.processes import die_with_parent
from benchmarks.report import Figure, print_round, print_rounds, round_numbers
from benchmarks.share_clients import ShareClient, share_clients
from benchmarks.site import Site
from tests.support.kafka_broker import KafkaBroker

PARTITIONS = 12
TARGET_RATIO = 0.8
CONFIG = {"share.acquire.mode": "record_limit"}
VALUE = b"x" * 100
_DEEP_OVER_SHALLOW = 10
_TIMEOUT_S = 1_800


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser().parse_args(arguments)
    with open_broker(options) as (broker, folder):
        print_rounds(run(options, broker, folder))


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(made)
    made.add_argument("--records", type=int, default=100_000, help="records of the largest partition")
    made.add_argument("--record-locks", type=int, default=2_000, help="locks of our group (Kafka: 2,000)")
    made.add_argument("--peer", action="store_true", help="let Kafka's Java share consumer drain the topics, too")
    made.add_argument("--host", choices=("plain", "spark"), default="spark", help="process that runs our processor")
    return made


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that are drained, as partition → records.

    Attributes:
        half: half of the partitions are shallow.
        alone: the others alone.
        zipf: each partition has less than the one before.
    """

    half: Mapping[int, int]
    alone: Mapping[int, int]
    zipf: Mapping[int, int]

    @classmethod
    def of(cls, records: int) -> Topics:
        """Topics whose largest partition has so many records."""
        deep = PARTITIONS // 2
        shallow = max(1, records // _DEEP_OVER_SHALLOW)
        return cls(
            half={number: records if number < deep else shallow for number in range(PARTITIONS)},
            alone=dict.fromkeys(range(deep), records),
            zipf={number: max(1, records // (number + 1)) for number in range(PARTITIONS)},
        )


def run(options: argparse.Namespace, broker: KafkaBroker, folder: Path) -> list[list[Figure]]:
    """Drain each topic in each round."""
    site = site_on(broker, folder / "site")
    topics = Topics.of(options.records)
    with ProcessorHost(options.host, site):
        names = {shape: _filled(site, broker, shape, getattr(topics, shape)) for shape in ("half", "alone", "zipf")}
        ours, _ = share_clients(site)
        rounds = []
        for number in round_numbers(options.rounds):
            taken = {
                shape: drained(ours, name, getattr(topics, shape), options.record_locks)
                for shape, name in names.items()
            }
            peers = (
                {shape: _drained_by_java(broker, name, getattr(topics, shape)) for shape, name in names.items()}
                if options.peer
                else {}
            )
            rounds.append(figures(taken, peers, topics))
            print_round(number, rounds[-1])
    return rounds


@dataclass(frozen=True, slots=True)
class Drain:
    """One consumer's way through a topic.

    Attributes:
        progress: records that were taken by time, the first poll with records first.
        last_of_partition: partition → records of the whole topic that were taken when its last one was; empty when
            that is unknown.
    """

    progress: tuple[Progress, ...]
    last_of_partition: Mapping[int, int]

    @property
    def records(self) -> int:
        """All records."""
        return self.progress[-1].records

    def rate(self, last_share: float = 1.0) -> float:
        """Records a second of the last share of them; not a number when that came at once."""
        after = (1 - last_share) * self.records
        begin = next(each for each in self.progress if each.records >= after)
        end = self.progress[-1]
        duration_s = end.time_s - begin.time_s
        return (end.records - begin.records) / duration_s if duration_s > 0 else float("nan")


def figures(taken: Mapping[str, Drain], peers: Mapping[str, Drain], topics: Topics) -> list[Figure]:
    """The figures of one round."""

    def rate(name: str, shape: str, last_share: float = 1.0) -> Figure:
        peer = peers[shape].rate(last_share) if shape in peers else None
        return Figure(f"skewed_drain.{name}", taken[shape].rate(last_share), "records/s", None, False, peer)

    half, alone = rate("half.rate_after", "half", 0.5), rate("half.rate_alone", "alone", 0.5)
    peer_ratio = half.peer / alone.peer if half.peer is not None and alone.peer is not None else None
    emptied_at = max(taken["half"].last_of_partition[number] for number in topics.half if number not in topics.alone)
    return [
        half,
        alone,
        Figure("skewed_drain.half.ratio", half.value / alone.value, "x", TARGET_RATIO, False, peer_ratio),
        # The rate after it means what its name says while this is under a half.
        Figure("skewed_drain.half.emptied_at", emptied_at / sum(topics.half.values()), "of all records"),
        rate("zipf.rate", "zipf"),
        rate("zipf.rate_last_tenth", "zipf", 0.1),
    ]


def _filled(site: Site, broker: KafkaBroker, shape: str, record_counts: Mapping[int, int]) -> str:
    topic = f"drain-{shape}-{uuid4().hex[:8]}"
    site.create_topic(topic, len(record_counts))
    fill(broker, topic, record_counts, repeat(VALUE))
    return topic


def drained(client: ShareClient, topic: str, record_counts: Mapping[int, int], record_locks: int) -> Drain:
    """Let one consumer of a new group take the topic, in a process of its own."""
    group_id = f"drain-{uuid4().hex[:8]}"
    client.start_at_earliest(group_id, record_locks)
    context = multiprocessing.get_context("spawn")
    results: Queue[Drain] = context.Queue()
    process = context.Process(target=_drain, args=(client, topic, group_id, record_counts, results), daemon=True)
    process.start()
    drain = results.get(timeout=_TIMEOUT_S)
    process.join()
    return drain


def _drain(
    client: ShareClient, topic: str, group_id: str, record_counts: Mapping[int, int], results: Queue[Drain]
) -> None:
    die_with_parent()
    progress: list[Progress] = []
    left, last = dict(record_counts), dict[int, int]()
    taken, total = 0, sum(record_counts.values())
    with client.open(group_id, CONFIG) as consumer:
        consumer.subscribe([topic])
        while taken < total:
            messages = consumer.poll(timeout=1.0)
            for message in messages:
                left[message.partition()] -= 1
                taken += 1
                if not left[message.partition()]:
                    last[message.partition()] = taken
            if len(messages):
                progress.append(Progress(time.perf_counter(), taken))
    results.put(Drain(tuple(progress), last))


def _drained_by_java(broker: KafkaBroker, topic: str, record_counts: Mapping[int, int]) -> Drain:
    run = take_by_java(broker.bootstrap_servers, topic, sum(record_counts.values()), CONFIG)
    return Drain(run.progress, {})


if __name__ == "__main__":
    main()
