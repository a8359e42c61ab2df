"""`sharegroup topics produce-perf`: a load generator for topics, with the options of kafka-producer-perf-test."""

from __future__ import annotations

import itertools
import math
import random
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import click

from sharegroup.cli.flags import Site, needs_log, reporting_interval_option
from sharegroup.cli.output import JSON, output_option, print_json
from sharegroup.cli.terminal import Interruption, interruption
from sharegroup.errors import ConfigurationError
from sharegroup.logs.port import Log, NewRecord

_RECORDS_PER_APPEND = 1_000
_SHORTEST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1
"""The longest delay of Ctrl-C at a low rate."""
_MEGABYTE = 1024 * 1024
_POOL_BYTES = 1 << 20
_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0"}
"""Characters that a shell does not pass on by itself."""
_PERCENTILES = (50, 95, 99, 99.9)


@click.command("produce-perf")
@click.option("--topic", required=True, help="The topic to produce to.")
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Records to produce.")
@click.option("--record-size", type=click.IntRange(min=0), help="Bytes of a record, of random letters.")
@click.option(
    "--payload-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Take the values from this file, at random.",
)
@click.option(
    "--payload-delimiter",
    default="\\n",
    show_default=True,
    help="Between two values of the file; \\\\n, \\\\r, \\\\t and \\\\0 stand for one character.",
)
@click.option("--payload-monotonic", is_flag=True, help="The values are 0, 1, 2, …")
@click.option(
    "--throughput", type=float, required=True, metavar="N", help="Records a second, about; -1 is as many as possible."
)
@reporting_interval_option("Time between two lines of progress.")
@needs_log
@output_option
def produce_perf(
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    reporting_interval: int,
    site: Site,
    output: str,
) -> None:
    """Produce records at a rate, and print throughput and latency of the appends.

    Records go to the partitions in turn, without keys. The latency of a record is that of the append that it is in: up
    to 1,000 records are appended at once.

    \b
    Example:
      sharegroup topics produce-perf --topic orders --num-records 100000 \\
        --record-size 200 --throughput 5000
    """
    if [record_size is not None, payload_file is not None, payload_monotonic].count(True) != 1:
        raise click.UsageError("Give exactly one of --record-size, --payload-file and --payload-monotonic.")
    if throughput != -1 and not 0 < throughput < math.inf:
        raise click.UsageError("--throughput must be greater than 0 and finite, or -1.")
    if payload_file is not None:
        values = _values_of(payload_file, payload_delimiter)
    else:
        values = _random_values(record_size) if record_size is not None else _numbers()
    report = (lambda _: None) if output == JSON else (lambda window: click.echo(window.line()))
    with site.open_log() as opened, interruption() as interrupted:
        total = _Load(opened, topic, values, throughput, reporting_interval / 1000, report).run(
            num_records, interrupted
        )
    if output == JSON:
        print_json({"topic": topic, **total.document()})
    else:
        click.echo(total.line())
    interrupted.check()


@dataclass(slots=True)
class Window:
    """The appends within a time.

    Attributes:
        started_s: its beginning, by the monotonic clock.
        latencies_ms: latency in whole tenths of a millisecond → records.
    """

    started_s: float
    ended_s: float = 0.0
    record_count: int = 0
    value_bytes: int = 0
    latencies_ms: Counter[float] = field(default_factory=Counter)

    def add(self, record_count: int, value_bytes: int, latency_ms: float, now_s: float) -> None:
        """Count an append."""
        self.record_count += record_count
        self.value_bytes += value_bytes
        self.latencies_ms[round(latency_ms, 1)] += record_count
        self.ended_s = now_s

    def document(self) -> dict[str, object]:
        """Return the figures."""
        elapsed_s = max(self.ended_s - self.started_s, 1e-9)
        latency_sum = sum(latency * count for latency, count in self.latencies_ms.items())
        return {
            "record_count": self.record_count,
            "records_per_s": round(self.record_count / elapsed_s, 1),
            "mb_per_s": round(self.value_bytes / _MEGABYTE / elapsed_s, 2),
            "latency_avg_ms": round(latency_sum / max(self.record_count, 1), 1),
            "latency_max_ms": max(self.latencies_ms, default=0.0),
            **{f"latency_p{percentile:g}_ms": self._latency(percentile) for percentile in _PERCENTILES},
        }

    def line(self) -> str:
        """Return the figures as kafka-producer-perf-test prints them."""
        figures = self.document()
        percentiles = ", ".join(f"{figures[f'latency_p{p:g}_ms']} ms {p:g}th" for p in _PERCENTILES)
        return (
            f"{self.record_count} records sent, {figures['records_per_s']} records/sec "
            f"({figures['mb_per_s']:.2f} MB/sec), {figures['latency_avg_ms']} ms avg latency, "
            f"{figures['latency_max_ms']} ms max latency, {percentiles}."
        )

    def _latency(self, percentile: float) -> float:
        rank = self.record_count * percentile / 100
        passed = 0
        for latency, count in sorted(self.latencies_ms.items()):
            passed += count
            if passed >= rank:
                return latency
        return 0.0


