"""The group reader on a state table."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.client.group_reader import GroupReader
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.errors import GroupIdNotFoundError, StateTableError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.group_records import ShareGroupMetadata, ShareGroupStatePartitionMetadata
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.state.writer import StateTableWriter


@pytest.fixture
def reader(log: LocalLog, tmp_path: Path) -> GroupReader:
    return GroupReader(log, str(tmp_path / "state"), BrokerConfig())


@pytest.fixture
def table(tmp_path: Path) -> StateTableWriter:
    return StateTableWriter.open(str(tmp_path / "state"), {})


def snapshot(group_id: str, topic_id: str, time_ms: int, accepted: int) -> StateRow:
    """The first row of a share-partition, in which a member accepted records and another acquired some."""
    changes = [
        (0, accepted - 1, RecordState.ACKNOWLEDGED, Cause.ACCEPT),
        (accepted, accepted, RecordState.ACQUIRED, Cause.ACQUIRE),
    ]
    transitions = [
        TransitionEntry(
            first_offset=first,
            last_offset=last,
            from_state=None,
            to_state=state,
            delivery_count=1,
            member_id="m-1",
            deadline_ms=0,
            cause=cause,
            time_ms=time_ms,
            request_offset=time_ms,
        )
        for first, last, state, cause in changes
    ]
    return StateRow(
        record_type=RecordType.SHARE_SNAPSHOT,
        group_id=group_id,
        topic_id=topic_id,
        topic="orders",
        partition=0,
        request_partition=0,
        request_offset=time_ms,
        time_ms=time_ms,
        start_offset=accepted,
        transitions=transitions,
    )


def metadata(group_id: str, topic_id: str) -> StateRow:
    records = [
        ShareGroupMetadata(epoch=1),
        ShareGroupStatePartitionMetadata(topic="orders", topic_id=topic_id, initialized=[0]),
    ]
    return StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id=group_id,
        request_partition=0,
        request_offset=0,
        payload={"records": [record.model_dump(mode="json") for record in records]},
    )


def test_groups_are_described_with_the_ends_of_their_logs(
    log: LocalLog, reader: GroupReader, table: StateTableWriter
) -> None:
    topic_id = log.create_topic("orders", 1).topic_id
    log.append("orders", 0, [NewRecord(None, b"v")] * 9)
    for commit_id, group_id in enumerate(("porters", "packers")):
        table.append([metadata(group_id, topic_id), snapshot(group_id, topic_id, 1, accepted=4)], commit_id)
    assert [(group.group_id, group.lag) for group in reader.groups()] == [("packers", 5), ("porters", 5)]
    assert reader.group("porters").lag == 5


def test_a_topic_that_was_deleted_or_created_again_has_no_lag(
    log: LocalLog, reader: GroupReader, table: StateTableWriter
) -> None:
    topic_id = log.create_topic("orders", 1).topic_id
    table.append([metadata("packers", topic_id), snapshot("packers", topic_id, 1, accepted=4)], 0)
    log.delete_topic("orders")
    assert reader.group("packers").lag is None
    log.create_topic("orders", 1)
    assert reader.group("packers").lag is None


def test_accepted_records_are_counted_from_a_time_on(reader: GroupReader, table: StateTableWriter) -> None:
    stored = (("packers", 1_000, 4), ("packers", 2_000, 6), ("porters", 2_000, 1))
    for commit_id, (group_id, time_ms, accepted) in enumerate(stored):
        table.append([snapshot(group_id, "id-1", time_ms, accepted)], commit_id)
    assert reader.accepted_counts(since_ms=0) == {"packers": 10, "porters": 1}
    assert reader.accepted_counts(since_ms=1_001) == {"packers": 6, "porters": 1}
    assert reader.accepted_counts(since_ms=2_001) == {}


def test_a_group_or_a_table_that_is_not_there(reader: GroupReader, tmp_path: Path) -> None:
    with pytest.raises(StateTableError, match="There is no state table at"):
        reader.groups()
    StateTableWriter.open(str(tmp_path / "state"), {})
    assert reader.groups() == []
    with pytest.raises(GroupIdNotFoundError, match="Group packers not found"):
        reader.group("packers")
