"""`sharegroup topics produce-perf`, with the options of kafka-producer-perf-test."""

from __future__ import annotations

import json
import re

import pytest

from sharegroup.cli import produce_perf
from tests.cli.conftest import CommandLine

LOAD = ("topics", "produce-perf", "--topic", "orders")
SUMMARY = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"[\d.]+ ms 50th, [\d.]+ ms 95th, [\d.]+ ms 99th, [\d.]+ ms 99\.9th\."
)


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    cli.out("topics", "create", "--topic", "orders", "--partitions", "2")
    return cli


def values(cli: CommandLine) -> list[list[bytes]]:
    with cli.open_log() as log:
        return [
            [record.value or b"" for record in log.read("orders", partition, 0, offsets.end_offset)]
            for partition, offsets in log.offsets("orders").items()
        ]


def test_records_of_a_size_go_to_the_partitions_in_turn(cli: CommandLine) -> None:
    shown = cli.out(*LOAD, "--num-records", "2501", "--record-size", "50", "--throughput", "-1")
    assert SUMMARY.fullmatch(shown.strip())
    first, second = values(cli)
    assert (len(first), len(second)) == (1251, 1250)
    assert {len(value) for value in first} == {50}
    assert len(set(first)) > 1_000
    assert re.fullmatch(rb"[A-Z]{50}", first[0])


def test_numbers(cli: CommandLine) -> None:
    document = json.loads(
        cli.out(*LOAD, "--num-records", "5", "--payload-monotonic", "--throughput", "-1", "--output", "json")
    )
    assert (document["topic"], document["record_count"]) == ("orders", 5)
    assert document["latency_max_ms"] >= document["latency_p50_ms"]
    assert values(cli) == [[b"0", b"2", b"4"], [b"1", b"3"]]


def test_values_of_a_file(cli: CommandLine) -> None:
    file = cli.folder / "values.txt"
    file.write_text("a;b;c;", encoding="utf-8")
    payload = ("--payload-file", str(file), "--payload-delimiter", ";")
    cli.out(*LOAD, "--num-records", "60", *payload, "--throughput", "-1")
    assert {value for of_partition in values(cli) for value in of_partition} == {b"a", b"b", b"c"}
    file.write_text("déé\\xé", encoding="utf-8")
    cli.out(*LOAD, "--num-records", "60", "--payload-file", str(file), "--payload-delimiter", "é", "--throughput", "-1")
    assert {b"d", b"", b"\\x"} < {value for of_partition in values(cli) for value in of_partition}
    file.write_text("", encoding="utf-8")
    assert "is empty" in cli.error(*LOAD, "--num-records", "1", *payload, "--throughput", "-1", exit_code=2)


class Clock:
    """A clock that only pauses move on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_rate_is_kept_to(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(produce_perf, "time", clock)
    flags = ("--num-records", "129", "--record-size", "5", "--throughput", "128", "--reporting-interval", "250")
    lines = cli.out(*LOAD, *flags).splitlines()
    # The first of 129 records at 128 a second is due at once, and the last one after a second.
    assert clock.now_s == 1
    counts = [int(summary.group(1)) for line in lines if (summary := SUMMARY.fullmatch(line))]
    assert counts == [33, 32, 32, 129]
    assert len(counts) == len(lines)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--throughput", "-1"), "Give exactly one of"),
        (("--throughput", "-1", "--record-size", "1", "--payload-monotonic"), "Give exactly one of"),
        (("--throughput", "0", "--record-size", "1"), "--throughput must be greater than 0"),
    ],
)
def test_flags_that_do_not_fit(cli: CommandLine, flags: tuple[str, ...], text: str) -> None:
    assert text in cli.error(*LOAD, "--num-records", "1", *flags, exit_code=2)
