"""`sharegroup groups list`, `describe`, `configure` and `resume`, on what a processor has committed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from socket import gethostname
from typing import Any

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import ShareGroupMetadata
from sharegroup.protocol.row_payloads import GroupMetadataPayload, GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.writer import StateTableWriter
from tests.cli.conftest import CommandLine, rows
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.stored_commit import store


@pytest.fixture
def member(cli: CommandLine, log: LocalLog, admin: AdminClient) -> Iterator[ShareConsumer]:
    """A member of the group `packers`, which holds 25 of the 30 records of `orders` and has accepted five.

    It has fetched nothing ahead, which would go back after a second.
    """
    log.create_topic("orders", 2)
    log.append("orders", 0, [NewRecord(None, b"v%d" % n) for n in range(30)])
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "client.id": "anna",
        "max.poll.records": 30,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as consumer:
        consumer.subscribe(["orders"])
        messages = list(consumer.poll(DEADLINE_S))
        assert [message.offset() for message in messages] == list(range(30))
        for message in messages[:5]:
            consumer.acknowledge(message)
        consumer.commit_sync()
        eventually(lambda: described(cli)["in_flight_count"] == 25, "five records are accepted")
        yield consumer


def described(cli: CommandLine) -> Any:
    (document,) = cli.json("groups", "describe", "--group", "packers")
    return document


def test_groups_are_listed_with_their_lag(cli: CommandLine, member: ShareConsumer, admin: AdminClient) -> None:
    admin.alter_group_config("idle", {"share.delivery.count.limit": "3"})
    assert rows(cli.out("groups", "list")) == [
        ["GROUP", "TYPE", "PROTOCOL", "STATE", "#MEMBERS", "#PARTITIONS", "LAG", "IN-FLIGHT"],
        ["idle", "share", "share", "Empty", "0", "0", "-", "-"],
        ["packers", "share", "share", "Stable", "1", "2", "25", "25"],
    ]
    assert [group["group_id"] for group in cli.json("groups", "list", "--state", "stable")] == ["packers"]
    for states in (["empty,stable"], ["Stable, Dead"], ["paused", "--state", "STABLE"]):
        assert "packers" in {group["group_id"] for group in cli.json("groups", "list", "--state", *states)}
    wrong = cli.error("groups", "list", "--state", "Stable,nonsense", exit_code=2)
    assert "'nonsense' is no state of a group; they are Unknown, Dead, Empty" in " ".join(wrong.split())
    assert cli.json("groups", "list", "--state", "Empty") == [
        {
            "group_id": "idle",
            "type": "share",
            "protocol": "share",
            "state": "Empty",
            "member_count": 0,
            "partition_count": 0,
            "lag": None,
            "in_flight_count": None,
            "locked_count": 0,
            "resolving_count": 0,
        }
    ]


def test_sections_have_the_columns_of_kafkas_tool(cli: CommandLine, member: ShareConsumer) -> None:
    member_id = described(cli)["members"][0]["member_id"]
    assert rows(cli.out("groups", "describe", "--group", "packers", "--state")) == [
        ["GROUP", "STATE", "#MEMBERS"],
        ["packers", "Stable", "1"],
    ]
    assert rows(cli.out("groups", "describe", "--group", "packers", "--offsets")) == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG", "IN-FLIGHT", "LOCKED"],
        ["packers", "orders", "0", "5", "25", "25", "25"],
        ["packers", "orders", "1", "0", "0", "0", "0"],
    ]
    assert rows(cli.out("groups", "describe", "--group", "packers", "--members")) == [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "LOCKED", "ASSIGNMENT"],
        ["packers", member_id, gethostname(), "anna", "2", "25", "orders:0,1"],
    ]
    assert rows(cli.out("groups", "describe", "--group", "packers", "--offsets", "--verbose"))[0] == [
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "STATE-EPOCH"),
        *("START-OFFSET", "LAG", "IN-FLIGHT", "LOCKED"),
    ]
    locks = rows(cli.out("groups", "describe", "--group", "packers", "--locks"))
    assert locks[0] == ["TOPIC", "PARTITION", "OFFSETS", "CLIENT-ID", "DELIVERY", "LOCK-ENDS"]
    assert {(*line[:2], *line[3:6]) for line in locks[1:]} == {("orders", "0", "anna", "1", "in")}
    ranges = [[int(offset) for offset in line[2].split("-")] for line in locks[1:]]
    assert [offset for first, last in ranges for offset in range(first, last + 1)] == [*range(5, 30)]


def test_the_overview_has_all_sections(cli: CommandLine, member: ShareConsumer) -> None:
    titles = [line.split()[:3] for line in cli.out("groups", "describe", "--all-groups").splitlines() if line]
    assert [title for title in titles if title[0] in ("GROUP", "TOPIC", "CONSUMER-ID")] == [
        ["GROUP", "STATE", "#MEMBERS"],
        ["TOPIC", "PARTITION", "START-OFFSET"],
        ["CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["TOPIC", "PARTITION", "OFFSETS"],
    ]


def test_nothing_is_cut_at_80_columns(cli: CommandLine, member: ShareConsumer) -> None:
    member_id = described(cli)["members"][0]["member_id"]
    shown = cli.out("groups", "describe", "--group", "packers", "--verbose", columns=80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for whole in ("START-OFFSET", "IN-FLIGHT", "LOCK-ENDS", "packers", "orders"):
        assert whole in shown
    # An id that does not fit goes on in the next line of its cell.
    assert member_id[:8] in shown


def test_records_that_wait_for_the_end_of_a_delay_are_shown(cli: CommandLine, member: ShareConsumer) -> None:
    assert "RECORDS WAIT" not in cli.out("groups", "describe", "--group", "packers")
    for offset in (5, 6, 7):
        member.acknowledge_offset("orders", 0, offset, AcknowledgeType.RELEASE, redelivery_delay_ms=600_000)
    member.commit_sync()
    eventually(lambda: described(cli)["locked_count"] == 22, "three records are released")
    assert [partition["delayed_count"] for partition in described(cli)["partitions"]] == [3, 0]
    assert "RECORDS WAIT: 3 were returned with a delay" in cli.out("groups", "describe", "--group", "packers")


def test_json_has_everything(cli: CommandLine, member: ShareConsumer) -> None:
    document = described(cli)
    assert {key: document[key] for key in ("state", "lag", "in_flight_count", "locked_count", "quarantine")} == {
        "state": "Stable",
        "lag": 25,
        "in_flight_count": 25,
        "locked_count": 25,
        "quarantine": [],
    }
    (holder,) = document["members"]
    assert holder["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert [(lock["first_offset"], lock["last_offset"], lock["client_id"]) for lock in document["locks"]] == [
        (5, 29, "anna"),
    ]
    assert all(0 < lock["remaining_ms"] <= 30_000 for lock in document["locks"])
    config = {entry["key"]: entry for entry in document["config"]}
    assert config["share.auto.offset.reset"]["own_value"] == "earliest"
    assert config["share.delivery.count.limit"] == {
        "key": "share.delivery.count.limit",
        "value": "5",
        "own_value": None,
    }


@pytest.mark.slow
def test_without_a_processor_groups_are_read_all_the_same_and_reading_costs_no_tick(
    cli: CommandLine, log: LocalLog
) -> None:
    with ProcessorPeer(log, table_path=str(cli.folder / "state")):
        AdminClient(log).alter_group_config("packers", {"share.delivery.count.limit": "3"})

    def everything() -> tuple[object, ...]:
        ends = [log.offsets(topic.name) for topic in log.topics()]
        return ends, sorted(path.name for path in (cli.folder / "state").rglob("*"))

    before = everything()
    assert rows(cli.out("groups", "list"))[1] == ["packers", "share", "share", "Empty", "0", "0", "-", "-"]
    shown = cli.out("groups", "describe", "--group", "packers")
    assert "Share group 'packers' has no active members." in shown
    assert "Share group 'packers' has no offset information." in shown
    for command in (("top", "--once"), ("groups", "configure", "--group", "packers", "--describe"), ("topics", "list")):
        cli.out(*command)
    assert everything() == before


def test_without_a_state_table_the_processor_is_asked(cli: CommandLine, member: ShareConsumer) -> None:
    # The table is read and the processor is asked while nothing changes: both describe the same group.
    no_table = ("--state-table", "nowhere")
    (asked,) = cli.json("groups", "describe", "--all-groups", *no_table)
    assert without_time(asked) == without_time(described(cli))
    (asked,) = cli.json("groups", "describe", "--group", "packers", *no_table)
    assert without_time(asked) == without_time(described(cli))
    assert cli.json("groups", "list", *no_table) == cli.json("groups", "list")
    keys = ("groups", "configure", "--group", "packers", "--describe", "--all")
    assert cli.json(*keys, *no_table) == cli.json(*keys)
    assert cli.error("groups", "describe", "--group", "nobody", *no_table) == "error: Group nobody not found.\n"


def without_time(document: Any) -> Any:
    return {**document, "locks": [{**lock, "remaining_ms": 0} for lock in document["locks"]]}


def test_without_a_setting_for_the_state_table_the_processor_is_asked(
    cli: CommandLine, processor: ProcessorPeer, admin: AdminClient
) -> None:
    admin.alter_group_config("packers", {"share.delivery.count.limit": "3"})
    (cli.folder / "sharegroup.yaml").write_text("log.path: events.log", encoding="utf-8")
    assert [group["group_id"] for group in cli.json("groups", "list")] == ["packers"]
    with processor.stalled():
        error = cli.error("groups", "list", "--timeout", "50", exit_code=75)
    assert error.startswith("error: The processor did not respond to LIST_GROUPS within 0.05 s.")


def test_errors_of_describe(cli: CommandLine, log: LocalLog) -> None:
    assert cli.error("groups", "list") == (
        f"error: There is no state table at {cli.folder / 'state'}. "
        "Start the processor, which creates it, or correct the path.\n"
    )
    StateTableWriter.open(str(cli.folder / "state"), {})
    assert cli.out("groups", "list").split() == [
        "GROUP",
        "TYPE",
        "PROTOCOL",
        "STATE",
        "#MEMBERS",
        "#PARTITIONS",
        "LAG",
        "IN-FLIGHT",
    ]
    assert cli.error("groups", "describe", "--group", "packers") == (
        "error: Group packers not found. A group begins when its first member joins or when it is configured: "
        "check the name.\n"
    )
    assert "Give either --group or --all-groups." in cli.error("groups", "describe", exit_code=2)
    two = cli.error("groups", "describe", "--all-groups", "--state", "--members", exit_code=2)
    assert "Give at most one of --state, --offsets, --members and --locks." in two


def test_a_group_is_configured_and_shows_it(cli: CommandLine, processor: ProcessorPeer) -> None:
    alter = ("groups", "configure", "--group", "packers", "--alter")
    changes = "share.auto.offset.reset=earliest,share.delivery.count.limit=3"
    assert cli.out(*alter, "--add-config", changes) == "Completed updating config for group packers.\n"
    show = ("groups", "configure", "--group", "packers", "--describe")
    assert rows(cli.out(*show)) == [
        ["KEY", "VALUE", "SET", "BY"],
        ["share.delivery.count.limit", "3", "group"],
        ["share.auto.offset.reset", "earliest", "group"],
    ]
    document = cli.json(
        *alter, "--add-config", "share.isolation.level=read_committed", "--delete-config", "share.auto.offset.reset"
    )
    assert document == {
        "group_id": "packers",
        "set": {"share.isolation.level": "read_committed"},
        "deleted": ["share.auto.offset.reset"],
    }
    assert [entry["key"] for entry in cli.json(*show)] == ["share.delivery.count.limit", "share.isolation.level"]
    in_force = {entry["key"]: entry["value"] for entry in cli.json(*show, "--all")}
    assert in_force["share.auto.offset.reset"] == "latest"
    assert in_force["share.renew.acknowledge.enable"] == "true"


def test_keys_are_taken_from_a_file(cli: CommandLine, processor: ProcessorPeer) -> None:
    text = "# of the team\n\nshare.delivery.count.limit = 3\nshare.isolation.level=read_committed\n"
    (cli.folder / "group.properties").write_text(text, encoding="utf-8")
    alter = ("groups", "configure", "--group", "packers", "--alter", "--add-config-file", "group.properties")
    assert cli.json(*alter)["set"] == {"share.delivery.count.limit": "3", "share.isolation.level": "read_committed"}
    both = cli.json(*alter, "--add-config", "share.delivery.count.limit=4")
    assert both["set"]["share.delivery.count.limit"] == "4"
    shown = cli.json("groups", "configure", "--group", "packers", "--describe")
    assert {entry["key"]: entry["own_value"] for entry in shown} == both["set"]
    assert "cannot be read" in cli.error(*alter[:-1], "nowhere", exit_code=2)


def test_a_value_in_brackets_may_have_commas(cli: CommandLine, processor: ProcessorPeer) -> None:
    alter = ("groups", "configure", "--group", "packers", "--alter", "--output", "json", "--add-config")
    assert "Unknown group config name: a.b." in cli.error(*alter, "a.b=[x,y],share.delivery.count.limit=3")
    document = json.loads(cli.out(*alter, "share.delivery.count.limit=[3],share.auto.offset.reset=[earliest]"))
    assert document["set"] == {"share.delivery.count.limit": "3", "share.auto.offset.reset": "earliest"}
    assert "[x,y" not in cli.error(*alter, "share.auto.offset.reset=[x,y]")


def test_a_change_that_is_refused(cli: CommandLine, processor: ProcessorPeer) -> None:
    alter = ("groups", "configure", "--group", "packers", "--alter", "--add-config")
    assert cli.error(*alter, "share.nonsense=1").startswith("error: Unknown group config name: share.nonsense.")
    assert "Value must be at least 2" in cli.error(*alter, "share.delivery.count.limit=1")
    assert "Write it as key=value." in cli.error(*alter, "share.delivery.count.limit", exit_code=2)
    for flags in (["--alter"], ["--describe", "--alter"], [], ["--describe", "--add-config", "a=b"]):
        assert cli.run("groups", "configure", "--group", "packers", *flags).exit_code == 2


def test_silence_of_the_processor(cli: CommandLine, processor: ProcessorPeer) -> None:
    with processor.stalled():
        error = cli.error("groups", "resume", "--group", "packers", "--timeout", "50", exit_code=75)
    assert error.startswith("error: Group packers did not respond to RESUME_SHARE_GROUP within 0.05 s. Check that")


def test_no_processor_was_ever_here(cli: CommandLine, log: LocalLog) -> None:
    assert "The topic __share_requests is not in" in cli.error("groups", "resume", "--group", "packers")


@pytest.mark.slow
def test_quarantine_is_shown_and_ended(cli: CommandLine, log: LocalLog) -> None:
    failed = GroupStatusPayload(role=ActorRole.LEADER, status=GroupStatus.FAILED, reason="leader failed on message 7")
    row = StateRow(
        record_type=RecordType.GROUP_STATUS,
        group_id="packers",
        request_partition=0,
        request_offset=7,
        payload=failed.model_dump(mode="json"),
    )
    store(str(cli.folder / "state"), [row])
    assert rows(cli.out("groups", "list", "--state", "Quarantined"))[1][::3] == ["packers", "Quarantined", "-"]
    shown = cli.out("groups", "describe", "--group", "packers")
    assert "QUARANTINED: leader failed on message 7" in shown
    assert "sharegroup groups resume --group packers" in shown
    assert described(cli)["quarantine"] == [{"role": "leader", "reason": "leader failed on message 7"}]
    assert "packers: QUARANTINED: leader failed on message 7" in cli.out("top", "--once")
    with ProcessorPeer(log, table_path=str(cli.folder / "state")):
        assert cli.out("groups", "resume", "--group", "packers") == "Resumed share group packers.\n"
        assert cli.json("groups", "resume", "--group", "packers") == {"group_id": "packers", "resumed": True}


def test_a_group_is_paused_and_resumed(cli: CommandLine, member: ShareConsumer) -> None:
    reason = ("--reason", "the sink is down")
    assert cli.out("groups", "pause", "--group", "packers", *reason) == "Paused share group packers.\n"
    assert cli.json("groups", "pause", "--group", "packers", *reason) == {"group_id": "packers", "paused": True}
    for flags in ((), ("--state-table", "nowhere")):
        shown = cli.out("groups", "describe", "--group", "packers", *flags)
        assert "PAUSED: the sink is down" in shown
        assert "sharegroup groups resume --group packers" in shown
        (document,) = cli.json("groups", "describe", "--group", "packers", *flags)
        assert (document["state"], document["is_paused"]) == ("Paused", True)
        assert len(cli.json("groups", "list", "--state", "paused", *flags)) == 1
    assert 'sharegroup_paused{group="packers"} 1' in cli.out("metrics")
    cli.out("groups", "resume", "--group", "packers")
    assert described(cli)["state"] == "Stable"
    assert "error: The group does not exist." in cli.error("groups", "pause", "--group", "nobody")


def test_dead_letters_that_wait_are_shown(cli: CommandLine, log: LocalLog) -> None:
    waiting = GroupStatusPayload(role=ActorRole.LEADER, status=GroupStatus.DEGRADED, reason="no topic dead-orders")
    row = StateRow(
        record_type=RecordType.GROUP_STATUS,
        group_id="packers",
        request_partition=0,
        request_offset=7,
        payload=waiting.model_dump(mode="json"),
    )
    metadata = GroupMetadataPayload(records=[ShareGroupMetadata(epoch=1)]).model_dump(mode="json")
    group = row.model_copy(update={"record_type": RecordType.GROUP_METADATA, "payload": metadata})
    store(str(cli.folder / "state"), [group, row])
    shown = cli.out("groups", "describe", "--group", "packers")
    assert "DEAD LETTERS WAIT: no topic dead-orders" in shown
    assert "QUARANTINED" not in shown
    assert "resume" not in shown
    assert described(cli)["dead_letter_failure"] == "no topic dead-orders"
    assert "packers: DEAD LETTERS WAIT: no topic dead-orders" in cli.out("top", "--once")
