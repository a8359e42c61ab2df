"""The records of share groups in Kafka's topic `__consumer_offsets`, types 10 to 15, and their bytes.

The schemas are those of Kafka 4.3.1's message definitions (`ShareGroupMemberMetadataKey.json` and others in its group
coordinator), and of Kafka 4.0's. The records of a group are written by one coordinator, so they are in one partition of
the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from sharegroup.protocol.kafka_coordinator_records import (
    CoordinatorRecord,
    CoordinatorRecordCodec,
    RecordSchema,
    record_type_of,
)
from sharegroup.protocol.kafka_encoding import (
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID,
    Array,
    Field,
    Struct,
    UnknownTaggedField,
)

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's topic of the records, which has those of all other kinds of groups, too."""


class GroupRecordType(IntEnum):
    """Record types of share groups."""

    MEMBER_METADATA = 10
    METADATA = 11
    TARGET_ASSIGNMENT_METADATA = 12
    TARGET_ASSIGNMENT_MEMBER = 13
    CURRENT_MEMBER_ASSIGNMENT = 14
    STATE_PARTITION_METADATA = 15

    @property
    def kafka_name(self) -> str:
        """Name of the record in Kafka."""
        return "ShareGroup" + "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The group that a record is about."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """The member that a record is about."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """Subscription of a member."""

    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The group epoch; `metadata_hash` is Kafka's hash of the group's topics, 0 for none."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMetadata:
    """The group epoch of the target assignment; `assignment_timestamp` is when it was made, in epoch ms, or 0."""

    assignment_epoch: int
    assignment_timestamp: int = 0


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TargetAssignmentMember:
    """The partitions that a member is to get."""

    topic_partitions: tuple[TopicPartitions, ...]


STABLE = 0
"""Number of Kafka's `MemberState` that all members of share groups have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberAssignment:
    """The partitions that a member has; `state` is a number of Kafka's `MemberState`."""

    member_epoch: int
    previous_member_epoch: int
    state: int = STABLE
    assigned_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionsInfo:
    """Share-partitions of a topic."""

    topic_id: str
    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class TopicInfo:
    """A topic."""

    topic_id: str
    topic_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePartitionMetadata:
    """Share-partitions that are getting their state, have it, or are losing it; all of the group's."""

    initializing_topics: tuple[TopicPartitionsInfo, ...] = ()
    initialized_topics: tuple[TopicPartitionsInfo, ...] = ()
    deleting_topics: tuple[TopicInfo, ...] = ()


GroupRecordValue = (
    MemberMetadata
    | Metadata
    | TargetAssignmentMetadata
    | TargetAssignmentMember
    | CurrentMemberAssignment
    | StatePartitionMetadata
)


@dataclass(frozen=True, slots=True)
class ShareGroupRecord:
    """A record of a share group.

    Attributes:
        value: its value; None deletes what the key names.
        unknown_tagged_fields: tagged fields of a later release of Kafka.
        is_early: True if Kafka 4.0 wrote it, with other fields.
    """

    record_type: GroupRecordType
    key: GroupKey | MemberKey
    value: GroupRecordValue | None
    unknown_tagged_fields: tuple[UnknownTaggedField, ...] = ()
    is_early: bool = False


_GROUP_KEY = Struct(GroupKey, (Field("group_id", STRING),))
_MEMBER_KEY = Struct(MemberKey, (Field("group_id", STRING), Field("member_id", STRING)))
_TOPIC_PARTITIONS = Struct(TopicPartitions, (Field("topic_id", UUID), Field("partitions", Array(INT32))))
_TOPIC_PARTITIONS_INFO = Struct(
    TopicPartitionsInfo, (Field("topic_id", UUID), Field("topic_name", STRING), Field("partitions", Array(INT32)))
)
_TOPIC_INFO = Struct(TopicInfo, (Field("topic_id", UUID), Field("topic_name", STRING)))
_SCHEMAS: Mapping[int, RecordSchema] = {
    GroupRecordType.MEMBER_METADATA: RecordSchema(
        _MEMBER_KEY,
        Struct(
            MemberMetadata,
            (
                Field("rack_id", NULLABLE_STRING),
                Field("client_id", STRING),
                Field("client_host", STRING),
                Field("subscribed_topic_names", Array(STRING)),
            ),
        ),
    ),
    GroupRecordType.METADATA: RecordSchema(
        _GROUP_KEY,
        Struct(Metadata, (Field("epoch", INT32), Field("metadata_hash", INT64))),
        Struct(Metadata, (Field("epoch", INT32),)),
    ),
    GroupRecordType.TARGET_ASSIGNMENT_METADATA: RecordSchema(
        _GROUP_KEY,
        Struct(
            TargetAssignmentMetadata,
            (Field("assignment_epoch", INT32), Field("assignment_timestamp", INT64, tag=0, default=0)),
        ),
    ),
    GroupRecordType.TARGET_ASSIGNMENT_MEMBER: RecordSchema(
        _MEMBER_KEY, Struct(TargetAssignmentMember, (Field("topic_partitions", Array(_TOPIC_PARTITIONS)),))
    ),
    GroupRecordType.CURRENT_MEMBER_ASSIGNMENT: RecordSchema(
        _MEMBER_KEY,
        Struct(
            CurrentMemberAssignment,
            (
                Field("member_epoch", INT32),
                Field("previous_member_epoch", INT32),
                Field("state", INT8),
                Field("assigned_partitions", Array(_TOPIC_PARTITIONS)),
            ),
        ),
    ),
    GroupRecordType.STATE_PARTITION_METADATA: RecordSchema(
        _GROUP_KEY,
        Struct(
            StatePartitionMetadata,
            (
                Field("initializing_topics", Array(_TOPIC_PARTITIONS_INFO)),
                Field("initialized_topics", Array(_TOPIC_PARTITIONS_INFO)),
                Field("deleting_topics", Array(_TOPIC_INFO)),
            ),
        ),
        Struct(
            StatePartitionMetadata,
            (Field("initialized_topics", Array(_TOPIC_PARTITIONS_INFO)), Field("deleting_topics", Array(_TOPIC_INFO))),
        ),
    ),
}
_CODEC = CoordinatorRecordCodec("share groups", _SCHEMAS)


def is_share_group_record(key: bytes) -> bool:
    """Return True if a record of the topic is a share group's, by the type in its key.

    Type 9, which only Kafka 4.0 writes, is none: it repeats the partition counts of topics.

    Raises:
        KafkaRecordError: the key has no type.
    """
    return record_type_of(key) in _SCHEMAS


def encoded(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as Kafka writes them; the value of a tombstone is None.

    Raises:
        KafkaRecordError: a value does not fit its field; names the field.
    """
    return _CODEC.encode(
        CoordinatorRecord(record.record_type, record.key, record.value, record.unknown_tagged_fields, record.is_early)
    )


def decoded(key: bytes, value: bytes | None) -> ShareGroupRecord:
    """Return the record that Kafka wrote as these bytes.

    Raises:
        UnsupportedFormatVersionError: the type of the record or the version of its value is not known.
        KafkaRecordError: the bytes do not follow the schema.
    """
    record = _CODEC.decode(key, value)
    return ShareGroupRecord(
        GroupRecordType(record.record_type), record.key, record.value, record.unknown_tagged_fields, record.is_early
    )
