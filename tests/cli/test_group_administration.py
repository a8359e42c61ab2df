"""`sharegroup groups reset-offsets`, `delete-offsets` and `delete`, on what a processor has committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine, rows
from tests.support.eventually import DEADLINE_S

HOUR_MS = 3_600_000
MIDNIGHT_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.fixture
def orders(log: LocalLog) -> str:
    """A topic with 30 records in partition 0, one an hour from midnight on, and none in partition 1."""
    log.create_topic("orders", 2)
    log.append("orders", 0, [NewRecord(None, b"v", timestamp_ms=MIDNIGHT_MS + n * HOUR_MS) for n in range(30)])
    return "orders"


@pytest.fixture
def packers(cli: CommandLine, log: LocalLog, orders: str, admin: AdminClient) -> str:
    """A group without members, which has accepted ten records."""
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    with consumer(cli, "packers") as member:
        assert len(member.poll(DEADLINE_S)) == 10
        member.commit_sync()
    assert starts(cli, "packers") == {0: 10, 1: 0}
    return "packers"


def consumer(cli: CommandLine, group_id: str) -> ShareConsumer:
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": group_id,
        "max.poll.records": 10,
    }
    member = ShareConsumer(config)
    member.subscribe(["orders"])
    return member


@pytest.fixture
def member(cli: CommandLine, packers: str) -> Iterator[ShareConsumer]:
    """A member of the group, which therefore is not empty."""
    with consumer(cli, packers) as member:
        assert member.poll(DEADLINE_S)
        yield member


def starts(cli: CommandLine, group_id: str) -> dict[int, int]:
    """Start offset by partition."""
    (document,) = cli.json("groups", "describe", "--group", group_id)
    return {partition["partition"]: partition["start_offset"] for partition in document["partitions"]}


RESET = ("groups", "reset-offsets", "--group", "packers")


@pytest.mark.parametrize(
    ("flags", "new_offsets"),
    [
        (["--all-topics", "--to-earliest"], {0: 0, 1: 0}),
        (["--topic", "orders", "--to-latest"], {0: 30, 1: 0}),
        (["--topic", "orders:0", "--to-latest"], {0: 30}),
        (["--topic", "orders", "--to-datetime", "2026-01-01T05:00:00.000"], {0: 5, 1: 0}),
        (["--topic", "orders", "--to-datetime", "2026-01-01T05:00:00.001"], {0: 6, 1: 0}),
        (["--topic", "orders", "--to-datetime", "2026-01-01T05:00:00+02:00"], {0: 3, 1: 0}),
        (["--topic", "orders", "--to-datetime", "2027-01-01"], {0: 30, 1: 0}),
        (["--topic", "orders:1,0", "--to-offset", "7"], {0: 7, 1: 7}),
        (["--topic", "orders:0", "--to-offset", "100000"], {0: 100_000}),
    ],
)
def test_a_dry_run_shows_the_offsets_of_an_execution(
    cli: CommandLine, packers: str, flags: list[str], new_offsets: dict[int, int]
) -> None:
    before = starts(cli, packers)
    preview = rows(cli.out(*RESET, *flags, "--dry-run"))
    assert preview[0] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert preview[1:] == [[packers, "orders", str(p), str(offset)] for p, offset in sorted(new_offsets.items())]
    assert starts(cli, packers) == before
    assert rows(cli.out(*RESET, *flags, "--execute")) == preview
    assert starts(cli, packers) == before | new_offsets


def test_records_come_again_after_a_reset(cli: CommandLine, packers: str) -> None:
    cli.out(*RESET, "--all-topics", "--to-earliest", "--execute")
    with consumer(cli, packers) as member:
        messages = list(member.poll(DEADLINE_S))
    assert [(message.offset(), message.delivery_count()) for message in messages] == [(n, 1) for n in range(10)]


def test_an_unknown_group_is_created(cli: CommandLine, orders: str, admin: AdminClient) -> None:
    cli.out("groups", "reset-offsets", "--group", "made", "--topic", orders, "--to-latest", "--execute")
    assert starts(cli, "made") == {0: 30, 1: 0}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "either --topic or --all-topics"),
        (["--topic", "orders", "--all-topics", "--to-latest", "--dry-run"], "either --topic or --all-topics"),
        (["--topic", "orders", "--to-latest"], "either --dry-run or --execute"),
        (["--topic", "orders", "--to-latest", "--dry-run", "--execute"], "either --dry-run or --execute"),
        (["--topic", "orders", "--dry-run"], "exactly one of --to-earliest"),
        (["--topic", "orders", "--to-latest", "--to-earliest", "--dry-run"], "exactly one of --to-earliest"),
        (["--topic", "orders", "--to-datetime", "yesterday", "--dry-run"], "'yesterday' is no datetime"),
        (["--topic", "orders:a", "--to-latest", "--dry-run"], "no list of numbers"),
    ],
)
def test_flags_that_do_not_fit(cli: CommandLine, orders: str, flags: list[str], complaint: str) -> None:
    assert complaint in cli.error(*RESET, *flags, exit_code=2)


def test_topics_and_partitions_that_are_not_there(cli: CommandLine, packers: str) -> None:
    assert "no partition 7; it has 2" in cli.error(*RESET, "--topic", "orders:7", "--to-latest", "--dry-run")
    assert "nowhere" in cli.error(*RESET, "--topic", "nowhere", "--to-latest", "--dry-run")


def test_a_group_with_members_stays_as_it_is(cli: CommandLine, member: ShareConsumer) -> None:
    before = starts(cli, "packers")
    for command in (
        (*RESET, "--all-topics", "--to-latest", "--execute"),
        ("groups", "delete-offsets", "--group", "packers", "--topic", "orders"),
    ):
        assert "error: " in cli.error(*command)
    result = cli.run("groups", "delete", "--group", "packers")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: packers: ")
    assert starts(cli, "packers") == before


def test_topics_are_forgotten_one_by_one(cli: CommandLine, packers: str, log: LocalLog) -> None:
    log.create_topic("refunds", 1)
    result = cli.run("groups", "delete-offsets", "--group", packers, "--topic", "orders", "--topic", "refunds")
    assert result.exit_code == 1
    shown = rows(result.stdout)
    assert shown[:2] == [["TOPIC", "STATUS"], ["orders", "Successful"]]
    assert shown[2][:2] == ["refunds", "Error:"]
    assert result.stderr.startswith("error: refunds: ")
    assert starts(cli, packers) == {}


def test_json_has_the_result_of_each(cli: CommandLine, packers: str) -> None:
    reset: Any = cli.json(*RESET, "--topic", "orders:0", "--to-latest", "--execute")
    assert reset == [{"group_id": packers, "topic": "orders", "partition": 0, "new_offset": 30, "error": None}]
    forgotten: Any = cli.json("groups", "delete-offsets", "--group", packers, "--topic", "orders")
    assert forgotten == [{"group_id": packers, "topic": "orders", "error": None}]
    assert cli.json("groups", "delete", "--group", packers) == [{"group_id": packers, "error": None}]


def test_a_group_is_deleted_and_an_unknown_one_is_not(cli: CommandLine, packers: str) -> None:
    result = cli.run("groups", "delete", "--group", packers, "--group", "nobody")
    assert result.exit_code == 1
    assert result.stdout == "Deletion of requested share groups ('packers') was successful.\n"
    assert result.stderr.startswith("error: nobody: ")
    assert "not found" in cli.error("groups", "describe", "--group", packers)


def test_groups_are_listed_by_type(cli: CommandLine, packers: str) -> None:
    assert [group["group_id"] for group in cli.json("groups", "list", "--type", "share")] == [packers]
    assert cli.json("groups", "list", "--type", "consumer", "--type", "classic") == []
