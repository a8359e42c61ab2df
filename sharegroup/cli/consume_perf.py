"""`sharegroup consume-perf`: how fast a topic is consumed, with the options of kafka-share-consumer-perf-test."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import click

from sharegroup.cli.consumers import as_share_group_error, check_topics, consumer_config, consumer_options
from sharegroup.cli.flags import Site, needs_log, reporting_interval_option
from sharegroup.cli.output import JSON, output_option, print_json
from sharegroup.cli.terminal import Interruption, interruption
from sharegroup.client.measurements import MetricName
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.log_clock import wall_ms

_CLIENT_ID = "perf-share-consumer-client"
_DEFAULT_GROUP = "perf-share-consumer"
_POLL_S = 0.1
_CLOSE_S = 0.5
_MEGABYTE = 1024 * 1024
_HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"


@click.command("consume-perf")
@click.option("--topic", required=True, help="The topic to consume from.")
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Records to consume.")
@click.option("--group", help=f"The share group id of the consumers.  [default: {_DEFAULT_GROUP}]")
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Consumers, each with a thread."
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Time without records after which a consumer ends.",
)
@click.option("--fetch-size", type=click.IntRange(min=1), metavar="BYTES", help="Bytes of a partition in one read.")
@reporting_interval_option("Time between two lines of --show-detailed-stats.")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for each consumer and interval.")
@click.option("--show-consumer-stats", is_flag=True, help="Print a line for each consumer at the end.")
@click.option("--print-metrics", is_flag=True, help="Print the metrics of each consumer at the end.")
@click.option("--hide-header", is_flag=True, help="Print no titles.")
@consumer_options
@needs_log
@output_option
def consume_perf(
    topic: str,
    num_records: int,
    group: str | None,
    threads: int,
    timeout_ms: int,
    fetch_size: int | None,
    reporting_interval: int,
    show_detailed_stats: bool,
    show_consumer_stats: bool,
    print_metrics: bool,
    hide_header: bool,
    consumer_properties: Mapping[str, str],
    site: Site,
    output: str,
) -> None:
    """Consume records as fast as possible, accept them, and print the rate; joining the group is included.

    A group begins at the end of a topic unless it is configured otherwise, as with `sharegroup consume`.

    \b
    Example:
      sharegroup consume-perf --topic orders --num-records 100000 --threads 2
    """
    check_topics(site, topic)
    config = consumer_config(site, consumer_properties, _CLIENT_ID, group, _DEFAULT_GROUP)
    config |= {"share.acknowledgement.mode": "implicit"}
    if fetch_size is not None:
        config["max.partition.fetch.bytes"] = str(fetch_size)
    is_text = output != JSON
    if is_text and not hide_header:
        click.echo(_HEADER)
    with interruption() as interrupted, as_share_group_error(), ExitStack() as opened:
        consumers = [opened.enter_context(ShareConsumer(config)) for _ in range(threads)]
        report_ms = reporting_interval if show_detailed_stats and is_text else None
        measurement = _Measurement(num_records, timeout_ms, report_ms, interrupted)
        measurement.run(consumers, topic)
        metrics = [consumer.metrics() for consumer in consumers] if print_metrics else []
        for consumer in consumers:
            consumer.commit_sync()
            consumer.close(_CLOSE_S)
    if is_text:
        _print_lines(measurement, show_consumer_stats, metrics)
    else:
        print_json({"topic": topic, "group_id": config["group.id"], **measurement.document()})
    if measurement.total.record_count < num_records and not interrupted.is_requested:
        click.echo(
            f"warning: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. "
            "You can use the --timeout option to increase the timeout.",
            err=True,
        )
    interrupted.check()


def _print_lines(
    measurement: _Measurement, shows_consumers: bool, metrics: Sequence[Mapping[MetricName, float]]
) -> None:
    if shows_consumers:
        for number, consumed in enumerate(measurement.consumed, start=1):
            click.echo(f"Share consumer {number} consumption metrics- {measurement.window(consumed).line()}")
    click.echo(measurement.total.line())
    for of_consumer in metrics:
        for name, value in sorted(of_consumer.items(), key=lambda entry: (entry[0].group, entry[0].name)):
            click.echo(f"{name.group}:{name.name} : {value:.3f}")


@dataclass(slots=True)
class _Consumed:
    """The consumption of one consumer so far: records, and bytes of keys and values."""

    record_count: int = 0
    byte_count: int = 0


@dataclass(frozen=True, slots=True)
class _Window:
    """Records within a time.

    Attributes:
        new_record_count: records of the rate: those within the time.
        record_count: records so far.
    """

    start_ms: int
    end_ms: int
    record_count: int
    byte_count: int
    new_record_count: int
    new_byte_count: int

    def document(self) -> dict[str, object]:
        """Return the figures."""
        elapsed_s = max(self.end_ms - self.start_ms, 1) / 1000
        return {
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
            "mb": round(self.byte_count / _MEGABYTE, 4),
            "mb_per_s": round(self.new_byte_count / _MEGABYTE / elapsed_s, 4),
            "records_per_s": round(self.new_record_count / elapsed_s, 4),
            "record_count": self.record_count,
            "fetch_time_ms": self.end_ms - self.start_ms,
        }

    def line(self) -> str:
        """Return the figures as kafka-share-consumer-perf-test prints them."""
        f = self.document()
        return (
            f"{_time_text(self.start_ms)}, {_time_text(self.end_ms)}, {f['mb']:.4f}, {f['mb_per_s']:.4f}, "
            f"{f['records_per_s']:.4f}, {self.record_count}, {f['fetch_time_ms']}"
        )


class _Measurement:
    """The consumption of a number of records by several consumers.

    Args:
        record_count: records after which they end.
        timeout_ms: time without records after which one ends.
        report_ms: time between two lines of a consumer; None prints none.
    """

    def __init__(self, record_count: int, timeout_ms: int, report_ms: int | None, interrupted: Interruption) -> None:
        self.consumed: list[_Consumed] = []
        self._record_count = record_count
        self._timeout_s = timeout_ms / 1000
        self._report_ms = report_ms
        self._interrupted = interrupted
        self._start_ms = self._end_ms = 0

    @property
    def total(self) -> _Window:
        """The records of all consumers."""
        records = sum(consumed.record_count for consumed in self.consumed)
        return self.window(_Consumed(records, sum(consumed.byte_count for consumed in self.consumed)))

    def document(self) -> dict[str, object]:
        """Return the figures of all consumers, and of each."""
        of_each = [self.window(consumed).document() for consumed in self.consumed]
        return {**self.total.document(), "consumers": of_each}

    def window(self, consumed: _Consumed) -> _Window:
        """Return records of the whole time."""
        records, size = consumed.record_count, consumed.byte_count
        return _Window(self._start_ms, self._end_ms, records, size, records, size)

    def run(self, consumers: Sequence[ShareConsumer], topic: str) -> None:
        """Consume, each consumer in a thread of its own."""
        self.consumed = [_Consumed() for _ in consumers]
        self._start_ms = wall_ms()
        for consumer in consumers:
            consumer.subscribe([topic])
        with ThreadPoolExecutor(len(consumers)) as threads:
            done = [threads.submit(self._consume, index, consumer) for index, consumer in enumerate(consumers)]
        for future in done:
            future.result()
        self._end_ms = wall_ms()

    def _consume(self, index: int, consumer: ShareConsumer) -> None:
        consumed = self.consumed[index]
        report = self._reporter(index + 1, consumed)
        last_record_s = time.monotonic()
        while not self._is_done and time.monotonic() - last_record_s <= self._timeout_s:
            messages = consumer.poll(_POLL_S)
            if not messages:
                continue
            last_record_s = time.monotonic()
            consumed.byte_count += sum(_size_bytes(message.key()) + len(message) for message in messages)
            consumed.record_count += len(messages)
            report()

    @property
    def _is_done(self) -> bool:
        return self._interrupted.is_requested or sum(c.record_count for c in self.consumed) >= self._record_count

    def _reporter(self, number: int, consumed: _Consumed) -> Callable[[], None]:
        """Return a function that prints a line of a consumer if the last one is old enough."""
        last_ms, last = wall_ms(), _Consumed()

        def report() -> None:
            nonlocal last_ms, last
            now_ms = wall_ms()
            if self._report_ms is None or now_ms - last_ms < self._report_ms:
                return
            records, size = consumed.record_count, consumed.byte_count
            new = (records - last.record_count, size - last.byte_count)
            click.echo(f"{_Window(last_ms, now_ms, records, size, *new).line()} for share consumer {number}")
            last_ms, last = now_ms, _Consumed(records, size)

        return report


def _size_bytes(key: object) -> int:
    return len(key) if isinstance(key, bytes) else 0


def _time_text(time_ms: int) -> str:
    """Return a time as Kafka's tool shows it by default: `2026-11-01 00:00:00:000`, in local time."""
    return f"{datetime.fromtimestamp(time_ms // 1000):%Y-%m-%d %H:%M:%S}:{time_ms % 1000:03d}"
