"""The site of a benchmark: a new folder, the log in it or on a new broker, and the settings of its programs."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.channel import ChannelSettings
from benchmarks.report import check_load, print_head
from sharegroup.config.loader import Settings, load_settings
from sharegroup.logs.open import open_log
from sharegroup.logs.port import NewRecord
from tests.support.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
BROKER_VERSION = "4.3.1"
RECORDS_TOPIC, IDLE_TOPIC = "records", "idle"
_RECORDS_PER_APPEND = 10_000


@dataclass(frozen=True, slots=True)
class Site:
    """One benchmark's folder, log and settings.

    Attributes:
        folder: holds everything but a broker's data.
        overrides: overridden keys of `config`, `key=value`.
        settings: the settings of the file and the overrides.
    """

    folder: Path
    config: Path
    overrides: tuple[str, ...]
    settings: Settings

    @property
    def flags(self) -> list[str]:
        """The flags of every program."""
        return ["--config", str(self.config), *(word for each in self.overrides for word in ("--set", each))]

    def part(self, name: str) -> Site:
        """A site of another processor on the same log: its topics, its table and its folder are its own."""
        folder = self.folder / name
        folder.mkdir()
        own = {
            "state.table.path": folder / "state",
            "checkpoint.path": folder / "checkpoint",
            "request.topic.name": f"__requests_{name}",
            "response.topic.name": f"__responses_{name}",
        }
        overrides = (*self.overrides, *(f"{key}={value}" for key, value in own.items()))
        return Site(folder, self.config, overrides, load_settings(self.config, {}, overrides))

    @property
    def channel(self) -> ChannelSettings:
        """The channel to the processor."""
        return ChannelSettings.of(self.settings)

    @property
    def table(self) -> Path:
        """The folder of the state table."""
        return Path(self.settings.processor.state_table_path)

    def create_topic(self, topic: str, partition_count: int, records_per_partition: int = 0) -> None:
        """Create a topic with so many one-byte records in each partition."""
        with open_log(self.settings.log) as log:
            log.create_topic(topic, partition_count)
            batch: list[tuple[str, int, list[NewRecord]]] = []
            batch_size = 0
            for partition in range(partition_count):
                left = records_per_partition
                while left:
                    size = min(left, _RECORDS_PER_APPEND)
                    batch.append((topic, partition, [NewRecord(None, b"x")] * size))
                    batch_size, left = batch_size + size, left - size
                    if batch_size >= _RECORDS_PER_APPEND:
                        log.append_all(batch)
                        batch, batch_size = [], 0
            if batch:
                log.append_all(batch)

    def table_files(self) -> list[Path]:
        """Data files of the state table, those of earlier versions included."""
        return [path for path in self.table.rglob("*.parquet") if "_delta_log" not in path.parts]

    def table_log_files(self) -> list[Path]:
        """Files of the state table's log."""
        return list((self.table / "_delta_log").glob("*"))

    def commits_since_checkpoint(self) -> int:
        """Commits that the table's upkeep has not yet merged and covered by a checkpoint."""
        names = [path.name for path in self.table_log_files() if path.name[:20].isdigit()]
        newest = max(int(name[:20]) for name in names)
        return newest - max((int(name[:20]) for name in names if ".checkpoint" in name), default=0)

    def table_operations(self) -> Counter[str]:
        """Operation → commits of it in the state table's log; the table's upkeep is in it."""
        counts: Counter[str] = Counter()
        for path in (self.table / "_delta_log").glob("*.json"):
            try:
                actions = [json.loads(line) for line in path.read_text().splitlines() if line]
            except FileNotFoundError:
                continue
            counts.update(a["commitInfo"].get("operation", "unknown") for a in actions if "commitInfo" in a)
        return counts

    def log_bytes(self) -> int:
        """Bytes of the embedded log; 0 when the log is in Kafka."""
        return total_bytes(self.folder.glob("log.db*"))


def add_arguments(parser: argparse.ArgumentParser, duration_s: float | None = None, has_warm_up: bool = False) -> None:
    """Add the arguments that all benchmarks have.

    Args:
        duration_s: default of `--duration`; None is a benchmark without one.
        has_warm_up: requests come before those that are measured.
    """
    parser.add_argument("--log", choices=("local", "kafka"), default="local", help="embedded, or on a new broker")
    parser.add_argument("--host", choices=("plain", "spark"), default="plain", help="process that runs the processor")
    if duration_s is not None:
        parser.add_argument("--duration", type=float, default=duration_s, help="seconds that are measured")
    if has_warm_up:
        parser.add_argument("--warm-up", type=float, default=10, help="seconds before those that are measured")
    parser.add_argument("--seed", type=int, default=1, help="seed of the schedule")
    parser.add_argument("--folder", type=Path, help="folder for a new folder with all data (default: the system's)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="configuration; repeatable")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")


@contextmanager
def open_site(options: argparse.Namespace, values: Mapping[str, object] | None = None) -> Iterator[Site]:
    """Check the machine's load, print the report's head, and make a site that ends with the context.

    Args:
        options: of a parser with `add_arguments`.
        values: configuration that the benchmark needs; the user's `--set` wins.
    """
    check_load(options.any_load)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-", dir=options.folder)))
        print_head(options, folder)
        if options.log == "kafka":
            broker = stack.enter_context(KafkaBroker(BROKER_VERSION, folder / "broker"))
            log: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        else:
            log = {"log.path": folder / "log.db"}
        paths = {"state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}
        merged = [f"{key}={value}" for key, value in {**paths, **log, **(values or {})}.items()]
        overrides = (*merged, *options.set)
        config = ROOT / "conf" / f"{options.log}.yaml"
        yield Site(folder, config, overrides, load_settings(config, {}, overrides))


def total_bytes(paths: Iterable[Path]) -> int:
    """Bytes of files, some of which may be deleted meanwhile."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
