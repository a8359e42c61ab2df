"""The history of a real Kafka as rows: they verify, and their fold is what the broker's coordinator returned."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.audit.kafka_state.imported_table import write_history
from sharegroup.audit.kafka_state.kafka_history import KafkaHistory, kafka_history
from sharegroup.audit.kafka_state.kafka_import import ImportSummary, KafkaImport
from sharegroup.audit.kafka_state.kafka_records import ExportedRecord, kafka_records
from sharegroup.audit.kafka_state.kafka_source import dump_records
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.state_batches import StateBatch, combined, persisted_batches
from sharegroup.errors import ConfigurationError, InputLineError
from sharegroup.logs.port import LogRecord
from sharegroup.protocol import share_group_records, share_state_records
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_group_records import OFFSETS_TOPIC
from sharegroup.protocol.share_state_records import (
    STATE_TOPIC,
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
)
from sharegroup.state.fold import FoldedState, fold
from sharegroup.state.reader import StateTableReader
from tests.support.kafka_dump import DUMP, RESTARTED, lines, returned_batches

Imported = tuple[list[StateRow], ImportSummary]


def imported(history: KafkaHistory, group_id: str | None = None) -> Imported:
    made = KafkaImport(history, group_id=group_id)
    return list(made.rows()), made.summary


@pytest.fixture(scope="module")
def recorded() -> list[LogRecord]:
    """The records of the dump; not to be changed."""
    return list(dump_records(DUMP))


@pytest.fixture(scope="module")
def whole(recorded: list[LogRecord]) -> Imported:
    """Their rows and summary; not to be changed."""
    return imported(kafka_history(recorded))


@pytest.fixture(scope="module")
def restarted() -> Imported:
    """Those of the dump after a restart; not to be changed."""
    return imported(kafka_history(dump_records(RESTARTED)))


def assert_as_the_coordinator_returned(state: FoldedState, folder: Path) -> None:
    """A start offset here has passed what is finished; Kafka's lags."""
    for response in lines(folder, "expected_state"):
        group = state.groups.get(response["group"])
        partition = group.partitions.get((response["topicId"], response["partition"])) if group is not None else None
        if response["readState"]["errorCode"]:
            assert partition is None, response
            continue
        assert partition is not None, response
        engine = partition.share_partition
        assert combined(returned_batches(response), (), engine.start_offset) == persisted_batches(engine.runs), response
        assert engine.start_offset >= response["readState"]["startOffset"]
        assert engine.state_epoch == response["readState"]["stateEpoch"]


