"""`sharegroup migrate` on the embedded log and a Kafka's dump; `tests/kafka/test_migration.py` has a broker."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sharegroup.cli.migrate_from_kafka import CONFIGURATION, GroupImport, import_group
from sharegroup.client.admin import AdminClient
from sharegroup.client.imported_partition import ImportedPartition
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import (
    ApiError,
    ConfigurationError,
    InvalidConfigError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.cli.conftest import CommandLine
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.kafka_dump import DUMP, RESTARTED, lines, returned_batches

GAPPED = ("migrate", "from-kafka", "--dump", str(DUMP), "--group", "sg-gapped")
"""Of two partitions each tenth record was released, up to five times; the others were accepted."""
STATES = [
    {offset: batch for batch in returned_batches(line) for offset in range(batch.first_offset, batch.last_offset + 1)}
    for line in lines(DUMP, "expected_state")
    if line["group"] == "sg-gapped"
]
"""The broker's responses about both partitions: offset → the batch that has it."""
RELEASED = [
    {offset: batch.delivery_count for offset, batch in state.items() if batch.delivery_state is RecordState.AVAILABLE}
    for state in STATES
]
"""Offset → deliveries of the records that were released."""
ACCEPTED_COUNTS = [len(state) - len(released) for state, released in zip(STATES, RELEASED, strict=True)]


@pytest.fixture
def topic(log: LocalLog, processor: ProcessorPeer) -> str:
    """The topic of the dump, with another id."""
    log.create_topic("rec-a", 2)
    for partition in range(2):
        log.append("rec-a", partition, [NewRecord(None, b"v")] * 300)
    return "rec-a"


def consumer(cli: CommandLine, group_id: str, topic: str) -> ShareConsumer:
    made = ShareConsumer({"log.path": str(cli.folder / "events.log"), "group.id": group_id, "max.poll.records": 100})
    made.subscribe([topic])
    return made


def test_a_group_of_a_dump_continues_where_it_was(cli: CommandLine, topic: str, admin: AdminClient) -> None:
    admin.alter_group_config("packers", {"share.delivery.count.limit": "10"})
    shown = cli.json(*GAPPED, "--to-group", "packers", "--dry-run")
    counts = ("start_offset", "accepted_count", "archived_count", "delivered_count")
    assert [[partition[name] for name in counts] for partition in shown["partitions"]] == [
        [0, accepted, 0, len(released)] for accepted, released in zip(ACCEPTED_COUNTS, RELEASED, strict=True)
    ]
    assert cli.json("groups", "list")[0]["partition_count"] == 0
    assert cli.json(*GAPPED, "--to-group", "packers", "--execute") == shown
    deliveries: dict[tuple[int | None, int | None], int | None] = {}
    unfinished = 600 - sum(ACCEPTED_COUNTS)
    with consumer(cli, "packers", topic) as own:

        def has_all() -> bool:
            for message in own.poll(1):
                deliveries[message.partition(), message.offset()] = message.delivery_count()
            return len(deliveries) >= unfinished

        eventually(has_all, "everything else is delivered")
        own.commit_sync(DEADLINE_S)
    assert deliveries == {
        (partition, offset): RELEASED[partition].get(offset, 0) + 1
        for partition in (0, 1)
        for offset in range(300)
        if offset in RELEASED[partition] or offset not in STATES[partition]
    }
    assert cli.json("audit", "verify")["findings"] == []
    (group,) = cli.json("groups", "list")
    assert (group["lag"], group["in_flight_count"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (["--dump", str(DUMP), "--group", "nobody"], 1, "Group nobody has no records"),
        (["--dump", str(RESTARTED), "--group", "sg-gapped"], 1, "The names of topics .* are not known"),
        (["--dump", str(DUMP), "--group", "sg-multi"], 1, "rec-b"),
        (["--dump", str(DUMP), "--group", "sg-latest"], 1, "rec-a-0 ends at 300 here, and the group begins at 310"),
        (["--group", "sg-gapped"], 2, "--bootstrap-server or --dump"),
    ],
)
def test_a_group_that_cannot_continue_is_refused(
    cli: CommandLine, topic: str, arguments: list[str], exit_code: int, text: str
) -> None:
    ran = cli.run("migrate", "from-kafka", *arguments, "--execute")
    assert ran.exit_code == exit_code
    assert re.search(text, ran.stderr)


