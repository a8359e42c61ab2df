"""`sharegroup topics create`, `list` and `describe`."""

from __future__ import annotations

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
        "error: The topic order is not in the local log events.log. Create it, or check the name and the path.\n"
    )


def test_reading_does_not_create_a_log(cli: CommandLine) -> None:
    assert "error: There is no log at events.log." in cli.error("topics", "list")
    assert not (cli.folder / "events.log").exists()
