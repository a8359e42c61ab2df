"""Kafka's records of share groups: real bytes read and written again, any record there and back."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import KafkaRecordError, UnsupportedFormatVersionError
from sharegroup.protocol import share_state_records
from sharegroup.protocol.kafka_encoding import UnknownTaggedField
from sharegroup.protocol.share_group_records import (
    CurrentMemberAssignment,
    GroupKey,
    GroupRecordType,
    GroupRecordValue,
    MemberKey,
    MemberMetadata,
    Metadata,
    ShareGroupRecord,
    StatePartitionMetadata,
    TargetAssignmentMember,
    TargetAssignmentMetadata,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
    decoded,
    encoded,
    is_share_group_record,
)
from sharegroup.protocol.share_state_records import SharePartitionKey, ShareSnapshot, ShareStateRecord, ShareUpdate
from tests.protocol.test_share_state_records import BATCHES, UUIDS, ints
from tests.support.kafka_dump import DUMP, RESTARTED, key_and_value, lines


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(value: Any) -> Any:
    """Fields as Kafka's own JSON converters write them."""
    if isinstance(value, dict):
        return {camel_case(name): as_json(field) for name, field in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list | tuple) else value


def test_each_record_of_a_broker_is_read_as_kafka_reads_it_and_written_as_it_was() -> None:
    seen = set()
    for line in lines(DUMP, "consumer_offsets_share_groups"):
        record = decoded(*key_and_value(line))
        seen.add((record.record_type, record.value is None))
        value = line["decoded"]["value"]
        assert line["decoded"]["key"] == {"type": record.record_type, "data": as_json(asdict(record.key))}
        assert (record.value and as_json(asdict(record.value))) == (value and value["data"])
        assert encoded(record) == key_and_value(line)
    assert {record_type for record_type, _ in seen} == set(GroupRecordType)
    assert {record_type for record_type, is_tombstone in seen if is_tombstone} == set(GroupRecordType)


@pytest.mark.parametrize("folder", [DUMP, RESTARTED], ids=["whole", "restarted"])
def test_each_state_record_of_a_broker_is_written_as_it_was(folder: Any) -> None:
    for line in lines(folder, "share_group_state"):
        assert share_state_records.encoded(share_state_records.decoded(*key_and_value(line))) == key_and_value(line)


TEXTS = st.text(max_size=300)
PARTITIONS = st.lists(ints(32), max_size=5).map(tuple)
TOPIC_PARTITIONS = st.lists(st.builds(TopicPartitions, UUIDS, PARTITIONS), max_size=3).map(tuple)
INFOS = st.lists(st.builds(TopicPartitionsInfo, UUIDS, TEXTS, PARTITIONS), max_size=3).map(tuple)
VALUES: dict[GroupRecordType, st.SearchStrategy[GroupRecordValue]] = {
    GroupRecordType.MEMBER_METADATA: st.builds(
        MemberMetadata,
        rack_id=st.none() | TEXTS,
        client_id=TEXTS,
        client_host=TEXTS,
        subscribed_topic_names=st.lists(TEXTS, max_size=3).map(tuple),
    ),
    GroupRecordType.METADATA: st.builds(Metadata, epoch=ints(32), metadata_hash=ints(64)),
    GroupRecordType.TARGET_ASSIGNMENT_METADATA: st.builds(
        TargetAssignmentMetadata, assignment_epoch=ints(32), assignment_timestamp=ints(64)
    ),
    GroupRecordType.TARGET_ASSIGNMENT_MEMBER: st.builds(TargetAssignmentMember, TOPIC_PARTITIONS),
    GroupRecordType.CURRENT_MEMBER_ASSIGNMENT: st.builds(
        CurrentMemberAssignment,
        member_epoch=ints(32),
        previous_member_epoch=ints(32),
        state=ints(8),
        assigned_partitions=TOPIC_PARTITIONS,
    ),
    GroupRecordType.STATE_PARTITION_METADATA: st.builds(
        StatePartitionMetadata,
        initializing_topics=INFOS,
        initialized_topics=INFOS,
        deleting_topics=st.lists(st.builds(TopicInfo, UUIDS, TEXTS), max_size=3).map(tuple),
    ),
}
OF_MEMBERS = {
    GroupRecordType.MEMBER_METADATA,
    GroupRecordType.TARGET_ASSIGNMENT_MEMBER,
    GroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
}


@st.composite
def records(draw: st.DrawFn) -> ShareGroupRecord:
    record_type = draw(st.sampled_from(GroupRecordType))
    key: GroupKey | MemberKey = GroupKey(draw(TEXTS))
    if record_type in OF_MEMBERS:
        key = MemberKey(key.group_id, draw(TEXTS))
    return ShareGroupRecord(record_type, key, draw(st.none() | VALUES[record_type]))


