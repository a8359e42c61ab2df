"""Python share consumers that work on a queue: ours, and confluent-kafka's on the broker's own share groups, in turn.

    python -m benchmarks.queues --rounds 5

Consumers work for some milliseconds on each of a few messages that lie there already; with perfect division they need
messages x milliseconds / consumers. They subscribe together, or one after the other, at the defaults, or with one
record a poll. Each consumer has a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from uuid import uuid4

from benchmarks.broker import add_broker_arguments, open_broker, site_on
from benchmarks.host import ProcessorHost
from benchmarks.processes import die_with_parent
from benchmarks.report import Figure, print_round, print_rounds, round_numbers
from benchmarks.share_clients import ShareClient, share_clients
from benchmarks.share_consumers import ASSIGNORS
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from tests.support.kafka_broker import KafkaBroker

PARTITIONS = 3
_START_TIMEOUT_S = 120.0
_MESSAGE_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Scenario:
    """Consumers that work on a queue.

    Attributes:
        name: for the report.
        messages: messages that lie there already.
        work_ms: work on each of them.
        target_s: bound of the time with six consumers.
        gap_s: time between the start of one consumer and the next.
    """

    name: str
    messages: int
    work_ms: int
    target_s: float
    gap_s: float = 0.0
    config: Mapping[str, object] = field(default_factory=dict)


SCENARIOS = (
    Scenario("together", 120, 50, 1.2),
    Scenario("one_by_one", 120, 50, 2.1, gap_s=0.3),
    Scenario("single_records", 600, 25, 3.5, config={"max.poll.records": 1}),
)
CONSUMERS = 6


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser().parse_args(arguments)
    with open_broker(options) as (broker, folder):
        for rounds in run(options, broker, folder):
            print_rounds(rounds)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(made)
    made.add_argument("--consumers", type=int, default=CONSUMERS, help="consumers of the queue")
    made.add_argument("--host", choices=("plain", "spark"), default="spark", help="process that runs our processor")
    return made


def run(
    options: argparse.Namespace, broker: KafkaBroker, folder: Path, scenarios: Sequence[Scenario] = SCENARIOS
) -> Iterator[list[list[Figure]]]:
    """Let both clients work through one scenario after the other, in turn; yield the rounds of each."""
    site = site_on(broker, folder / "site", ASSIGNORS)
    with ProcessorHost(options.host, site), broker.open_log() as log:
        ours, theirs = share_clients(site)
        for scenario in scenarios:
            rounds: list[list[Figure]] = []
            for number in round_numbers(options.rounds):
                worked = [queue(client, log, scenario, options.consumers) for client in (ours, theirs)]
                rounds.append(compared(scenario, options.consumers, *worked))
                print_round(number, rounds[-1])
            yield rounds


@dataclass(frozen=True, slots=True)
class Worked:
    """How a queue was worked off.

    Attributes:
        time_s: from the first message's start to the last one's end.
        consumers: how many consumers had one.
    """

    time_s: float
    consumers: int


def compared(scenario: Scenario, consumer_count: int, ours: Worked, theirs: Worked) -> list[Figure]:
    """The figures of one scenario; the target is that of six consumers."""
    name = f"queues.{scenario.name}"
    target_s = scenario.target_s if consumer_count == CONSUMERS else None
    return [
        Figure(f"{name}.time", ours.time_s, "s", target_s, peer=theirs.time_s),
        Figure(f"{name}.consumers", ours.consumers, "consumers", is_lower_better=False, peer=theirs.consumers),
    ]


def queue(client: ShareClient, log: KafkaLog, scenario: Scenario, consumer_count: int) -> Worked:
    """Let consumers work off a new topic."""
    topic = f"queue-{uuid4().hex[:8]}"
    log.create_topic(topic, PARTITIONS)
    for number in range(scenario.messages):
        log.append(topic, number % PARTITIONS, [NewRecord(None, b"x")])
    client.start_at_earliest(topic)
    context = multiprocessing.get_context("spawn")
    results: Queue[tuple[int, float, float]] = context.Queue()
    start, stop = context.Barrier(consumer_count), context.Event()
    processes = [
        context.Process(target=work, args=(number, client, topic, scenario, results, start, stop), daemon=True)
        for number in range(consumer_count)
    ]
    for process in processes:
        process.start()
    done = [results.get(timeout=_MESSAGE_TIMEOUT_S) for _ in range(scenario.messages)]
    stop.set()
    for process in processes:
        process.join()
    time_s = max(end for _, _, end in done) - min(start for _, start, _ in done)
    return Worked(time_s, len({number for number, _, _ in done}))


def work(
    number: int,
    client: ShareClient,
    topic: str,
    scenario: Scenario,
    results: Queue[tuple[int, float, float]],
    start: Barrier,
    stop: Event,
) -> None:
    """One consumer of the queue; it reports when it began and ended each message."""
    die_with_parent()
    with client.open(topic, scenario.config) as consumer:
        start.wait(_START_TIMEOUT_S)
        time.sleep(number * scenario.gap_s)
        consumer.subscribe([topic])
        while not stop.is_set():
            for _ in consumer.poll(timeout=0.2):
                started = time.time()
                time.sleep(scenario.work_ms / 1_000)
                results.put((number, started, time.time()))


if __name__ == "__main__":
    main()
