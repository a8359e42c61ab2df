"""`sharegroup topics create`, `list` and `describe`."""

from __future__ import annotations

import json

from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine


def test_a_topic_is_created_listed_and_described(cli: CommandLine) -> None:
    assert cli.out("topics", "create", "--topic", "orders", "--partitions", "2") == "Topic orders has 2 partitions.\n"
    with cli.open_log() as log:
        log.append("orders", 1, [NewRecord(None, b"v")] * 3)
        log.delete_records("orders", 1, 1)
        topic_id = log.describe_topic("orders").topic_id
    assert cli.out("topics", "list").split() == ["TOPIC", "#PARTITIONS", "TOPIC-ID", "orders", "2", topic_id]
    assert [line.split() for line in cli.out("topics", "describe", "--topic", "orders").splitlines()] == [
        ["TOPIC", "PARTITION", "START-OFFSET", "END-OFFSET"],
        ["orders", "0", "0", "0"],
        ["orders", "1", "1", "3"],
    ]


def test_json_documents(cli: CommandLine) -> None:
    topic_config = "message.timestamp.type=LogAppendTime"
    created = cli.json("topics", "create", "--topic", "orders", "--topic-config", topic_config)
    assert created == {
        "topic": "orders",
        "topic_id": created["topic_id"],
        "partition_count": 1,
        "config": {"message.timestamp.type": "LogAppendTime"},
    }
    assert cli.json("topics", "list") == [created]
    partitions = [{"partition": 0, "start_offset": 0, "end_offset": 0}]
    assert cli.json("topics", "describe") == [{**created, "partitions": partitions}]


def test_internal_topics_can_be_left_out(cli: CommandLine) -> None:
    for topic in ("__share_requests", "orders"):
        cli.out("topics", "create", "--topic", topic)
    assert [topic["topic"] for topic in cli.json("topics", "list")] == ["__share_requests", "orders"]
    assert [topic["topic"] for topic in cli.json("topics", "list", "--exclude-internal")] == ["orders"]


def test_a_topic_that_is_there(cli: CommandLine) -> None:
    cli.out("topics", "create", "--topic", "orders", "--partitions", "3")
    assert "orders is in the local log" in cli.error("topics", "create", "--topic", "orders")
    again = cli.out("topics", "create", "--topic", "orders", "--if-not-exists")
    assert again == "Topic orders has 3 partitions.\n"


def test_a_topic_that_is_not_there(cli: CommandLine) -> None:
    cli.out("topics", "create", "--topic", "orders")
    assert cli.error("topics", "describe", "--topic", "order") == (
        f"error: The topic order is not in the local log {cli.folder / 'events.log'}. "
        "Create it, or check the name and the path.\n"
    )


def test_reading_does_not_create_a_log(cli: CommandLine) -> None:
    assert f"error: There is no log at {cli.folder / 'events.log'}." in cli.error("topics", "list")
    assert not (cli.folder / "events.log").exists()


def test_topics_are_deleted(cli: CommandLine) -> None:
    for topic in ("orders", "refunds"):
        cli.out("topics", "create", "--topic", topic)
    assert cli.out("topics", "delete", "--topic", "orders") == "Deleted topic orders.\n"
    assert "The topic orders is not in" in cli.error("topics", "delete", "--topic", "orders")
    cli.out("topics", "create", "--topic", "claims")
    result = cli.run("topics", "delete", "--topic", "orders", "--topic", "claims")
    assert (result.exit_code, result.stdout) == (1, "Deleted topic claims.\n")
    assert result.stderr.startswith("error: orders: The topic orders is not in")
    both = cli.json("topics", "delete", "--topic", "orders", "--topic", "refunds", "--if-exists")
    assert both == [
        {"topic": "orders", "deleted": False, "error": None},
        {"topic": "refunds", "deleted": True, "error": None},
    ]
    assert cli.json("topics", "list") == []


def test_partitions_are_shortened(cli: CommandLine) -> None:
    cli.out("topics", "create", "--topic", "orders", "--partitions", "2")
    with cli.open_log() as log:
        for partition in range(2):
            log.append("orders", partition, [NewRecord(None, b"v")] * 9)
    shorten = ("topics", "delete-records")
    first = ("--topic", "orders", "--partition", "0")
    assert cli.json(*shorten, *first, "--before-offset", "4") == [
        {"topic": "orders", "partition": 0, "start_offset": 4, "error": None}
    ]
    assert "Give an offset from 0 to the end offset, 9." in cli.error(*shorten, *first, "--before-offset", "10")
    file = cli.folder / "offsets.json"
    entries = [{"topic": "orders", "partition": 0, "offset": -1}, {"topic": "orders", "partition": 1, "offset": 2}]
    file.write_text(json.dumps({"partitions": entries, "version": 1}), encoding="utf-8")
    assert [line.split() for line in cli.out(*shorten, "--offset-json-file", str(file)).splitlines()] == [
        ["TOPIC", "PARTITION", "START-OFFSET"],
        ["orders", "0", "9"],
        ["orders", "1", "2"],
    ]
    entries[:1] = [{"topic": "orders", "partition": 2, "offset": -1}, {"topic": "refunds", "partition": 0, "offset": 1}]
    entries[-1]["offset"] = 3
    file.write_text(json.dumps({"partitions": entries}), encoding="utf-8")
    result = cli.run(*shorten, "--offset-json-file", str(file))
    assert result.exit_code == 1
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [["orders", "1", "3"]]
    assert [line[:18] for line in result.stderr.splitlines()] == ["error: orders-2: T", "error: refunds-0: "]
    file.write_text("[]", encoding="utf-8")
    assert "has no offsets" in cli.error(*shorten, "--offset-json-file", str(file), exit_code=2)
    assert "Give either --topic" in cli.error(*shorten, *first, exit_code=2)


def test_the_topics_between_members_and_processor_are_left_alone(cli: CommandLine) -> None:
    cli.out("topics", "create", "--topic", "__share_requests")
    assert "holds the messages between" in cli.error("topics", "delete", "--topic", "__share_requests", exit_code=2)
    flags = ("--topic", "__share_requests", "--partition", "0", "--before-offset", "0")
    assert "holds the messages between" in cli.error("topics", "delete-records", *flags, exit_code=2)


def test_a_configuration_that_the_embedded_log_does_not_know(cli: CommandLine) -> None:
    error = cli.error("topics", "create", "--topic", "orders", "--topic-config", "segment.ms=1", exit_code=2)
    assert error.startswith("error: Unknown configuration segment.ms of topic orders.")
