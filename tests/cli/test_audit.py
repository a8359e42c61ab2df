"""`sharegroup audit`, of a table that a processor has written."""

from __future__ import annotations

import base64
import json

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.core.record_state import Cause
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.rows import RecordType
from sharegroup.protocol.share_state_records import decoded
from sharegroup.state.maintenance import take_snapshot
from sharegroup.state.reader import StateTableReader
from tests.cli.conftest import CommandLine
from tests.state.conftest import FAR_FUTURE_MS
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.stored_commit import store

RECORD = ("--group", "packers", "--topic", "orders", "--partition", "0", "--offset")


@pytest.fixture
def worked(cli: CommandLine, log: LocalLog, admin: AdminClient) -> CommandLine:
    """Of ten records, a member has accepted 0 to 6 and rejected 7; 8 and 9 came back when it closed."""
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * 10)
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "client.id": "anna",
        "max.poll.records": 10,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        for message in member.poll(DEADLINE_S):
            if (message.offset() or 0) < 8:
                kind = AcknowledgeType.REJECT if message.offset() == 7 else AcknowledgeType.ACCEPT
                member.acknowledge(message, kind)
        member.commit_sync(DEADLINE_S)
    eventually(lambda: "session_close" in cli.out("audit", "lineage", *RECORD, "8"), "the member has closed")
    return cli


def test_verify_accepts_the_table_of_a_processor(worked: CommandLine) -> None:
    document = worked.json("audit", "verify")
    assert document["findings"] == document["degraded"] == []
    assert document["transition_count"] >= 4
    assert "0 findings." in worked.out("audit", "verify", "--group", "packers")


