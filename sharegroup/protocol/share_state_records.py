"""The records of Kafka's topic `__share_group_state`, and their bytes (spec 002, "Persistent: ShareSnapshotValue").

A tombstone has the key of a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import KafkaRecordError
from sharegroup.protocol.kafka_coordinator_records import CoordinatorRecord, CoordinatorRecordCodec, RecordSchema
from sharegroup.protocol.kafka_encoding import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Struct,
    UnknownTaggedField,
    enumeration,
)

STATE_TOPIC = "__share_group_state"
"""Kafka's topic of the records."""
UNKNOWN_COUNT = -1
"""Delivery-complete count that is not known."""


@dataclass(frozen=True, slots=True, order=True)
class SharePartitionKey:
    """The share-partition that a record is about; `topic_id` in Kafka's base64 form."""

    group_id: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshot:
    """The whole persisted state of a share-partition.

    Attributes:
        snapshot_epoch: number of the snapshot, from 0.
        state_epoch: fencing epoch of the state.
        start_offset: the SPSO; -1 when it is not known yet.
        delivery_complete_count: finished records at or above the SPSO (KIP-1226); -1 when not known.
        create_timestamp: when the state was created; epoch ms, -1 when not known.
        write_timestamp: when it was written, or rewritten because it was cold; epoch ms, -1 when not known.
        state_batches: ascending, at or above the SPSO.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    create_timestamp: int = -1
    write_timestamp: int = -1
    state_batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdate:
    """Changes since the previous record; the fields have the meaning of those of a snapshot.

    Attributes:
        snapshot_epoch: that of the last snapshot.
        leader_epoch: epoch of the share-partition's leader; -1 leaves it as it is.
        start_offset: the SPSO; -1 leaves it as it is.
        state_batches: those that changed.
    """

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    state_batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareStateRecord:
    """A record of the topic; without a value it deletes the state.

    Attributes:
        unknown_tagged_fields: tagged fields of a later release of Kafka.
        is_early: True if Kafka 4.0 wrote it, without times and with other bytes.
    """

    key: SharePartitionKey
    value: ShareSnapshot | ShareUpdate | None
    unknown_tagged_fields: tuple[UnknownTaggedField, ...] = ()
    is_early: bool = False


_KEY = Struct(
    SharePartitionKey,
    (
        Field("group_id", STRING),
        Field("topic_id", UUID),
        Field("partition", INT32),
    ),
)
_STATE_BATCH = Struct(
    StateBatch,
    (
        Field("first_offset", INT64),
        Field("last_offset", INT64),
        Field("delivery_state", enumeration(RecordState)),
        Field("delivery_count", INT16),
    ),
)
_SNAPSHOT = Struct(
    ShareSnapshot,
    (
        Field("snapshot_epoch", INT32),
        Field("state_epoch", INT32),
        Field("leader_epoch", INT32),
        Field("start_offset", INT64),
        Field("delivery_complete_count", INT32, tag=0, default=UNKNOWN_COUNT),
        Field("create_timestamp", INT64),
        Field("write_timestamp", INT64),
        Field("state_batches", Array(_STATE_BATCH)),
    ),
)
_UPDATE = Struct(
    ShareUpdate,
    (
        Field("snapshot_epoch", INT32),
        Field("leader_epoch", INT32),
        Field("start_offset", INT64),
        Field("delivery_complete_count", INT32, tag=0, default=UNKNOWN_COUNT),
        Field("state_batches", Array(_STATE_BATCH)),
    ),
)
_EARLY_SNAPSHOT = Struct(
    ShareSnapshot,
    (
        Field("snapshot_epoch", UINT16),
        Field("state_epoch", INT32),
        Field("leader_epoch", INT32),
        Field("start_offset", INT64),
        Field("state_batches", Array(_STATE_BATCH)),
    ),
)
_EARLY_UPDATE = Struct(
    ShareUpdate,
    (
        Field("snapshot_epoch", UINT16),
        Field("leader_epoch", INT32),
        Field("start_offset", INT64),
        Field("state_batches", Array(_STATE_BATCH)),
    ),
)
_SNAPSHOT_TYPE, _UPDATE_TYPE = 0, 1
_CODEC = CoordinatorRecordCodec(
    "the share-group state",
    {
        _SNAPSHOT_TYPE: RecordSchema(_KEY, _SNAPSHOT, _EARLY_SNAPSHOT),
        _UPDATE_TYPE: RecordSchema(_KEY, _UPDATE, _EARLY_UPDATE),
    },
)


def encoded(record: ShareStateRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as Kafka writes them; the value of a tombstone is None.

    Raises:
        KafkaRecordError: a value does not fit its field; names the field.
    """
    record_type = _UPDATE_TYPE if isinstance(record.value, ShareUpdate) else _SNAPSHOT_TYPE
    return _CODEC.encode(
        CoordinatorRecord(record_type, record.key, record.value, record.unknown_tagged_fields, record.is_early)
    )


def decoded(key: bytes, value: bytes | None) -> ShareStateRecord:
    """Return the record that Kafka wrote as these bytes.

    Raises:
        UnsupportedFormatVersionError: the type of the record or the version of its value is not known.
        KafkaRecordError: the bytes do not follow the schema.
    """
    record = _CODEC.decode(key, value)
    if record.value is None and record.record_type != _SNAPSHOT_TYPE:
        raise KafkaRecordError("An update has no value; a tombstone has the key of a snapshot.")
    return ShareStateRecord(record.key, record.value, record.unknown_tagged_fields, record.is_early)
