"""Redelivery after a kill, with a sink against without: to a ShareConsumer with delta-rs, and to a Spark worker.

    python -m benchmarks.sink_redelivery --rounds 5

A member in a process of its own acquires all records of a topic and is killed. Another member of the group, which has
worked on a later record before, waits for them. With a sink it looks the open write up in the table first: it commits a
fence, reads the log, and reports. The time is from the kill until its application has the records. The processor has a
process of its own, and detects the death of a member on its machine in the same way with and without a sink.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from benchmarks.broker import add_broker_arguments, open_broker, site_on
from benchmarks.consumer_sink import new_table, rows_of, start_group
from benchmarks.host import ProcessorHost
from benchmarks.processes import die_with_parent
from benchmarks.report import Figure, print_round, print_rounds
from benchmarks.share_consumers import ASSIGNORS
from benchmarks.site import Site
from sharegroup.client.group_member import GroupMember
from sharegroup.client.settings import FetchSettings, MemberSettings, channel_topics, log_address
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.acquisition import AcquireMode
from sharegroup.logs.open import open_log
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.sink_writes import Sink
from sharegroup.spark.session import build_session
from sharegroup.spark.worker import process
from tests.support.kafka_broker import KafkaBroker

TARGETS_S = {"delta_rs": 0.3, "spark": 1.5}
"""Seconds that the redelivery may take longer with a sink."""
HELD_RECORDS = 100
LOCK_MS = 600_000
_TIMEOUT_S = 120.0

Receiver = Callable[[Mapping[str, object], str, str | None, "Queue[tuple[int, float]]", Event], None]
"""Puts the first offset and the monotonic time of each delivery until the event: configuration, topic, sink."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser().parse_args(arguments)
    with open_broker(options) as (broker, folder):
        spark = build_session("benchmark", {"spark.driver.memory": options.driver_memory})
        print_rounds(run(options, spark, broker, folder))
        spark.stop()


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(made)
    made.add_argument("--driver-memory", default="4g", help="heap of Spark's JVM, as of spark-submit")
    made.add_argument("--warm-up-rounds", type=int, default=1, help="rounds before those that count")
    return made


def run(options: argparse.Namespace, spark: SparkSession, broker: KafkaBroker, folder: Path) -> list[list[Figure]]:
    """Kill one member after the other, with and without a sink in turn."""

    def by_spark(
        config: Mapping[str, object], topic: str, sink: str | None, received: Queue[tuple[int, float]], stop: Event
    ) -> None:
        work(spark, config, topic, sink, received, stop)

    receivers: dict[str, Receiver] = {"delta_rs": consume, "spark": by_spark}
    # Only the death of a process ends a lock, however long the other member takes to start.
    site = site_on(broker, folder / "site", {**ASSIGNORS, "group.share.max.record.lock.duration.ms": LOCK_MS})
    rounds: list[list[Figure]] = []
    with ProcessorHost("plain", site):
        for number in range(-options.warm_up_rounds, options.rounds):
            figures: list[Figure] = []
            for kind, receiver in receivers.items():
                without, once = (
                    redelivery_s(site, folder, receiver, has_process=kind == "delta_rs", has_sink=has_sink)
                    for has_sink in (False, True)
                )
                name = f"sink_redelivery.{kind}.redelivery"
                figures.append(Figure(f"{name}.time", once, "s", peer=without))
                figures.append(Figure(f"{name}.later", once - without, "s", TARGETS_S[kind]))
            print_round(number if number >= 0 else f"warm-up {number}", figures)
            if number >= 0:
                rounds.append(figures)
    return rounds


def redelivery_s(site: Site, folder: Path, receiver: Receiver, *, has_process: bool, has_sink: bool) -> float:
    """Return the seconds from the kill of a member until another one's application has its records.

    Args:
        has_process: the receiver runs in a process of its own.
    """
    topic = f"killed-{uuid4().hex[:8]}"
    site.create_topic(topic, 1, HELD_RECORDS)
    start_group(site, topic, is_exactly_once=has_sink, more={"share.record.lock.duration.ms": str(LOCK_MS)})
    sink = str(new_table(folder / "tables" / topic)) if has_sink else None
    config = {**site.settings.channel_properties, "group.id": topic}
    context = multiprocessing.get_context("spawn")
    held: Queue[int] = context.Queue()
    holder = context.Process(target=hold, args=(config, topic, sink, held), daemon=True)
    holder.start()
    held.get(timeout=_TIMEOUT_S)
    received: Queue[tuple[int, float]] = context.Queue()
    stop = context.Event()
    runner = context.Process if has_process else threading.Thread
    with running(runner(target=receiver, args=(config, topic, sink, received, stop), daemon=True), stop):
        with open_log(site.settings.log) as log:
            log.append(topic, 0, [NewRecord(None, b"x")])
        received.get(timeout=_TIMEOUT_S)
        killed_s = time.monotonic()
        os.kill(holder.pid or 0, signal.SIGKILL)
        first_offset, received_s = received.get(timeout=_TIMEOUT_S)
    holder.join()
    if first_offset:
        raise RuntimeError(f"The killed member's records came from offset {first_offset} on.")
    return received_s - killed_s


@contextmanager
def running(runner: multiprocessing.process.BaseProcess | threading.Thread, stop: Event) -> Iterator[None]:
    """Run a receiver until the context ends."""
    runner.start()
    try:
        yield
    finally:
        stop.set()
        runner.join()


def hold(config: Mapping[str, object], topic: str, sink: str | None, held: Queue[int]) -> None:
    """Acquire all records of a topic, and keep them."""
    die_with_parent()
    settings = MemberSettings(
        group_id=str(config["group.id"]),
        fetch=FetchSettings(max_records=HELD_RECORDS, batch_size=HELD_RECORDS, acquire_mode=AcquireMode.RECORD_LIMIT),
        topics=channel_topics(config),
        sink=None if sink is None else described(sink),
    )
    with open_log(log_address(config)) as log:
        member = GroupMember(log, settings)
        member.subscribe([topic])
        count = 0
        while count < HELD_RECORDS:
            acquisition = member.next_acquisition(1_000)
            count += 0 if acquisition is None else acquisition.record_count
        held.put(count)
        signal.pause()


def described(sink: str) -> Sink:
    """The table as a fetch names it."""
    table = DeltaTable(sink)
    return Sink(address=sink, table_id=str(table.metadata().id), version=table.version())


def consume(
    config: Mapping[str, object], topic: str, sink: str | None, received: Queue[tuple[int, float]], stop: Event
) -> None:
    """Receive records as a ShareConsumer."""
    die_with_parent()
    with ShareConsumer({**config, "sink": sink} if sink else dict(config)) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            if not (messages := consumer.poll(timeout=0.2)):
                continue
            received.put((min(message.offset() or 0 for message in messages), time.monotonic()))
            if sink:
                with consumer.transaction() as results:
                    results.append(rows_of(messages))


def work(
    spark: SparkSession,
    config: Mapping[str, object],
    topic: str,
    sink: str | None,
    received: Queue[tuple[int, float]],
    stop: Event,
) -> None:
    """Receive records as a Spark worker."""
    ends = threading.Event()

    def follow() -> None:
        stop.wait()
        ends.set()

    threading.Thread(target=follow, daemon=True).start()

    def handle(records: DataFrame) -> DataFrame | None:
        offsets = [row.offset for row in records.select("offset").collect()]
        received.put((min(offsets), time.monotonic()))
        return records.select("topic", "partition", "offset", "value") if sink else None

    process(spark, {**config, "topics": topic}, handle, ends, sink=sink)


if __name__ == "__main__":
    main()
