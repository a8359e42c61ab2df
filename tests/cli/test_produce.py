"""`sharegroup topics produce`: records from a file or a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.logs.local import LocalLog
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import LogRecord
from tests.cli.conftest import CommandLine
from tests.support.eventually import DEADLINE_S, eventually

KEYS = ("--reader-property", "parse.key=true")


@pytest.fixture
def orders(cli: CommandLine) -> Iterator[LocalLog]:
    """The log, with a topic of three partitions."""
    with cli.open_log() as log:
        log.create_topic("orders", 3)
        yield log


def records(log: LocalLog, partition: int) -> list[LogRecord]:
    return log.read("orders", partition, 0, log.offsets("orders")[partition].end_offset)


def all_values(log: LocalLog) -> list[bytes | None]:
    return [record.value for partition in range(3) for record in records(log, partition)]


def produce(cli: CommandLine, *flags: str, stdin: str | bytes = "") -> str:
    result = cli.run("topics", "produce", "--topic", "orders", *flags, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stderr


def test_records_without_a_key_go_to_the_partitions_in_turn(cli: CommandLine, orders: LocalLog) -> None:
    assert produce(cli, stdin="a\nb\r\n\nd") == "Produced 4 records to orders.\n"
    assert [[record.value for record in records(orders, partition)] for partition in range(3)] == [
        [b"a", b"d"],
        [b"b"],
        [b""],
    ]
    assert records(orders, 0)[0].key is None


def test_a_key_decides_about_the_partition(cli: CommandLine, orders: LocalLog) -> None:
    produce(cli, *KEYS, stdin="".join(f"key-{n}\tvalue {n}\n" for n in range(30)))
    for partition in range(3):
        keys = [record.key for record in records(orders, partition)]
        assert keys == [key for n in range(30) if partition_for(key := b"key-%d" % n, 3) == partition]


def test_a_partition_can_be_set(cli: CommandLine, orders: LocalLog) -> None:
    produce(cli, *KEYS, "--partition", "2", stdin="a\t1\nb\t2\n")
    assert [(record.key, record.value) for record in records(orders, 2)] == [(b"a", b"1"), (b"b", b"2")]
    error = cli.error("topics", "produce", "--topic", "orders", "--partition", "3", exit_code=2)
    assert error == "error: Topic orders has no partition 3. Give one from 0 to 2.\n"


def test_headers_and_keys_from_a_file(cli: CommandLine, orders: LocalLog) -> None:
    path = cli.folder / "orders.txt"
    path.write_bytes(b"source:web,trace:1\tanna\t{}\nNULL\tNULL\tNULL\n")
    settings = cli.folder / "reader.properties"
    settings.write_text("# as the shop writes them\nparse.headers=true\nparse.key=true\n", encoding="utf-8")
    produce(cli, "--file", str(path), "--reader-config", str(settings), "--reader-property", "null.marker=NULL")
    produced = [record for partition in range(3) for record in records(orders, partition)]
    assert sorted((record.key, record.value, record.headers) for record in produced if record.key) == [
        (b"anna", b"{}", (("source", b"web"), ("trace", b"1")))
    ]
    assert [(record.value, record.headers) for record in produced if record.key is None] == [(None, ())]


def test_bytes_come_through_unchanged(cli: CommandLine, orders: LocalLog) -> None:
    produce(cli, "--partition", "0", stdin=b"\xff\x00\t\xfe\n")
    assert records(orders, 0)[0].value == b"\xff\x00\t\xfe"


def test_long_input_is_whole(cli: CommandLine, orders: LocalLog) -> None:
    lines = [b"%07d %s" % (n, b"x" * (n % 300)) for n in range(20_000)]
    path = cli.folder / "long.txt"
    path.write_bytes(b"\n".join(lines))
    assert produce(cli, "--file", str(path)) == "Produced 20,000 records to orders.\n"
    assert sorted(value or b"" for value in all_values(orders)) == lines


@pytest.mark.parametrize(
    ("flags", "line", "reason"),
    [
        (KEYS, b"no key", r"Line 3 has no key separator '\t': 'no key'."),
        (
            ("--reader-property", "parse.headers=true"),
            b"h\tvalue",
            "Line 3 has a header without separator ':': 'h'.",
        ),
        (
            ("--reader-property", "parse.headers=true", "--reader-property", "null.marker=N"),
            b"N:1\tvalue",
            "Line 3 has a header whose key is the null marker: 'N:1'.",
        ),
        (
            ("--reader-property", "parse.headers=true"),
            b"\xff:1\tvalue",
            "Line 3 has a header whose key is not UTF-8: '\N{REPLACEMENT CHARACTER}:1'.",
        ),
    ],
)
def test_a_broken_line_is_named_and_nothing_before_it_is_lost(
    cli: CommandLine, orders: LocalLog, flags: tuple[str, ...], line: bytes, reason: str
) -> None:
    error = cli.error("topics", "produce", "--topic", "orders", *flags, stdin=b"a:1\tb\na:1\tb\n" + line + b"\na:1\tb")
    assert error == (
        f"error: {reason} What is in front of it was produced: 2 records. "
        "Correct the line, and produce from line 3 on.\n"
    )
    assert len(all_values(orders)) == 2


def test_missing_parts_can_be_ignored(cli: CommandLine, orders: LocalLog) -> None:
    lenient = (*KEYS, "--reader-property", "parse.headers=true", "--reader-property", "ignore.error=true")
    produce(cli, *lenient, "--partition", "0", stdin="h\tkey\tvalue\nvalue only\n")
    assert [(record.key, record.value, record.headers) for record in records(orders, 0)] == [
        (b"key", b"value", (("h", None),)),
        (None, b"value only", ()),
    ]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (["parse.keys=true"], "Unknown reader property parse.keys. Known are: parse.key,"),
        (["parse.key=yes"], "The property parse.key is 'yes'. It must be true or false."),
        (["key.separator="], "The property key.separator is empty."),
        (["headers.separator=:"], "The properties headers.separator and headers.key.separator are both ':'."),
        (["null.marker=,"], "The properties headers.separator and null.marker are both ','."),
        (["parse.key"], "'parse.key' is no property. Write it as key=value."),
        (["parse.key: true"], "'parse.key' is no property. Write it as key=value."),
    ],
)
def test_wrong_properties(cli: CommandLine, orders: LocalLog, properties: list[str], reason: str) -> None:
    flags = [flag for value in properties for flag in ("--reader-property", value)]
    assert reason in cli.error("topics", "produce", "--topic", "orders", *flags, exit_code=2)


def test_a_file_or_topic_that_is_not_there(cli: CommandLine, orders: LocalLog) -> None:
    assert "The file x.txt cannot be read" in cli.error("topics", "produce", "--topic", "orders", "--file", "x.txt")
    assert "The topic order is not in" in cli.error("topics", "produce", "--topic", "order")


def test_json(cli: CommandLine, orders: LocalLog) -> None:
    (cli.folder / "orders.txt").write_text("a\nb\n", encoding="utf-8")
    document = cli.json("topics", "produce", "--topic", "orders", "--file", "orders.txt")
    assert document == {"topic": "orders", "record_count": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("signal_number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_pipe_is_produced_as_it_comes_until_a_signal(
    cli: CommandLine, orders: LocalLog, signal_number: int, exit_code: int
) -> None:
    with running(cli.folder, "topics", "produce", "--topic", "orders", "--partition", "0") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nsecond\nunfinished")
        process.stdin.flush()
        eventually(lambda: len(records(orders, 0)) == 2, "the whole lines are in the log")
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (exit_code, b"Interrupted; produced 2 records.\n")
    assert len(records(orders, 0)) == 2


def running(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from sharegroup.programs.main import main; main()", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