@pytest.mark.parametrize(("name", "folder"), [("whole", DUMP), ("restarted", RESTARTED)])
def test_the_fold_of_the_rows_is_what_the_broker_returned(
    name: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    rows, _ = request.getfixturevalue(name)
    assert_as_the_coordinator_returned(fold(rows), folder)
    assert verify(rows, BrokerConfig()).findings == []


def test_the_summary_says_what_was_read_and_what_is_not_known(whole: Imported, restarted: Imported) -> None:
    _, summary = whole
    assert summary.record_counts == {STATE_TOPIC: 1428, OFFSETS_TOPIC: 330}
    assert (len(summary.group_ids), summary.partition_count) == (17, 46)
    assert (summary.unread, summary.unknown_fields, summary.pruned, summary.unnamed_topic_ids) == ([], [], [], set())
    # Those of an aborted transaction, in one of the two isolation levels.
    assert summary.unnamed_finished_count == 30
    _, late = restarted
    assert len(late.pruned) == 264
    assert late.unnamed_topic_ids


def test_records_beyond_the_memory_are_put_in_order_on_the_disk(recorded: list[LogRecord]) -> None:
    few = [*recorded[:200], *recorded[-200:]]
    expected = list(kafka_history(few).records())
    spilled = kafka_history(few, run_bytes=20_000)
    assert list(spilled.records()) == expected
    assert list(spilled.records()) == expected


def test_a_record_has_the_history_that_kafka_stored(recorded: list[LogRecord]) -> None:
    rows, _ = imported(kafka_history(recorded), "sg-mixed")
    assert {row.group_id for row in rows} == {"sg-mixed"}
    of_partition = [entry for row in rows if (row.topic, row.partition) == ("rec-b", 0) for entry in row.transitions]
    transitions = [entry for entry in of_partition if entry.first_offset <= 3 <= entry.last_offset]
    assert [(entry.cause, entry.to_state.name, entry.delivery_count) for entry in transitions] == [
        (Cause.IMPORTED, "AVAILABLE", 1),
        (Cause.IMPORTED, "ACKNOWLEDGED", 2),
    ]


def test_members_and_epochs_are_those_of_the_groups(whole: Imported) -> None:
    rows, _ = whole
    state = fold(rows)
    assert "sg-delgroup" not in state.groups
    group = state.groups["sg-grow"].metadata
    assert (group.name, group.members) == ("Empty", {})
    (topic,) = group.topics.values()
    assert sorted(topic.initialized) == list(range(topic.partition_count))


def as_log_record(exported: ExportedRecord, offset: int) -> LogRecord:
    record = exported.record
    if isinstance(record, ShareStateRecord):
        key, value = share_state_records.encoded(record)
    else:
        key, value = share_group_records.encoded(record)
    return LogRecord(exported.topic, 0, offset, exported.time_ms, key, value)


def test_what_was_imported_is_exported_as_the_same_history(whole: Imported) -> None:
    rows, _ = whole
    exported = [as_log_record(record, offset) for offset, record in enumerate(kafka_records(rows))]
    again, _ = imported(kafka_history(exported))
    assert_as_the_coordinator_returned(fold(again), DUMP)
    assert verify(again, BrokerConfig()).findings == []
    before, after = fold(rows).groups, fold(again).groups
    assert {g: group.metadata.records() for g, group in before.items()} == {
        g: group.metadata.records() for g, group in after.items()
    }


def test_a_record_that_cannot_be_read_is_listed_and_the_others_are_imported(recorded: list[LogRecord]) -> None:
    later = LogRecord(STATE_TOPIC, 0, 10_000, 0, b"\x00\x07key", b"\x00\x00")
    newer = LogRecord(OFFSETS_TOPIC, 0, 10_001, 0, recorded[-1].key, b"\x00\x05")
    of_consumers = LogRecord(OFFSETS_TOPIC, 0, 10_002, 0, b"\x00\x03\x00\x01a", None)
    rows, summary = imported(kafka_history([*recorded, later, newer, of_consumers]))
    assert len(rows) == 1653
    assert [each.source for each in summary.unread] == [f"{STATE_TOPIC}-0@10000", f"{OFFSETS_TOPIC}-0@10001"]
    assert "type 7" in summary.unread[0].reason
    assert "version 5" in summary.unread[1].reason
    assert summary.other_group_count == 1


@pytest.mark.parametrize(
    "first",
    [pytest.param(n, marks=[pytest.mark.slow] if n % 476 else []) for n in range(0, 1428, 119)],
    ids=lambda first: f"from_{first}",
)
def test_a_history_whose_beginning_is_deleted_is_read_from_what_is_left(first: int, recorded: list[LogRecord]) -> None:
    records = [r for r in recorded if r.topic == OFFSETS_TOPIC or r.partition or r.offset >= first]
    rows, summary = imported(kafka_history(records))
    assert verify(rows, BrokerConfig()).findings == []
    assert bool(summary.pruned) == (first > 0)


def test_a_compacted_topic_of_groups_gives_the_same_groups(recorded: list[LogRecord], whole: Imported) -> None:
    last = {(r.topic, r.key): r.offset for r in recorded if r.topic == OFFSETS_TOPIC}
    compacted = [r for r in recorded if r.topic == STATE_TOPIC or last[r.topic, r.key] == r.offset]
    rows, _ = imported(kafka_history(compacted))
    groups, expected = fold(rows).groups, fold(whole[0]).groups
    assert groups.keys() == expected.keys()
    for group_id, group in groups.items():
        here, there = group.metadata, expected[group_id].metadata
        assert (here.group_epoch, here.members, here.topics) == (there.group_epoch, there.members, there.topics)


def test_a_folder_without_a_dump_and_a_line_that_is_no_record_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputLineError, match=r"has neither share_group_state\.jsonl"):
        list(dump_records(tmp_path))
    path = tmp_path / "share_group_state.jsonl"
    path.write_text('{"partition": 0, "key_hex": "00", "value_hex": null}\n{"key_hex": "0g"}\n', encoding="utf-8")
    with pytest.raises(InputLineError, match=r"Line 2 of .* is not a record"):
        list(dump_records(tmp_path))


