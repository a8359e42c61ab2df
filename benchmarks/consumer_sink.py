"""A ShareConsumer that writes exactly once, against one whose program appends by delta-rs itself.

    python -m benchmarks.consumer_sink --rounds 5

One consumer in a process of its own takes records of a topic of a real broker and appends them to a Delta table, a
commit for each poll: in a transaction of the consumer, or by delta-rs, with an open table that it keeps. It polls large
numbers of records, then 10,000 and 100. Commits of the table are counted by their files: large polls are few, so their
time runs from the consumer's start, that of the others from the first commit. The first round does not count.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.broker import add_broker_arguments, fill, open_broker, random_values, site_on
from benchmarks.host import ProcessorHost
from benchmarks.processes import die_with_parent
from benchmarks.report import Figure, print_round, print_rounds
from benchmarks.share_consumers import ASSIGNORS
from benchmarks.site import Site
from benchmarks.table_rows import TableRows, rate_of
from benchmarks.worker_site import drop
from sharegroup.client.admin import AdminClient
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import ShareConsumer
from tests.support.kafka_broker import KafkaBroker

TARGET_RATIOS = {1_000_000: 0.95, 10_000: 0.9}
"""Records of a poll → the rate with a sink over that without."""
PARTITIONS = 4
_LOCKS = 1_000_000
_BYTES_AT_ONCE = 2**30
_SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser().parse_args(arguments)
    with open_broker(options) as (broker, folder):
        print_rounds(run(options, broker, folder))


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_broker_arguments(made)
    made.add_argument("--records", type=int, default=3_000_000, help="records of the topic")
    made.add_argument("--record-bytes", type=int, default=200, help="their size")
    made.add_argument("--poll-records", type=int, nargs="+", default=[1_000_000, 10_000, 100], help="records of a poll")
    made.add_argument("--small-poll-count", type=int, default=100, help="polls of each size but the first")
    made.add_argument("--warm-up-rounds", type=int, default=1, help="rounds before those that count")
    return made


def run(options: argparse.Namespace, broker: KafkaBroker, folder: Path) -> list[list[Figure]]:
    """Let both consumers append the records in each round, with each size of polls."""
    site = site_on(broker, folder / "site", ASSIGNORS)
    topic = f"results-{uuid4().hex[:8]}"
    rounds: list[list[Figure]] = []
    with ProcessorHost("plain", site):
        site.create_topic(topic, PARTITIONS)
        each = dict.fromkeys(range(PARTITIONS), options.records // PARTITIONS)
        fill(broker, topic, each, random_values(options.record_bytes))
        for number in range(-options.warm_up_rounds, options.rounds):
            figures = _round(options, site, topic, folder / "tables")
            print_round(number if number >= 0 else f"warm-up {number}", figures)
            if number >= 0:
                rounds.append(figures)
    return rounds


def _round(options: argparse.Namespace, site: Site, topic: str, folder: Path) -> list[Figure]:
    figures: list[Figure] = []
    for index, polled in enumerate(options.poll_records):
        wanted = options.records if index == 0 else min(options.records, polled * options.small_poll_count)
        without, once = (
            rate(site, topic, folder, polled, wanted, is_large=index == 0, has_sink=has_sink)
            for has_sink in (False, True)
        )
        name = f"consumer_sink.delta_rs.ranges_{polled}"
        figures.append(Figure(f"{name}.rate", once, "records/s", peer=without))
        figures.append(Figure(f"{name}.ratio", once / without, "x", TARGET_RATIOS.get(polled), False))
    return figures


def rate(site: Site, topic: str, folder: Path, polled: int, wanted: int, *, is_large: bool, has_sink: bool) -> float:
    """Return the rate of one consumer of a new group that appends so many records to a new table, which is removed."""
    group_id = f"results-{uuid4().hex[:8]}"
    start_group(site, group_id, is_exactly_once=has_sink)
    table = new_table(folder / group_id)
    config: dict[str, object] = {
        **site.settings.channel_properties,
        "group.id": group_id,
        "max.poll.records": polled,
        "fetch.max.bytes": _BYTES_AT_ONCE,
        "max.partition.fetch.bytes": _BYTES_AT_ONCE,
    }
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=consume, args=(config, topic, str(table), has_sink, ready, stop), daemon=True)
    process.start()
    ready.wait()
    started_s = time.time()
    try:
        appended = TableRows(table).await_count(wanted, lambda: not process.is_alive())
    finally:
        stop.set()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"The consumer ended with exit code {process.exitcode}.")
    drop(table)
    return rate_of(appended, started_s if is_large else None)


def start_group(site: Site, group_id: str, *, is_exactly_once: bool, more: Mapping[str, str] | None = None) -> None:
    """Configure a new group, which begins at the earliest record, with more of its configuration."""
    config = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(_LOCKS), **(more or {})}
    if is_exactly_once:
        config["share.exactly.once.enable"] = "true"
    with AdminClient(site.settings.channel_properties) as administrator:
        administrator.alter_group_config(group_id, config)


def new_table(path: Path) -> Path:
    """Create an empty table for records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    DeltaTable.create(str(path), _SCHEMA)
    return path


def consume(config: Mapping[str, object], topic: str, table: str, has_sink: bool, ready: Event, stop: Event) -> None:
    """Append what each poll returns to a table, until `stop`."""
    die_with_parent()
    ready.set()
    opened = DeltaTable(table)
    with ShareConsumer({**config, "sink": table} if has_sink else dict(config)) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            if not (messages := consumer.poll(timeout=0.2)):
                continue
            rows = rows_of(messages)
            if has_sink:
                with consumer.transaction() as results:
                    results.append(rows)
            else:
                # The next poll accepts the records.
                write_deltalake(opened, rows, mode="append")


def rows_of(messages: Sequence[Message]) -> pa.Table:
    """The records of a poll as rows of the table."""
    columns = (
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.value() for message in messages],
    )
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


if __name__ == "__main__":
    main()