def test_a_group_with_members_here_is_refused(cli: CommandLine, topic: str, admin: AdminClient) -> None:
    admin.alter_group_config("sg-gapped", {"share.auto.offset.reset": "earliest"})
    with consumer(cli, "sg-gapped", topic) as own:
        assert own.poll(DEADLINE_S)
        assert "has 1 members" in cli.error(*GAPPED, "--execute")


def imported(partition: int) -> dict[tuple[str, int], ImportedPartition]:
    """A share-partition whose records 1 to 10 were accepted."""
    return {("rec-a", partition): ImportedPartition(0, (StateBatch(1, 10, 1, RecordState.ACKNOWLEDGED),))}


def errors(result: GroupImport) -> list[tuple[str, type[ApiError]]]:
    return [(name, type(error)) for name, error in result.failures.items()]


def finished(cli: CommandLine, group_id: str) -> tuple[dict[str, str], dict[int, int]]:
    """The group's own configuration, and its partitions' counts of finished records."""
    (group,) = cli.json("audit", "as-of", "--group", group_id)["groups"]
    return group["config"], {each["partition"]: each["delivery_complete_count"] for each in group["partitions"]}


def test_a_refused_import_leaves_the_configuration_as_it_was(cli: CommandLine, topic: str, admin: AdminClient) -> None:
    own = {"share.auto.offset.reset": "earliest"}
    admin.alter_group_config("packers", own)
    result = import_group(admin, "packers", imported(9), {"share.delivery.count.limit": "7"}, 20)
    assert errors(result) == [("rec-a-9", UnknownTopicOrPartitionError)]
    assert not result.is_configured
    assert finished(cli, "packers") == (own, {})
    with consumer(cli, "packers", topic) as member:
        assert member.poll(DEADLINE_S)
        with pytest.raises(NonEmptyGroupError):
            import_group(admin, "packers", imported(0), {"share.delivery.count.limit": "7"}, 20)
    assert finished(cli, "packers")[0] == own


def test_an_import_whose_configuration_is_refused_can_be_repeated(
    cli: CommandLine, topic: str, admin: AdminClient
) -> None:
    """The processor refuses what this machine's settings allow: its limits are others."""
    states = {**imported(0), **imported(1)}
    result = import_group(admin, "packers", states, {"share.delivery.count.limit": "1000"}, 20)
    assert (errors(result), result.is_configured) == ([(CONFIGURATION, InvalidConfigError)], False)
    assert finished(cli, "packers") == ({}, {0: 10, 1: 10})
    assert import_group(admin, "packers", states, {"share.delivery.count.limit": "7"}, 20) == GroupImport({}, True)
    assert finished(cli, "packers") == ({"share.delivery.count.limit": "7"}, {0: 10, 1: 10})


def test_where_kafka_would_begin_is_shown(cli: CommandLine, topic: str) -> None:
    assert "has no configuration of groups" in cli.out(*GAPPED, "--execute")
    shown = cli.json("migrate", "to-kafka", "--group", "sg-gapped", "--dry-run")
    assert [partition["start_offset"] for partition in shown["partitions"]] == [0, 0]
    assert [partition["redelivered_count"] for partition in shown["partitions"]] == ACCEPTED_COUNTS
    lost = [{int(count): n for count, n in p["lost_delivery_counts"].items()} for p in shown["partitions"]]
    assert lost == [Counter(released.values()) for released in RELEASED]
    text = cli.out("migrate", "to-kafka", "--group", "sg-gapped", "--dry-run")
    assert f"{sum(ACCEPTED_COUNTS)} finished records again, and begins the delivery count of" in text
    assert "is no Kafka" in cli.error("migrate", "to-kafka", "--group", "sg-gapped", "--execute", exit_code=2)


def test_no_processor_starts_on_an_imported_history(cli: CommandLine) -> None:
    assert "Imported 1,758 records of 17 share groups" in cli.out(
        "audit", "import-kafka", "--dump", str(DUMP), "--state-table", "history"
    )
    with cli.open_log() as log:
        processor = ProcessorPeer(log, table_path=str(cli.folder / "history"))
        with pytest.raises(ConfigurationError, match="holds the history of dump"), processor:
            pass