def test_an_imported_table_has_a_point_for_each_time(tmp_path: Path, whole: Imported) -> None:
    rows, _ = whole
    path = str(tmp_path / "history")
    write_history(path, rows, "a dump")
    stored = StateTableReader(path).rows()
    assert verify(stored, BrokerConfig()).findings == []
    markers = [row for row in stored if row.record_type is RecordType.COMMIT_MARKER]
    cuts = [cut for marker in markers for cut in CommitMarkerPayload.model_validate(marker.payload).cuts]
    assert {cut.time_ms for cut in cuts} == {row.time_ms for row in rows}
    assert [cut.time_ms for cut in cuts] == sorted(cut.time_ms for cut in cuts)
    middle = rows[800]
    (end,) = {cut.end_offset for cut in cuts if cut.time_ms == middle.time_ms and cut.end_offset > 800}
    assert fold(stored, {0: end}).groups.keys() == fold(rows[:end]).groups.keys()
    with pytest.raises(ConfigurationError, match="already"):
        write_history(path, rows, "a dump")


KEY = SharePartitionKey("packers", "EREREREREREiIiIiIiIiIg", 0)


def snapshot(snapshot_epoch: int, start_offset: int, *batches: StateBatch) -> ShareSnapshot:
    return ShareSnapshot(
        snapshot_epoch=snapshot_epoch, state_epoch=2, leader_epoch=0, start_offset=start_offset, state_batches=batches
    )


def of_states(*values: ShareSnapshot | ShareUpdate | None) -> tuple[list[StateRow], ImportSummary]:
    """The rows of a share-partition whose records have these values."""
    return imported(
        kafka_history(
            LogRecord(STATE_TOPIC, 0, offset, offset, *share_state_records.encoded(ShareStateRecord(KEY, value)))
            for offset, value in enumerate(values)
        )
    )


def test_a_second_reset_of_an_empty_group_keeps_the_state_epoch_and_is_a_new_state() -> None:
    accepted = StateBatch(0, 9, 1, RecordState.ACKNOWLEDGED)
    later = StateBatch(20, 24, 2, RecordState.ACKNOWLEDGED)
    update = ShareUpdate(snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=(accepted, later))
    for start_offset in (5, 15):
        rows, _ = of_states(snapshot(0, -1), update, snapshot(1, start_offset))
        (partition,) = fold(rows).groups["packers"].partitions.values()
        engine = partition.share_partition
        assert (engine.start_offset, list(engine.runs)) == (start_offset, [])
        assert verify(rows, BrokerConfig()).findings == []


def test_a_snapshot_instead_of_an_update_continues_the_state() -> None:
    released, accepted = (
        StateBatch(0, 0, 1, RecordState.AVAILABLE),
        StateBatch(1, 9, 1, RecordState.ACKNOWLEDGED),
    )
    update = ShareUpdate(snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=(released,))
    rows, _ = of_states(snapshot(0, -1), update, snapshot(1, 0, released, accepted), None)
    assert [row.replaces_state(2) for row in rows] == [True, False, False, False]
    assert [(entry.first_offset, entry.to_state.name) for entry in rows[2].transitions] == [(1, "ACKNOWLEDGED")]
    assert fold(rows).groups == {}
    assert verify(rows, BrokerConfig()).findings == []
