"""Sustained load: what grows while a processor works for an hour, maintenance on.

A processor job, Python members and a producer work on the embedded log; the maintenance job runs beside them at
regular times. Once a minute a line says what was done, what the state table and the log take on the disk, and what
memory the processor takes. At the end the state table is verified.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sharegroup.audit.verify import verify
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.loader import Settings, load_settings
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log, NewRecord
from sharegroup.state.reader import StateTableReader

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "conf" / "local.yaml"
GROUP, TOPIC, PARTITIONS = "orders", "load", 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="how long the load lasts")
    parser.add_argument("--records-per-s", type=int, default=500, help="records produced each second")
    parser.add_argument("--produce-every-s", type=float, default=0.5, help="seconds from one append to the next")
    parser.add_argument("--members", type=int, default=2, help="Python consumers")
    parser.add_argument("--maintenance-minutes", type=float, default=10, help="time from one maintenance to the next")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="configuration; repeatable")
    options = parser.parse_args()
    print(f"settings: {vars(options)}, {PARTITIONS} partitions, {CONFIG.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder))


@dataclass
class Site:
    """Where everything is.

    Attributes:
        folder: folder of the run.
        flags: flags of every job.
        settings: what they come to.
    """

    folder: Path
    flags: list[str]
    settings: Settings

    @classmethod
    def of(cls, folder: Path, more: list[str]) -> Site:
        paths = {"log.path": "log.db", "state.table.path": "state", "checkpoint.path": "checkpoint"}
        overrides = [*(f"{key}={folder / name}" for key, name in paths.items()), *more]
        flags = ["--config", str(CONFIG), *(word for setting in overrides for word in ("--set", setting))]
        return cls(folder, flags, load_settings(CONFIG, {}, overrides))

    @property
    def log_path(self) -> str:
        return str(self.settings.processor.log_path)


@dataclass
class Counts:
    """What was done so far."""

    produced: int = 0
    accepted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def run(options: argparse.Namespace, folder: Path) -> None:
    site = Site.of(folder, options.set)
    counts, stop = Counts(), threading.Event()
    with open_log(site.log_path) as log, processor(site) as process:
        log.create_topic(TOPIC, PARTITIONS)
        await_topics(log, site.settings.processor.request_topic_name, process)
        threads = [threading.Thread(target=consume, args=(site, n, counts, stop)) for n in range(options.members)]
        threads.append(threading.Thread(target=produce, args=(site, options, counts, stop)))
        threads.append(threading.Thread(target=maintain, args=(site, options.maintenance_minutes * 60, stop)))
        for thread in threads:
            thread.start()
        watch(site, process, counts, options.minutes)
        stop.set()
        for thread in threads:
            thread.join()
    rows = StateTableReader(site.settings.processor.state_table_path).rows()
    findings = verify(rows, site.settings.broker).findings
    print(f"verify: {len(rows):,} rows, {len(findings)} findings {findings[:3]}")


@contextmanager
def processor(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    command = ["spark-submit", str(ROOT / "jobs" / "share_group_processor.py"), *site.flags]
    with (site.folder / "processor.log").open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        print(f"processor: exit code {process.wait(60)} {time.monotonic() - started:.1f} s after SIGTERM")


def await_topics(log: Log, topic: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1_200):
        if process.poll() is not None:
            raise SystemExit(f"the processor ended with exit code {process.returncode} at its start")
        try:
            log.describe_topic(topic)
            return
        except UnknownTopicError:
            threading.Event().wait(0.1)
    raise SystemExit("the processor did not start within 120 s")


def consume(site: Site, number: int, counts: Counts, stop: threading.Event) -> None:
    config = {"log.path": site.log_path, "group.id": GROUP, "client.id": f"member-{number}", "max.poll.records": 500}
    with ShareConsumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while not stop.is_set():
            messages = consumer.poll(timeout=1)
            with counts.lock:
                counts.accepted += len(messages)


def produce(site: Site, options: argparse.Namespace, counts: Counts, stop: threading.Event) -> None:
    each = max(1, round(options.records_per_s * options.produce_every_s / PARTITIONS))
    with open_log(site.log_path) as log:
        while not stop.wait(options.produce_every_s):
            log.append_all(
                [(TOPIC, partition, [NewRecord(None, b"x" * 100)] * each) for partition in range(PARTITIONS)]
            )
            counts.produced += each * PARTITIONS


def maintain(site: Site, every_s: float, stop: threading.Event) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "state_maintenance.py"), *site.flags]
    while not stop.wait(every_s):
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"maintenance: exit code {done.returncode}, {time.monotonic() - started:.1f} s")
        print("  " + (done.stdout + done.stderr).strip().replace("\n", "\n  "), flush=True)


def watch(site: Site, process: subprocess.Popen[bytes], counts: Counts, minutes: float) -> None:
    state = Path(site.settings.processor.state_table_path)
    started = time.monotonic()
    pause = threading.Event()
    minute = 0
    while time.monotonic() - started < minutes * 60:
        minute += 1
        pause.wait(max(0.0, min(started + minute * 60, started + minutes * 60) - time.monotonic()))
        if process.poll() is not None:
            raise SystemExit(f"the processor ended with exit code {process.returncode}: {site.folder}/processor.log")
        table = [path for path in state.rglob("*.parquet") if "_delta_log" not in path.parts]
        log_files = list((state / "_delta_log").glob("*"))
        print(
            f"minute {minute}: produced {counts.produced:,} accepted {counts.accepted:,}; state table "
            f"{total_bytes(table) / 1e6:.1f} MB in {len(table)} files, its log {total_bytes(log_files) / 1e6:.1f} MB "
            f"in {len(log_files)} files; embedded log {total_bytes(site.folder.glob('log.db*')) / 1e6:.1f} MB; "
            f"processor {resident_bytes(process.pid) / 1e6:.0f} MB of memory",
            flush=True,
        )


def total_bytes(paths: Iterator[Path] | list[Path]) -> int:
    # A compaction may delete a file between the listing and the look at it.
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def resident_bytes(session: int) -> int:
    """Memory of all processes that the processor's session has."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