class _Load:
    """A load that appends values at a rate.

    Args:
        values: the values, without end.
        throughput: records a second; -1 is as many as possible.
        interval_s: time between two reports.
        report: takes the window of each interval but the last.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        values: Iterator[bytes],
        throughput: float,
        interval_s: float,
        report: Callable[[Window], None],
    ) -> None:
        self._log = log
        self._topic = topic
        self._values = values
        self._throughput = throughput
        self._interval_s = interval_s
        self._report = report
        self._partitions = itertools.cycle(range(log.describe_topic(topic).partition_count))

    def run(self, record_count: int, interrupted: Interruption) -> Window:
        """Append this many records, or until a signal comes, and return the window of all."""
        total = Window(time.monotonic())
        window = Window(total.started_s)
        while total.record_count < record_count and not interrupted.is_requested:
            due = min(self._due(total), record_count - total.record_count)
            if due <= 0:
                time.sleep(min(max(_SHORTEST_PAUSE_S, 1 / self._throughput), _LONGEST_PAUSE_S))
                continue
            value_bytes, latency_ms = self._append(due)
            now_s = time.monotonic()
            for counted in (total, window):
                counted.add(due, value_bytes, latency_ms, now_s)
            if now_s - window.started_s >= self._interval_s and total.record_count < record_count:
                self._report(window)
                window = Window(now_s)
        return total

    def _due(self, total: Window) -> int:
        """Return the number of records to append now."""
        if self._throughput == -1:
            return _RECORDS_PER_APPEND
        elapsed_s = time.monotonic() - total.started_s
        return min(int(elapsed_s * self._throughput) + 1 - total.record_count, _RECORDS_PER_APPEND)

    def _append(self, count: int) -> tuple[int, float]:
        """Append records at once, and return the bytes of their values and the time in ms."""
        batches: dict[int, list[NewRecord]] = {}
        value_bytes = 0
        for value in itertools.islice(self._values, count):
            batches.setdefault(next(self._partitions), []).append(NewRecord(None, value))
            value_bytes += len(value)
        started_s = time.monotonic()
        self._log.append_all([(self._topic, partition, records) for partition, records in batches.items()])
        return value_bytes, (time.monotonic() - started_s) * 1_000


def _random_values(size: int) -> Iterator[bytes]:
    """Yield values of random letters: pieces of a pool, since making all of each would be the load."""
    chosen = random.Random(0)
    pool = "".join(chosen.choices(string.ascii_uppercase, k=max(_POOL_BYTES, 2 * size))).encode()
    while True:
        begin = chosen.randrange(len(pool) - size)
        yield pool[begin : begin + size]


def _numbers() -> Iterator[bytes]:
    return (str(number).encode() for number in itertools.count())


def _values_of(path: Path, delimiter: str) -> Iterator[bytes]:
    """Yield values of a file, at random and without end."""
    separator = reduce(lambda text, escape: text.replace(*escape), _ESCAPES.items(), delimiter).encode()
    values = path.read_bytes().removesuffix(separator).split(separator) if separator else [path.read_bytes()]
    if not any(values):
        raise ConfigurationError(f"The file {path} is empty.", "Give one with values.")
    chosen = random.Random(0)
    return (chosen.choice(values) for _ in itertools.repeat(None))
