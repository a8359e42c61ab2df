"""`sharegroup audit redrive`: a dry run, in place, copies, and by dead-letter records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import itemgetter

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord, NewRecord
from tests.cli.conftest import CommandLine
from tests.cli.test_documents import DOCUMENTS, shape
from tests.support.eventually import DEADLINE_S, eventually

RANGE = ("--group", "packers", "--topic", "orders", "--partition", "0", "--offset")
BY_DLQ = ("--group", "packers", "--from-dlq", "dlq")
ACCEPT, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
LINEAGE = {"topic": "orders", "partition": "0", "group": "packers", "message": "Offset rejected by client."}


def worked_off(cli: CommandLine, kinds: Mapping[int, AcknowledgeType]) -> list[int]:
    """Acknowledge these offsets and release all others; returns what was delivered."""
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "max.poll.records": 20,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        offsets: list[int] = []

        def has_all() -> bool:
            for message in member.poll(1):
                offset = message.offset() or 0
                offsets.append(offset)
                if offset in kinds:
                    member.acknowledge(message, kinds[offset])
            member.commit_sync(DEADLINE_S)
            return kinds.keys() <= set(offsets)

        eventually(has_all, f"{sorted(kinds)} are delivered")
    return offsets


def states(cli: CommandLine, offset: int) -> list[str]:
    """The states of a record, in order."""
    flags = ("--group", "packers", "--topic", "orders", "--partition", "0", "--offset", str(offset))
    lineage = cli.json("audit", "lineage", *flags)
    changes = [(change["time_ms"], change["to_state"]) for change in lineage["other_changes"]]
    for delivery in lineage["deliveries"]:
        changes.append((delivery["acquired_ms"], "ACQUIRED"))
        if delivery["to_state"] is not None:
            changes.append((delivery["ended_ms"], delivery["to_state"]))
    return [state for _, state in sorted(changes, key=itemgetter(0))]


def records(log: LocalLog, topic: str = "orders") -> Iterator[tuple[int, LogRecord, dict[str, str]]]:
    """Offset, record, and its lineage."""
    for record in log.read(topic, 0, 0, log.offsets(topic)[0].end_offset):
        headers = ((name, (value or b"").decode()) for name, value in record.headers)
        yield record.offset, record, {n.removeprefix("__dlq.errors."): v for n, v in headers if n.startswith("__dlq.")}


@pytest.fixture
def orders(cli: CommandLine, log: LocalLog, admin: AdminClient) -> CommandLine:
    """Ten records: 1 to 3 rejected, 4 to 9 accepted, 0 released."""
    log.create_topic("orders", 1)
    own = (("trace", b"t-1"),)
    log.append("orders", 0, [NewRecord(b"k%d" % index, b"v%d" % index, own) for index in range(10)])
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    kinds = {offset: REJECT if offset < 4 else ACCEPT for offset in range(1, 10)}
    assert worked_off(cli, kinds) == list(range(10))
    eventually(lambda: states(cli, 0)[-1] == "AVAILABLE", "the member has closed")
    return cli


def test_a_dry_run_shows_and_changes_nothing(orders: CommandLine, log: LocalLog) -> None:
    document = orders.json("audit", "redrive", *RANGE, "0-12")
    assert document["is_executed"] is False
    assert (document["redriven_count"], document["copy_count"], document["copies"]) == (3, 0, [])
    assert document["redriven"] == [{"topic": "orders", "partition": 0, "first_offset": 1, "last_offset": 3}]
    assert [(skip["first_offset"], skip["last_offset"], skip["reason"]) for skip in document["skipped"]] == [
        (0, 0, "AVAILABLE, not ARCHIVED"),
        (4, 9, "ACKNOWLEDGED, not ARCHIVED"),
        (10, 12, "not delivered yet"),
    ]
    assert "Nothing was changed: add --execute." in orders.out("audit", "redrive", *RANGE, "0-12")
    assert states(orders, 1) == ["ACQUIRED", "ARCHIVED"]
    assert log.offsets("orders")[0].end_offset == 10


def test_archived_records_become_available_in_place_once(orders: CommandLine) -> None:
    assert "3 records redriven in place" in orders.out("audit", "redrive", *RANGE, "1-3", "--execute")
    error = orders.error("audit", "redrive", *RANGE, "1-3", "--execute")
    assert "None of the records can be redriven: 1..3 AVAILABLE, not ARCHIVED." in error
    assert worked_off(orders, dict.fromkeys(range(4), ACCEPT)) == [0, 1, 2, 3]
    assert states(orders, 1) == ["ACQUIRED", "ARCHIVED", "AVAILABLE", "ACQUIRED", "ACKNOWLEDGED"]
    assert "0 findings" in orders.out("audit", "verify")


def test_below_the_start_offset_copies_are_appended_once(orders: CommandLine, log: LocalLog) -> None:
    worked_off(orders, {0: ACCEPT})
    dry = orders.json("audit", "redrive", *RANGE, "1-5")
    assert [(copy["first_offset"], copy["last_offset"], copy["new_first_offset"]) for copy in dry["copies"]] == [
        (1, 3, None)
    ]
    done = orders.json("audit", "redrive", *RANGE, "1-5", "--execute")
    assert [(copy["first_offset"], copy["new_first_offset"]) for copy in done["copies"]] == [(1, 10)]
    copies = {offset: (record, lineage) for offset, record, lineage in records(log) if offset >= 10}
    assert [(record.key, record.value, record.headers[0]) for record, _ in copies.values()] == [
        (b"k%d" % index, b"v%d" % index, ("trace", b"t-1")) for index in (1, 2, 3)
    ]
    assert copies[11][1] == {**LINEAGE, "offset": "2", "delivery.count": "1"}
    again = orders.json("audit", "redrive", *RANGE, "1-5", "--execute")
    assert (again["copy_count"], log.offsets("orders")[0].end_offset) == (0, 13)
    assert {skip["reason"] for skip in again["skipped"]} == {"its copy is in the topic", "ACKNOWLEDGED, not ARCHIVED"}
    assert worked_off(orders, dict.fromkeys((10, 11, 12), ACCEPT)) == [10, 11, 12]


class TestFromDeadLetters:
    @pytest.fixture(autouse=True)
    def given_up(self, cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
        """Of eight records 0 and 5 to 6 are rejected, 4 is released, the others are accepted."""
        log.create_topic("orders", 1)
        log.create_topic("dlq", 1)
        log.append("orders", 0, [NewRecord(b"k%d" % index, b"v%d" % index) for index in range(8)])
        config = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": "dlq",
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        admin.alter_group_config("packers", config)
        kinds = {offset: REJECT if offset in (0, 5, 6) else ACCEPT for offset in range(8) if offset != 4}
        worked_off(cli, kinds)
        eventually(lambda: states(cli, 6)[-1] == "ARCHIVED" and states(cli, 4)[-1] == "AVAILABLE", "they are given up")

    def test_it_decides_for_each_record(self, cli: CommandLine, log: LocalLog) -> None:
        done = cli.json("audit", "redrive", *BY_DLQ, "--execute")
        assert [(entry["first_offset"], entry["last_offset"]) for entry in done["redriven"]] == [(5, 6)]
        assert shape(done | {"skipped": []}) == shape(json.loads(DOCUMENTS["audit redrive"]) | {"skipped": []})
        assert [(entry["first_offset"], entry["new_first_offset"]) for entry in done["copies"]] == [(0, 8)]
        again = cli.json("audit", "redrive", *BY_DLQ, "--execute")
        assert (again["redriven_count"], again["copy_count"]) == (0, 0)
        assert log.offsets("orders")[0].end_offset == 9
        delivered = dict.fromkeys((4, 5, 6, 8), ACCEPT)
        assert worked_off(cli, delivered) == [4, 5, 6, 8]
        assert "0 findings" in cli.out("audit", "verify")

    def test_limit_and_time_select(self, cli: CommandLine) -> None:
        assert len(cli.json("audit", "redrive", *BY_DLQ, "--limit", "1")["copies"]) == 1
        assert cli.json("audit", "redrive", *BY_DLQ, "--limit", "1")["redriven"] == []
        none = cli.json("audit", "redrive", *BY_DLQ, "--since", "2100-01-01T00:00:00")
        assert (none["redriven"], none["copies"], none["skipped"]) == ([], [], [])

    def test_a_deleted_original_is_copied_from_its_dead_letter_record(self, cli: CommandLine, log: LocalLog) -> None:
        log.delete_records("orders", 0, 3)
        done = cli.json("audit", "redrive", *BY_DLQ, "--execute")
        assert [(entry["first_offset"], entry["new_first_offset"]) for entry in done["copies"]] == [(0, 8)]
        (_, copy, lineage) = next(entry for entry in records(log) if entry[0] == 8)
        assert (copy.key, copy.value, lineage["offset"], lineage["delivery.count"]) == (b"k0", b"v0", "0", "1")

    def test_of_a_topic_that_was_created_again_the_dead_letter_records_are_copied(
        self, cli: CommandLine, log: LocalLog
    ) -> None:
        log.delete_topic("orders")
        log.create_topic("orders", 1)
        log.append("orders", 0, [NewRecord(b"other", b"record")])
        done = cli.json("audit", "redrive", *BY_DLQ, "--execute")
        assert (done["redriven"], done["copy_count"]) == ([], 3)
        assert [record.value for _, record, _ in records(log)] == [b"record", b"v0", b"v5", b"v6"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (["--group", "nobody", *RANGE[2:], "1-3"], 1, "Group nobody is not in the state table."),
        ([*RANGE, "4-9"], 1, "None of the records can be redriven: 4..9 ACKNOWLEDGED, not ARCHIVED."),
        ([*RANGE, "9-4"], 2, "'9-4' is neither an offset like 17 nor a range like 10-20"),
        ([*RANGE, "9" * 19], 2, "is neither an offset like 17 nor a range like 10-20"),
        (["--group", "packers", "--topic", "orders"], 2, "--topic, --partition and --offset belong together"),
        (["--group", "packers"], 2, "either --topic, --partition and --offset, or --from-dlq"),
        ([*RANGE, "1-3", "--from-dlq", "dlq"], 2, "either --topic, --partition and --offset, or --from-dlq"),
        ([*RANGE, "1-3", "--limit", "3"], 2, "belong to --from-dlq"),
        (["--group", "packers", "--from-dlq", "nowhere"], 1, "nowhere"),
    ],
)
def test_refusals(orders: CommandLine, arguments: list[str], exit_code: int, text: str) -> None:
    assert text in orders.error("audit", "redrive", *arguments, "--execute", exit_code=exit_code)