@pytest.mark.parametrize(
    "command",
    [
        ("verify",),
        ("stats",),
        ("as-of",),
        ("export",),
        ("what-if", "--set", "share.delivery.count.limit=2"),
        ("report", "--file", "report.html"),
        ("redrive", "--topic", "orders", "--partition", "0", "--offset", "7"),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_group_is_an_error(worked: CommandLine, command: tuple[str, ...]) -> None:
    assert "Group nobody is not in the state table" in worked.error("audit", *command, "--group", "nobody")


def test_verify_says_why_the_request_log_was_not_replayed(worked: CommandLine) -> None:
    shown = " ".join(worked.out("audit", "verify", "--log", "none.db").split())
    assert f"not replayed: There is no log at {worked.folder / 'none.db'}" in shown
    document = worked.json("audit", "verify", "--log", "none.db")
    assert document["requests"] is None
    assert "none.db" in document["requests_error"]


def test_a_lost_data_file_is_named_and_the_rest_is_answered(worked: CommandLine) -> None:
    files = [path for path in (worked.folder / "state").rglob("*.parquet") if "_delta_log" not in path.parts]
    lost = sorted(files, key=lambda path: path.stat().st_mtime)[len(files) // 2]
    take_snapshot(str(worked.folder / "state"), FAR_FUTURE_MS)
    lost.unlink()
    ran = worked.run("audit", "verify")
    assert ran.exit_code == 1
    assert lost.name in ran.stdout
    assert f"The request log was not replayed: State table {worked.folder / 'state'} cannot be read" in ran.stdout
    assert "cannot be shown" in worked.out("audit", "report", "--group", "packers", "--file", "report.html")
    assert "audit verify" in worked.error("audit", "export", "--group", "packers")


def test_verify_ends_with_1_and_locates_an_invalid_row(cli: CommandLine, worked: CommandLine) -> None:
    last = StateTableReader(str(cli.folder / "state")).rows([RecordType.SHARE_UPDATE])[-1]
    wrong = last.model_copy(update={"request_offset": last.request_offset + 1, "start_offset": 3})
    store(str(cli.folder / "state"), [wrong])
    ran = cli.run("audit", "verify", "--group", "packers", "--output", "json")
    assert ran.exit_code == 1
    assert "group packers orders-0" in {finding["location"] for finding in json.loads(ran.stdout)["findings"]}
    assert "row_agrees_with_its_replay" in cli.run("audit", "verify", "--group", "packers").stdout


def test_stats_count_the_records_of_a_group(worked: CommandLine) -> None:
    (group,) = worked.json("audit", "stats", "--group", "packers")["groups"]
    (partition,) = group["partitions"]
    assert (partition["topic"], partition["partition"], partition["start_offset"]) == ("orders", 0, 8)
    counts = ("accepted_count", "archived_count", "waiting_count", "redelivered_count", "highest_delivery_count")
    assert [partition[name] for name in counts] == [7, 1, 2, 0, 1]
    assert partition["record_count_by_cause"] == {"acquire": 10, "accept": 7, "reject": 1, "session_close": 2}
    (member,) = group["members"]
    assert (member["client_id"], member["acquired_count"], member["accepted_count"]) == ("anna", 10, 7)
    assert "anna" in worked.out("audit", "stats", "--group", "packers")


def test_stats_read_reported_gaps_again(cli: CommandLine, worked: CommandLine) -> None:
    last = StateTableReader(str(cli.folder / "state")).rows([RecordType.SHARE_UPDATE])[-1]
    # A member that is wrong: there are records.
    gap = last.transitions[0].model_copy(
        update={"first_offset": 8, "last_offset": 9, "cause": Cause.GAP, "reason": "compacted"}
    )
    wrong = {"request_offset": last.request_offset + 1, "start_offset": 10, "transitions": [gap]}
    store(str(cli.folder / "state"), [last.model_copy(update=wrong)])
    (group,) = worked.json("audit", "stats", "--group", "packers", "--check-gaps")["groups"]
    (reported,) = group["gaps"]
    assert (reported["reason"], reported["ranges"], reported["check"]["with_record"]) == (
        "compacted",
        [[8, 9]],
        [[8, 9]],
    )
    assert "compacted" in worked.out("audit", "stats", "--check-gaps")


def test_lineage_shows_the_deliveries_of_a_record(worked: CommandLine) -> None:
    (delivery,) = worked.json("audit", "lineage", *RECORD, "7")["deliveries"]
    assert (delivery["client_id"], delivery["outcome"], delivery["to_state"]) == ("anna", "reject", "ARCHIVED")
    assert "anna" in worked.out("audit", "lineage", *RECORD, "7")
    by_member = worked.json("audit", "lineage", "--member", "anna")["deliveries"]
    assert [(d["first_offset"], d["last_offset"], d["outcome"]) for d in by_member] == [
        (0, 6, "accept"),
        (7, 7, "reject"),
        (8, 9, "session_close"),
    ]
    assert worked.json("audit", "lineage", "--until", "2026-01-01")["deliveries"] == []
    assert "No delivery." in worked.out("audit", "lineage", *RECORD, "30-40")


def test_as_of_shows_the_state_at_a_point(worked: CommandLine) -> None:
    acquired = worked.json("audit", "lineage", *RECORD, "7")["deliveries"][0]
    (group,) = worked.json("audit", "as-of", "--at", str(acquired["acquired_ms"]), "--group", "packers")["groups"]
    (partition,) = group["partitions"]
    (lock,) = partition["locks"]
    assert (lock["first_offset"], lock["last_offset"], lock["client_id"]) == (0, 9, "anna")
    assert group["config"] == {"share.auto.offset.reset": "earliest"}
    assert [member["client_id"] for member in group["members"]] == ["anna"]
    shown = worked.out("audit", "as-of", "--at", str(acquired["acquired_ms"]))
    assert "ACQUIRED" in shown
    assert "anna" in shown
    (latest,) = worked.json("audit", "as-of")["groups"]
    assert (latest["members"], latest["partitions"][0]["start_offset"]) == ([], 8)


def test_diff_shows_the_changes_between_two_points(worked: CommandLine) -> None:
    acquired_ms = worked.json("audit", "lineage", *RECORD, "7")["deliveries"][0]["acquired_ms"]
    (group,) = worked.json("audit", "diff", "--from", str(acquired_ms))["groups"]
    assert [member["client_id"] for member in group["members_left"]] == ["anna"]
    (partition,) = group["partitions"]
    assert partition["start_offset"] == {"from": 0, "to": 8}
    assert [(r["first_offset"], r["last_offset"], r["to_state"]) for r in partition["records"]] == [
        (0, 6, "ACKNOWLEDGED"),
        (7, 7, "ARCHIVED"),
        (8, 9, "AVAILABLE"),
    ]
    shown = worked.out("audit", "diff", "--from", str(acquired_ms))
    assert "left" in shown
    assert "ACKNOWLEDGED" in shown
    assert "Nothing changed." in worked.out("audit", "diff", "--from", "latest")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        ("stats --group nobody", 1, "Group nobody is not in the state table."),
        ("as-of --group nobody", 1, "Group nobody is not in the state table at latest."),
        ("as-of --at tomorrow", 2, "'tomorrow' is no point in the history."),
        ("as-of --at 2020-01-01", 1, "Answerable are the points from commit 0 ("),
        ("as-of --at commit:9999", 1, "There is no commit 9999 yet."),
        ("as-of --at 9999-12-31", 1, "The time 9999-12-31T00:00:00.000Z is in the future: it is "),
        ("diff --from commit:0 --to 9999-12-31", 1, "is in the future"),
        ("lineage --since 9999-12-31", 1, "is in the future"),
        ("lineage --since 2020-01-02 --until 2020-01-01", 2, "Exchange the two times."),
        ("diff --from latest --to commit:0", 2, "Exchange the two points."),
        ("lineage --topic orders --offset 3", 2, "--topic, --partition and --offset together"),
        ("lineage --topic orders --partition 0 --offset 9-3", 2, "neither an offset"),
        ("lineage --topic orders --partition 0 --offset 9999999999999999999", 2, "neither an offset"),
        ("lineage --group packers", 2, "Choose records"),
        ("lineage --member nobody", 1, "no member with id or client id nobody"),
        ("as-of --state-table nowhere", 1, "/nowhere. Start the processor"),
    ],
)
def test_questions_that_cannot_be_answered(worked: CommandLine, arguments: str, exit_code: int, text: str) -> None:
    assert text in worked.error("audit", *arguments.split(), exit_code=exit_code)


def test_export_prints_kafkas_records(worked: CommandLine) -> None:
    lines = [json.loads(line) for line in worked.out("audit", "export").splitlines()]
    assert lines == [json.loads(line) for line in worked.out("audit", "export", "--group", "packers").splitlines()]
    groups = [line for line in lines if line["topic"] == "__consumer_offsets"]
    assert {"ShareGroupMemberMetadata", "ShareGroupStatePartitionMetadata"} <= {line["type"] for line in groups}
    lines = [line for line in lines if line["topic"] == "__share_group_state"]
    assert lines[0]["type"] == "ShareSnapshot"
    assert {line["type"] for line in lines[1:]} == {"ShareUpdate"}
    for line in lines:
        record = decoded(base64.b64decode(line["key_base64"]), base64.b64decode(line["value_base64"]))
        assert record.key.group_id == line["key"]["group_id"] == "packers"
        assert record.value is not None
        assert record.value.start_offset == line["value"]["start_offset"]
    assert lines[-1]["value"]["start_offset"] == 8


def test_an_exported_dump_is_imported_and_verifies(worked: CommandLine) -> None:
    assert worked.out("audit", "export", "--dump", "exported") == ""
    imported = worked.json("audit", "import-kafka", "--dump", "exported", "--state-table", "imported")
    assert (imported["groups"], imported["unread"], imported["begins_late"]) == (["packers"], [], [])
    assert worked.json("audit", "verify", "--state-table", "imported")["findings"] == []
    (group,) = worked.json("audit", "stats", "--group", "packers", "--state-table", "imported")["groups"]
    (partition,) = group["partitions"]
    assert (partition["topic"], partition["start_offset"], partition["waiting_count"]) == ("orders", 8, 2)
    assert "already" in worked.error(
        "audit", "import-kafka", "--dump", "exported", "--state-table", "imported", exit_code=2
    )
    assert "cannot be made" in worked.error("audit", "export", "--dump", "exported", exit_code=2)


def test_verify_replays_the_requests_of_the_log(worked: CommandLine) -> None:
    requests = worked.json("audit", "verify", "--requests")["requests"]
    assert requests["not_replayed"] == []
    assert requests["commit_count"] > 3
    assert requests["response_count"] > 0
    assert "again, and compared" in worked.out("audit", "verify")
    assert worked.json("audit", "verify", "--no-requests")["requests"] is None
    assert worked.json("audit", "verify", "--log", "other.log")["requests"] is None
    assert "other.log" in worked.error("audit", "verify", "--requests", "--log", "other.log")


def test_what_if_compares_the_deliveries_under_other_limits(worked: CommandLine) -> None:
    flags = ("--group", "packers", "--set", "share.delivery.count.limit=2")
    document = worked.json("audit", "what-if", *flags)
    assert document["limits"] == {"share.delivery.count.limit": 2}
    assert document["recorded"]["delivery_count"] == document["replayed"]["delivery_count"] == 10
    assert document["recorded"]["accepted_count"] == document["replayed"]["accepted_count"] == 7
    assert (document["undecided_count"], document["undecided_share"]) == (0, 0.0)
    assert "Undecided: 0 of 8 acknowledgements (0.0%)." in worked.out("audit", "what-if", *flags)


def test_what_if_refuses_what_it_cannot_change(worked: CommandLine) -> None:
    assert "Name a limit" in worked.error("audit", "what-if", exit_code=2)
    shown = worked.error("audit", "what-if", "--set", "share.session.timeout.ms=1", exit_code=2)
    assert "no limit that a replay can change" in shown
