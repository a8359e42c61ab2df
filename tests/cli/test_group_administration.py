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
        (["--topic", "orders:0", "--to-offset", "7"], {0: 7}),
        (["--topic", "orders", "--to-current"], {0: 10, 1: 0}),
        (["--all-topics", "--to-current"], {0: 10, 1: 0}),
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


def test_an_offset_that_the_log_does_not_have_becomes_the_nearest_one(
    cli: CommandLine, packers: str, log: LocalLog
) -> None:
    log.delete_records("orders", 0, 4)
    for offset, nearest, bound in ((100_000, 30, "higher than the latest"), (3, 4, "lower than the earliest")):
        flags = ("--topic", "orders:0", "--to-offset", str(offset), "--dry-run")
        result = cli.run(*RESET, *flags)
        assert (result.exit_code, rows(result.stdout)[1:]) == (0, [[packers, "orders", "0", str(nearest)]])
        warning = f"warning: New offset {offset} is {bound} offset of orders-0. It is set to {nearest}.\n"
        assert result.stderr == warning


class TestFilesOfOffsets:
    def test_an_export_brings_the_offsets_back(self, cli: CommandLine, packers: str) -> None:
        text = cli.out(*RESET, "--all-topics", "--to-current", "--export", "--dry-run")
        assert text == "orders,0,10\norders,1,0\n"
        (cli.folder / "offsets.csv").write_text(text, encoding="utf-8")
        assert cli.out(*RESET, "--all-topics", "--to-latest", "--export", "--execute") == "orders,0,30\norders,1,0\n"
        assert starts(cli, packers) == {0: 30, 1: 0}
        shown = rows(cli.out(*RESET, "--from-file", "offsets.csv", "--execute"))
        assert shown[1:] == [[packers, "orders", "0", "10"], [packers, "orders", "1", "0"]]
        assert starts(cli, packers) == {0: 10, 1: 0}

    @pytest.mark.parametrize(
        "text",
        [
            # Kafka's tool ends its export with an empty line.
            "orders,1,0\norders,0,7\n\n",
            "orders,1,0\r\norders,0,7",
            '"orders",1,0\n"orders",0,7\n',
            "packers,orders,1,0\nporters,orders,0,9\npackers,orders,0,7\n",
        ],
        ids=["of one group", "line ends of Windows", "quoted", "of several groups"],
    )
    def test_files_of_kafkas_tools_are_read(self, cli: CommandLine, packers: str, text: str) -> None:
        (cli.folder / "offsets.csv").write_text(text, encoding="utf-8", newline="")
        assert cli.out(*RESET, "--from-file", "offsets.csv", "--export", "--dry-run") == "orders,0,7\norders,1,0\n"

    def test_an_offset_of_a_file_stays_within_the_log(self, cli: CommandLine, packers: str) -> None:
        (cli.folder / "offsets.csv").write_text("orders,0,31\n", encoding="utf-8")
        result = cli.run(*RESET, "--from-file", "offsets.csv", "--export", "--dry-run")
        assert (result.stdout, result.stderr.startswith("warning: New offset 31 ")) == ("orders,0,30\n", True)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "no offsets of group packers"),
            ("porters,orders,0,7\n", "no offsets of group packers"),
            ("orders,0\n", "Line 1 of the offsets, 'orders,0'"),
            ("orders,0,7\npackers,orders,1,7\n", "Line 2 of the offsets"),
            ("topic,partition,offset\n", "Line 1 of the offsets"),
            ("orders,0,-1\n", "Line 1 of the offsets"),
            ("orders,0,7\norders,0,8\n", "second offset of orders-0, 8"),
        ],
    )
    def test_other_files_are_refused(self, cli: CommandLine, packers: str, text: str, complaint: str) -> None:
        (cli.folder / "offsets.csv").write_text(text, encoding="utf-8")
        assert complaint in cli.error(*RESET, "--from-file", "offsets.csv", "--dry-run", exit_code=2)

    def test_partitions_that_the_log_does_not_have(self, cli: CommandLine, packers: str) -> None:
        (cli.folder / "offsets.csv").write_text("orders,7,0\n", encoding="utf-8")
        assert "no partition 7" in cli.error(*RESET, "--from-file", "offsets.csv", "--dry-run")


def test_a_group_without_offsets_begins_at_the_end_of_the_log(
    cli: CommandLine, orders: str, admin: AdminClient
) -> None:
    reset = ("groups", "reset-offsets", "--group", "made", "--topic", orders, "--to-current")
    assert cli.out(*reset, "--export", "--execute") == "orders,0,30\norders,1,0\n"
    assert starts(cli, "made") == {0: 30, 1: 0}


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
        (["--topic", "orders", "--from-file", "sharegroup.yaml", "--dry-run"], "--from-file without them"),
        (["--from-file", "sharegroup.yaml", "--to-latest", "--dry-run"], "exactly one of --to-earliest"),
        (["--from-file", "nowhere.csv", "--dry-run"], "nowhere.csv"),
        (["--all-topics", "--to-latest", "--dry-run", "--export", "--output", "json"], "--export or --output json"),
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


def test_all_groups_are_deleted_but_those_with_members(
    cli: CommandLine, member: ShareConsumer, admin: AdminClient
) -> None:
    for group_id in ("porters", "sorters"):
        admin.alter_group_config(group_id, {"share.delivery.count.limit": "3"})
    result = cli.run("groups", "delete", "--all-groups")
    assert result.exit_code == 1
    assert result.stdout == "Deletion of requested share groups ('porters', 'sorters') was successful.\n"
    assert result.stderr.startswith("error: packers: ")
    assert [group.group_id for group in admin.list_groups()] == ["packers"]


@pytest.mark.parametrize("flags", [[], ["--group", "packers", "--all-groups"]])
def test_a_deletion_names_its_groups_in_one_way(cli: CommandLine, orders: str, flags: list[str]) -> None:
    assert "either --group or --all-groups" in cli.error("groups", "delete", *flags, exit_code=2)


def test_groups_are_listed_by_type(cli: CommandLine, packers: str) -> None:
    assert [group["group_id"] for group in cli.json("groups", "list", "--type", "share")] == [packers]
    assert cli.json("groups", "list", "--type", "consumer", "--type", "classic") == []
