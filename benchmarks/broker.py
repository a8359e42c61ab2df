"""A broker for programs that compare with Kafka's own share groups, and what both sides need on it."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import confluent_kafka

from benchmarks.report import check_load, print_head
from benchmarks.site import BROKER_VERSION, ROOT, Site
from sharegroup.config.loader import load_settings
from tests.support.kafka_broker import KafkaBroker

PRODUCED_BATCH_BYTES = 16_384
"""Size of a produced batch: the Java producer's default. The broker's share groups hand out by batches."""
QUEUED_RECORDS = 50_000
_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The options of Kafka's own start script."""
JARS = ROOT / "build" / "jars" / f"broker-{BROKER_VERSION}"


class BenchmarkBroker(KafkaBroker):
    """A broker with settings of its own, on a JVM as Kafka starts it: brokers of tests optimise nothing.

    Args:
        settings: its configuration beside that of all brokers of tests.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        super().__init__(BROKER_VERSION, folder)
        self._settings = settings

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        java, *words = super()._command(main_class, *arguments)
        return [java, *_JVM, *(word for word in words if not word.startswith(("-XX:", "-Xmx")))]

    def _properties(self) -> str:
        return super()._properties() + "".join(f"{key}={value}\n" for key, value in self._settings.items())


def add_broker_arguments(parser: argparse.ArgumentParser, rounds: int | None = 3) -> None:
    """Add the arguments of all programs on a broker.

    Args:
        rounds: default of `--rounds`; None is a program without.
    """
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="rounds that count")
    parser.add_argument("--folder", type=Path, help="folder for a new folder with all data (default: the system's)")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")


@contextmanager
def open_broker(
    options: argparse.Namespace, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[KafkaBroker, Path]]:
    """Check the machine's load, print the report's head, and start a broker in a new folder that ends with the context.

    Args:
        options: of a parser with `add_broker_arguments`.
    """
    check_load(options.any_load)
    with TemporaryDirectory(prefix="benchmark-", dir=options.folder) as name:
        print_head(options, Path(name))
        with BenchmarkBroker(Path(name) / "broker", settings or {}) as broker:
            yield broker, Path(name)


def site_on(broker: KafkaBroker, folder: Path, values: Mapping[str, object] | None = None) -> Site:
    """A site of a processor on a broker, with topics of its own.

    Args:
        folder: for the state table and the checkpoint; made when it is missing.
        values: configuration beside the defaults.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = uuid4().hex[:8]
    merged: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "state.table.path": folder / "state",
        "checkpoint.path": folder / "checkpoint",
        "request.topic.name": f"__share_requests_{stem}",
        "response.topic.name": f"__share_responses_{stem}",
        "group.share.max.partition.max.record.locks": 1_000_000,
        **(values or {}),
    }
    overrides = tuple(f"{key}={value}" for key, value in merged.items())
    config = ROOT / "conf" / "kafka.yaml"
    return Site(folder, config, overrides, load_settings(config, {}, overrides))


def random_values(size_bytes: int) -> Iterator[bytes]:
    """Return values without end, as Kafka's kafka-producer-perf-test makes them: random capital letters.

    They are the same in each run. Equal values would flatter a sink that compresses.
    """
    capitals = bytes(ord("A") + byte % 26 for byte in range(256))
    source = random.Random(0)
    while True:
        yield source.randbytes(size_bytes).translate(capitals)


def fill(broker: KafkaBroker, topic: str, record_counts: Mapping[int, int], values: Iterator[bytes]) -> None:
    """Produce records as a Java producer does, all partitions in turn until each has its number.

    Args:
        record_counts: partition → its records.
        values: those of the records, in their order; more than there are records.
    """
    config = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": PRODUCED_BATCH_BYTES, "linger.ms": 1_000}
    producer = confluent_kafka.Producer(config)
    produced = 0
    for number in range(max(record_counts.values())):
        for partition, count in record_counts.items():
            if number < count:
                producer.produce(topic, next(values), partition=partition)
                produced += 1
                if produced % QUEUED_RECORDS == 0:
                    producer.flush()
    producer.flush()