@given(records())
def test_every_record_comes_back(record: ShareGroupRecord) -> None:
    assert decoded(*encoded(record)) == record
    assert is_share_group_record(encoded(record)[0])


def test_tagged_fields_of_a_later_release_are_kept_in_each_struct() -> None:
    topics = (TopicPartitionsInfo("EREREREREREiIiIiIiIiIg", "orders", (0, 1)),)
    unknown = (UnknownTaggedField(0, 9, b"later"), UnknownTaggedField(1, 3, b""))
    record = ShareGroupRecord(
        GroupRecordType.STATE_PARTITION_METADATA,
        GroupKey("packers"),
        StatePartitionMetadata(initialized_topics=topics),
        unknown,
    )
    key, value = encoded(record)
    assert value is not None
    read = decoded(key, value)
    assert (read.value, set(read.unknown_tagged_fields)) == (record.value, set(unknown))
    assert encoded(read) == (key, value)
    assert str(unknown[0]) == "tagged field 9 of struct 0 (5 bytes)"


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(key: bytes, value: bytes | None) -> None:
    try:
        record = decoded(b"\x00\x0f" + key, value and b"\x00\x00" + value)
    except (KafkaRecordError, UnsupportedFormatVersionError):
        return
    assert decoded(*encoded(record)) == record


@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        ("0009000161", None, UnsupportedFormatVersionError, "type 9 of share groups is not known; .* 10, 11"),
        ("000b000161", "0001", UnsupportedFormatVersionError, "record type 11, has version 1"),
        ("000b000161", "0000000000", KafkaRecordError, "more are due"),
        ("000bffff", None, KafkaRecordError, "A string is null"),
        ("000b00016100", None, KafkaRecordError, "left behind"),
    ],
)
def test_what_is_not_known_is_refused(key: str, value: str | None, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        decoded(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


BATCH = StateBatch(10, 19, 2, RecordState.ARCHIVED)
KEY = SharePartitionKey("packers", "EREREREREREiIiIiIiIiIg", 1)
TOPIC = TopicPartitionsInfo("EREREREREREiIiIiIiIiIg", "orders", (0, 1))
SNAPSHOT = ShareSnapshot(snapshot_epoch=65_535, state_epoch=2, leader_epoch=3, start_offset=10)
UPDATE = ShareUpdate(snapshot_epoch=7, leader_epoch=3, start_offset=10)


@given(
    value=st.sampled_from([SNAPSHOT, UPDATE]),
    epochs=st.tuples(st.integers(0, 2**16 - 1), ints(32), ints(64)),
    batches=BATCHES,
)
def test_states_of_the_early_access_are_read_and_written_as_they_were(
    value: ShareSnapshot | ShareUpdate, epochs: tuple[int, int, int], batches: tuple[StateBatch, ...]
) -> None:
    """As Kafka 4.0 wrote them, by the message definitions in its jars."""
    snapshot_epoch, leader_epoch, start_offset = epochs
    state = replace(value, snapshot_epoch=snapshot_epoch, leader_epoch=leader_epoch, start_offset=start_offset)
    record = ShareStateRecord(KEY, replace(state, state_batches=batches), is_early=True)
    assert share_state_records.decoded(*share_state_records.encoded(record)) == record


@pytest.mark.parametrize(
    ("record_type", "value"),
    [
        (GroupRecordType.METADATA, Metadata(epoch=3)),
        *(
            (
                GroupRecordType.STATE_PARTITION_METADATA,
                StatePartitionMetadata(initialized_topics=topics, deleting_topics=deleted),
            )
            for topics in [(), (TOPIC,)]
            for deleted in [(), (TopicInfo("EREREREREREiIiIiIiIiIg", "orders"),)]
        ),
    ],
)
def test_groups_of_the_early_access_are_read_and_written_as_they_were(
    record_type: GroupRecordType, value: Metadata | StatePartitionMetadata
) -> None:
    record = ShareGroupRecord(record_type, GroupKey("packers"), value, is_early=True)
    assert decoded(*encoded(record)) == record


def test_an_early_snapshot_has_the_bytes_of_its_schema() -> None:
    record = ShareStateRecord(KEY, replace(SNAPSHOT, state_batches=(BATCH,)), is_early=True)
    _, value = share_state_records.encoded(record)
    assert value is not None
    head = "0000 ffff 00000002 00000003 000000000000000a 02"
    batch = "000000000000000a 0000000000000013 04 0002 00"
    assert value == bytes.fromhex(f"{head} {batch} 00")
