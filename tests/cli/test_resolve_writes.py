"""`sharegroup groups resolve`: writes in doubt are looked up in their sinks, or decided by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.client.admin import AdminClient
from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.client.sink_commits import WritePart
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine, rows
from tests.support.eventually import WAIT_MS

ROWS = pa.table({"value": [1]})
RESOLVE = ("groups", "resolve", "--group", "packers")
RECORDS = 5

Leave = Callable[..., HeldWrite]


@pytest.fixture
def table(tmp_path: Path) -> str:
    write_deltalake(str(tmp_path / "sink"), ROWS)
    return str(tmp_path / "sink")


@pytest.fixture
def leave(log: LocalLog, admin: AdminClient, table: str) -> Iterator[Leave]:
    """Lets a member acquire five records; it is gone then, unless it stays."""
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * (4 * RECORDS))
    admin.alter_group_config("packers", {"share.exactly.once.enable": "true", "share.auto.offset.reset": "earliest"})

    staying: list[GroupMember] = []

    def left(*, is_written: bool = False, stays: bool = False) -> HeldWrite:
        fetch = FetchSettings(max_records=RECORDS, batch_size=RECORDS, fetches_ahead=False)
        with DeltaSink(table) as sink:
            member = GroupMember(log, MemberSettings(group_id="packers", fetch=fetch, sink=sink.sink))
            member.subscribe(["orders"])
            acquired = member.next_acquisition(WAIT_MS)
            assert acquired is not None
            write = acquired.write
            assert write is not None
            if is_written:
                assert sink.commit([WritePart(write.unresolved)], ROWS).is_written
        if stays:
            staying.append(member)
        else:
            member.close(WAIT_MS)
        return write

    yield left
    for member in staying:
        member.close(WAIT_MS)


def outcomes(text: str) -> dict[int, list[str]]:
    """Write → in doubt, locked, outcome."""
    return {int(row[0]): row[2:] for row in rows(text)[1:] if row}


def test_writes_in_doubt_are_looked_up(cli: CommandLine, table: str, leave: Leave) -> None:
    written, not_written = leave(is_written=True), leave()
    listed = outcomes(cli.out(*RESOLVE, "--dry-run"))
    assert listed == {w.version: ["5", "0", "in", "doubt"] for w in (written, not_written)}
    assert outcomes(cli.out(*RESOLVE)) == {
        written.version: ["5", "0", "written"],
        not_written.version: ["5", "0", "not-written"],
    }
    assert cli.out(*RESOLVE).strip() == "Group packers has no open writes."
    (group,) = cli.json("groups", "describe", "--group", "packers")
    assert [each["start_offset"] for each in group["partitions"]] == [RECORDS]
    # The late writer finds the fence.
    with DeltaSink(table) as sink:
        assert not sink.commit([WritePart(not_written.unresolved)], ROWS).is_written


def test_writes_that_members_work_on_are_left_alone(cli: CommandLine, table: str, leave: Leave) -> None:
    write = leave(stays=True)
    assert outcomes(cli.out(*RESOLVE)) == {write.version: ["0", "5", "at", "work"]}
    assert DeltaTable(table).version() == 0
    decision = ("--write", str(write.version), "--as", "not-written", "--execute")
    assert "5 of its records are locked" in cli.error(*RESOLVE, *decision)


def test_a_write_that_cannot_be_looked_up_is_decided_by_hand(cli: CommandLine, table: str, leave: Leave) -> None:
    write = leave()
    shutil.rmtree(table)
    result = cli.run(*RESOLVE)
    assert result.exit_code == 1
    assert outcomes(result.stdout) == {write.version: ["5", "0", "UNDECIDED"]}
    assert f"write {write.version}: There is no Delta table at {table} any more" in result.stderr
    assert f"--write {write.version} --as not-written` delivers the records again" in result.stderr
    decide = (*RESOLVE, "--write", str(write.version), "--as", "written")
    shown = cli.out(*decide)
    assert write.app_id in shown
    assert "Those whose results are not in the sink are lost" in shown
    assert "Nothing is decided yet" in shown
    assert outcomes(cli.out(*RESOLVE, "--dry-run"))
    assert "Decided as written: 5 records." in cli.out(*decide, "--reason", "the sink is gone", "--execute")
    assert cli.json(*RESOLVE) == []
    assert f"Write {write.version} of group packers is not open" in cli.error(*decide)


def test_a_sink_that_cannot_be_read_now_decides_nothing(cli: CommandLine, table: str, leave: Leave) -> None:
    write = leave()
    log_file = Path(table) / "_delta_log" / f"{0:020}.json"
    content = log_file.read_bytes()
    log_file.write_bytes(b"{")
    result = cli.run(*RESOLVE)
    assert result.exit_code == 1
    assert outcomes(result.stdout) == {write.version: ["5", "0", "not", "looked", "up"]}
    assert f"write {write.version}: {table} cannot be read" in result.stderr
    log_file.write_bytes(content)
    assert outcomes(cli.out(*RESOLVE)) == {write.version: ["5", "0", "not-written"]}


def test_a_write_whose_commit_is_cleaned_up_is_undecided(cli: CommandLine, table: str, leave: Leave) -> None:
    write = leave(is_written=True)
    write_deltalake(table, ROWS, mode="append")
    DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        (Path(table) / "_delta_log" / f"{version:020}.json").unlink()
    result = cli.run(*RESOLVE)
    assert result.exit_code == 1
    assert outcomes(result.stdout) == {write.version: ["5", "0", "UNDECIDED"]}
    assert "the log does not have its commits any more" in result.stderr
    assert "`sharegroup groups resolve --write`" in result.stderr


def test_not_written_delivers_again(cli: CommandLine, log: LocalLog, leave: Leave) -> None:
    write = leave()
    done = cli.json(*RESOLVE, "--write", str(write.version), "--as", "not-written", "--execute")
    assert (done["record_count"], done["executed"], done["table_id"]) == (5, True, write.table_id)
    again = leave(stays=True)
    assert again.version > write.version
    (group,) = cli.json("groups", "describe", "--group", "packers", "--locks")
    assert json.dumps(group).count('"delivery_count": 2') == 1


def test_what_would_forget_open_writes_is_refused_with_the_command(cli: CommandLine, leave: Leave) -> None:
    leave()
    command = "Run `sharegroup groups resolve --group packers`"
    assert command in cli.error("groups", "delete", "--group", "packers")
    for arguments in (
        ("groups", "delete-offsets", "--group", "packers", "--topic", "orders"),
        ("groups", "reset-offsets", "--group", "packers", "--all-topics", "--to-latest", "--execute"),
    ):
        result = cli.run(*arguments)
        assert result.exit_code == 1
        assert command in result.stderr


def test_a_state_that_is_no_older_copy_has_nothing_to_take_over(cli: CommandLine, leave: Leave) -> None:
    leave()
    assert cli.out(*RESOLVE, "--older-state").strip() == "Group packers has nothing to take over."
    assert cli.json(*RESOLVE, "--older-state") == {"group_id": "packers"}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--write", "7"], "--write and --as go together"),
        (["--as", "written"], "--write and --as go together"),
        (["--execute"], "--execute and --reason go with --write"),
        (["--older-state", "--dry-run"], "--older-state goes without --write and --dry-run"),
        (["--sink", "t"], "--sink and --accept-unclear go with --older-state"),
    ],
)
def test_flags_that_do_not_fit_are_refused(cli: CommandLine, flags: list[str], text: str) -> None:
    assert text in cli.error(*RESOLVE, *flags, exit_code=2)


def test_options_of_the_store_are_those_of_sinks(cli: CommandLine, leave: Leave, tmp_path: Path) -> None:
    leave()
    file = tmp_path / "sink.properties"
    file.write_text("sink.storage.timeout=4s\n")
    assert outcomes(cli.out(*RESOLVE, "--sink-config", str(file)))
    file.write_text("aws_region=eu-1\n")
    leave()
    assert "'aws_region' is no key sink.storage." in cli.error(*RESOLVE, "--sink-config", str(file), exit_code=2)
