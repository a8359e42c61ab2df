"""`sharegroup audit`: verify, history and export, of a table that a processor has written."""

from __future__ import annotations

import base64
import json

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.rows import RecordType
from sharegroup.protocol.share_state_records import decoded
from sharegroup.state.reader import StateTableReader
from tests.cli.conftest import CommandLine
from tests.support.eventually import eventually
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
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        for message in member.poll(20):
            if (message.offset() or 0) < 8:
                kind = AcknowledgeType.REJECT if message.offset() == 7 else AcknowledgeType.ACCEPT
                member.acknowledge(message, kind)
        member.commit_sync(20)
    eventually(lambda: "session_close" in cli.out("audit", "history", *RECORD, "8"), "the member has closed")
    return cli


def test_verify_finds_nothing_in_what_a_processor_wrote(worked: CommandLine) -> None:
    document = worked.json("audit", "verify")
    assert document["findings"] == document["degraded"] == []
    assert document["transition_count"] >= 4
    assert "0 findings." in worked.out("audit", "verify", "--group", "packers")


def test_verify_ends_with_1_and_says_where_a_row_does_not_add_up(cli: CommandLine, worked: CommandLine) -> None:
    last = StateTableReader(str(cli.folder / "state")).rows([RecordType.SHARE_UPDATE])[-1]
    wrong = last.model_copy(update={"request_offset": last.request_offset + 1, "start_offset": 3})
    store(str(cli.folder / "state"), [wrong])
    ran = cli.run("audit", "verify", "--group", "packers", "--output", "json")
    assert ran.exit_code == 1
    assert "group packers orders-0" in {finding["place"] for finding in json.loads(ran.stdout)["findings"]}
    assert "row_agrees_with_its_replay" in cli.run("audit", "verify", "--group", "packers").stdout


def test_history_tells_what_became_of_the_records_of_a_group(worked: CommandLine) -> None:
    document = worked.json("audit", "history", "--group", "packers")
    (partition,) = document["partitions"]
    assert (partition["topic"], partition["partition"], partition["start_offset"]) == ("orders", 0, 8)
    counts = ("accepted_count", "archived_count", "waiting_count", "redelivered_count", "highest_delivery_count")
    assert [partition[name] for name in counts] == [7, 1, 2, 0, 1]
    assert partition["record_count_by_cause"] == {"acquire": 10, "accept": 7, "reject": 1, "session_close": 2}
    (member,) = document["members"]
    assert (member["client_id"], member["acquired_count"], member["accepted_count"]) == ("anna", 10, 7)
    assert "anna" in worked.out("audit", "history", "--group", "packers")


def test_history_tells_what_happened_to_a_record(worked: CommandLine) -> None:
    found = [(t["cause"], t["from_state"], t["to_state"]) for t in worked.json("audit", "history", *RECORD, "7")]
    assert found == [("acquire", None, "ACQUIRED"), ("reject", "ACQUIRED", "ARCHIVED")]
    assert "anna" in worked.out("audit", "history", *RECORD, "7")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (["--group", "nobody"], 1, "Group nobody is not in the state table."),
        (["--group", "packers", "--topic", "orders"], 2, "--topic, --partition and --offset together"),
    ],
)
def test_history_of_what_is_not_there(worked: CommandLine, arguments: list[str], exit_code: int, text: str) -> None:
    assert text in worked.error("audit", "history", *arguments, exit_code=exit_code)


def test_export_prints_kafkas_records(worked: CommandLine) -> None:
    lines = [json.loads(line) for line in worked.out("audit", "export").splitlines()]
    assert lines == [json.loads(line) for line in worked.out("audit", "export", "--group", "packers").splitlines()]
    assert lines[0]["type"] == "ShareSnapshot"
    assert {line["type"] for line in lines[1:]} == {"ShareUpdate"}
    for line in lines:
        record = decoded(base64.b64decode(line["key_base64"]), base64.b64decode(line["value_base64"]))
        assert record.key.group_id == line["key"]["group_id"] == "packers"
        assert record.value is not None
        assert record.value.start_offset == line["value"]["start_offset"]
    assert lines[-1]["value"]["start_offset"] == 8
    assert worked.out("audit", "export", "--group", "nobody") == ""
