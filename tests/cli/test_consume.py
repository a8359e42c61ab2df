"""`sharegroup consume`: the flags and the output of kafka-console-share-consumer."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from tests.cli.conftest import CommandLine
from tests.cli.test_produce import running
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually

ORDERS = ("consume", "--topic", "orders", "--group", "packers")
TEN = (*ORDERS, "--max-messages", "10")


@pytest.fixture
def orders(log: LocalLog, admin: AdminClient) -> LocalLog:
    """The log, with 20 records in one partition, and a group that begins with the first."""
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(b"k%d" % n, b"v%d" % n, timestamp_ms=n) for n in range(20)])
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    return log


def partition(cli: CommandLine) -> Any:
    """The share-partition, once the member has left."""
    (group,) = cli.json("groups", "describe", "--group", "packers")
    assert group["members"] == []
    return group["partitions"][0]


def test_messages_are_printed_and_accepted(cli: CommandLine, orders: LocalLog) -> None:
    result = cli.run(*TEN)
    assert result.exit_code == 0
    assert result.stdout == "".join(f"v{n}\n" for n in range(10))
    assert result.stderr == "Processed a total of 10 messages\n"
    assert partition(cli)["start_offset"] == 10
    assert cli.out(*TEN) == "".join(f"v{n}\n" for n in range(10, 20))


def test_properties_are_printed_in_kafkas_order(cli: CommandLine, orders: LocalLog) -> None:
    parts = ("key", "partition", "offset", "delivery", "timestamp", "headers", "epoch")
    flags = [flag for part in parts for flag in ("--formatter-property", f"print.{part}=true")]
    assert cli.out(*ORDERS, "--max-messages", "2", *flags) == (
        "CreateTime:0\tPartition:0\tOffset:0\tDelivery:1\tEpoch:NOT_PRESENT\tNO_HEADERS\tk0\tv0\n"
        "CreateTime:1\tPartition:0\tOffset:1\tDelivery:1\tEpoch:NOT_PRESENT\tNO_HEADERS\tk1\tv1\n"
    )


def test_released_messages_come_again_and_rejected_ones_do_not(cli: CommandLine, orders: LocalLog) -> None:
    delivery = ("--max-messages", "2", "--formatter-property", "print.delivery=true")
    assert cli.out(*ORDERS, *delivery, "--release") == "Delivery:1\tv0\nDelivery:1\tv1\n"
    assert cli.out(*ORDERS, *delivery, "--reject") == "Delivery:2\tv0\nDelivery:2\tv1\n"
    assert cli.out(*ORDERS, *delivery) == "Delivery:1\tv2\nDelivery:1\tv3\n"


def test_reject_and_release_exclude_each_other(cli: CommandLine) -> None:
    error = cli.error(*TEN, "--reject", "--release", exit_code=2)
    assert "At most one of --reject and --release may be specified." in error


def test_it_ends_when_nothing_comes_for_so_long(cli: CommandLine, orders: LocalLog) -> None:
    def start_offsets() -> list[int | None]:
        result = cli.run("consume", "--topic", "orders", "--timeout-ms", "300")
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "Processed a total of 0 messages\n"
        (group,) = cli.json("groups", "describe", "--group", "share")
        return [each["start_offset"] for each in group["partitions"]]

    # A slow machine may need more than one of them to join the group.
    eventually(lambda: start_offsets() == [20], "the default group begins at the end")


def test_a_topic_that_is_not_there_yet(cli: CommandLine, orders: LocalLog) -> None:
    result = cli.run("consume", "--topic", "order", "--timeout-ms", "300")
    assert result.exit_code == 0
    assert result.stderr == "warning: there is no topic order yet.\nProcessed a total of 0 messages\n"


def test_json_lines(cli: CommandLine, orders: LocalLog) -> None:
    orders.append("orders", 0, [NewRecord(b"\xff", None, (("h", b"1"), ("n", None)), 20)])
    lines = cli.out(*ORDERS, "--max-messages", "21", "--output", "json").splitlines()
    assert json.loads(lines[0]) == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp_type": "CreateTime",
        "timestamp_ms": 0,
        "delivery_count": 1,
        "key": "k0",
        "value": "v0",
        "headers": [],
    }
    last = json.loads(lines[20])
    assert last["key"] == {"base64": "/w=="}
    assert (last["value"], last["headers"]) == (None, [["h", "1"], ["n", None]])


@pytest.mark.parametrize("spelling", ["headers.deserializer", "header.deserializer"])
def test_both_spellings_of_the_deserializer_of_headers(cli: CommandLine, orders: LocalLog, spelling: str) -> None:
    number = "org.apache.kafka.common.serialization.ShortDeserializer"
    orders.append("orders", 0, [NewRecord(None, b"v", (("n", b"\x00\x07"),))])
    flags = ("--formatter-property", "print.headers=true", "--formatter-property", f"{spelling}={number}")
    cli.run(*ORDERS, "--max-messages", "19")
    shown = cli.run(*ORDERS, *flags, "--max-messages", "2", "--reject-message-on-error", "--timeout-ms", "5000")
    assert "n:7\tv" in shown.stdout


def test_a_message_that_cannot_be_printed(cli: CommandLine, orders: LocalLog) -> None:
    flags = (*ORDERS, "--value-deserializer", "integer", "--timeout-ms", "20000")
    result = cli.run(*flags)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == ("Processed a total of 1 messages\nerror: The 2 bytes 'v0' are not of type integer.\n")
    orders.append("orders", 0, [NewRecord(None, (7).to_bytes(4, "big"))])
    rejecting = cli.run(*flags, "--reject-message-on-error", "--max-messages", "21")
    assert (rejecting.exit_code, rejecting.stdout) == (0, "7\n")
    assert "The 2 bytes 'v0' are not of type integer. The message is rejected." in rejecting.stderr
    assert partition(cli)["start_offset"] == 21


def test_properties_of_the_consumer(cli: CommandLine, orders: LocalLog, processor: ProcessorPeer) -> None:
    path = cli.folder / "consumer.properties"
    path.write_text("client.id=anna\ngroup.id=packers\n", encoding="utf-8")
    flags = ("--command-config", str(path), "--command-property", "client.id=ben")
    assert cli.out("consume", "--topic", "orders", "--max-messages", "1", *flags) == "v0\n"
    assert {envelope.client_id for envelope in processor.sent(ApiKey.SHARE_FETCH)} == {"ben"}
    assert "differ" in cli.error("consume", "--topic", "orders", "--group", "other", *flags, exit_code=2)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--command-property", "max.poll.recrods=1"], "Unknown configuration max.poll.recrods."),
        (["--command-property", "enable.auto.commit=true"], "`enable.auto.commit` is not applicable"),
        (["--formatter-property", "print.keys=true"], "Unknown formatter property print.keys."),
        (["--key-deserializer", "Json"], "There is no deserializer Json."),
    ],
)
def test_wrong_properties(cli: CommandLine, orders: LocalLog, flags: list[str], reason: str) -> None:
    assert reason in cli.run(*ORDERS, *flags).stderr
    assert cli.run(*ORDERS, *flags).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(("signal_number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly(cli: CommandLine, orders: LocalLog, signal_number: int, exit_code: int) -> None:
    with running(cli.folder, *ORDERS) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(20)] == [b"v%d\n" % n for n in range(20)]
        process.send_signal(signal_number)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (exit_code, b"Processed a total of 20 messages\n")
    assert partition(cli)["start_offset"] == 20


@pytest.mark.slow
def test_a_closed_output_ends_it(cli: CommandLine, orders: LocalLog, admin: AdminClient) -> None:
    with running(cli.folder, *ORDERS, "--command-property", "max.poll.records=20") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v0\n"
        process.stdout.close()
        # No message comes that it could fail to write.
        assert process.wait(timeout=DEADLINE_S) == 0
        assert process.stderr is not None
        errors = process.stderr.read()
    assert b"Unable to write to standard out, closing consumer.\n" in errors
    assert partition(cli)["start_offset"] == 20


@pytest.mark.slow
def test_what_nobody_read_is_returned_unread(cli: CommandLine, orders: LocalLog) -> None:
    # More than a pipe takes.
    orders.append("orders", 0, [NewRecord(None, b"x" * 20_000)] * 20)
    with running(cli.folder, *ORDERS, "--command-property", "max.poll.records=10") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v0\n"
        eventually(lambda: partition_of_anyone(cli)["start_offset"] == 20, "the small ones are accepted")
        eventually(lambda: partition_of_anyone(cli)["locked_count"] >= 10, "it is writing the large ones")
        process.stdout.close()
        assert process.wait(timeout=DEADLINE_S) == 0
    state = partition(cli)
    assert state["locked_count"] == 0
    assert state["start_offset"] < 40
    left = str(40 - state["start_offset"])
    shown = cli.out(*ORDERS, "--max-messages", left, "--formatter-property", "print.delivery=true")
    assert {line.split("\t")[0] for line in shown.splitlines()} == {"Delivery:1"}


def test_messages_beyond_the_last_one_are_returned_unread(cli: CommandLine, orders: LocalLog) -> None:
    flags = ("--command-property", "max.poll.records=8", "--formatter-property", "print.delivery=true")
    first = cli.out(*ORDERS, "--max-messages", "5", *flags)
    assert first == "".join(f"Delivery:1\tv{n}\n" for n in range(5))
    assert partition(cli)["start_offset"] == 5
    rest = cli.out(*ORDERS, "--max-messages", "15", *flags)
    assert rest == "".join(f"Delivery:1\tv{n}\n" for n in range(5, 20))


def partition_of_anyone(cli: CommandLine) -> Any:
    (group,) = cli.json("groups", "describe", "--group", "packers")
    return group["partitions"][0]


def test_a_log_without_a_processor_is_an_error(cli: CommandLine, log: LocalLog) -> None:
    log.create_topic("orders", 1)
    result = cli.run(*ORDERS)
    assert result.exit_code == 1
    assert "error: The topic __share_requests is not in the local log" in result.stderr
