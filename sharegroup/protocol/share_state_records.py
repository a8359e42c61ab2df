"""The records of Kafka's topic `__share_group_state`, and their bytes (spec 002, "Persistent: ShareSnapshotValue").

A key is an int16 record type and the key's fields in the older encoding; a value is an int16 version and the value's
fields in the flexible one. A tombstone has the key of a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import KafkaRecordError, UnsupportedFormatVersionError
from sharegroup.protocol.kafka_encoding import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    BytesReader,
    Field,
    Struct,
    enumeration,
)

VALUE_VERSION = 0
"""The only version of a value that Kafka has."""
UNKNOWN_COUNT = -1
"""Delivery-complete count that nobody has told."""


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
        leader_epoch: epoch of the share-partition's leader.
        start_offset: the SPSO; -1 when it is not known yet.
        delivery_complete_count: finished records at or above the SPSO (KIP-1226); -1 when not known.
        create_timestamp: when the state was created; epoch ms.
        write_timestamp: when it was written, or rewritten because it was cold; epoch ms.
        state_batches: ascending, at or above the SPSO.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdate:
    """What changed since the record before; the fields mean what those of a snapshot do.

    Attributes:
        snapshot_epoch: that of the last snapshot.
        leader_epoch: epoch of the share-partition's leader; -1 leaves it as it is.
        start_offset: the SPSO; -1 leaves it as it is.
        delivery_complete_count: finished records at or above the SPSO.
        state_batches: those that changed.
    """

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    state_batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareStateRecord:
    """A record of the topic; without a value it says that the state is deleted."""

    key: SharePartitionKey
    value: ShareSnapshot | ShareUpdate | None


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
_SNAPSHOT_TYPE, _UPDATE_TYPE = 0, 1
_VALUES = {_SNAPSHOT_TYPE: _SNAPSHOT, _UPDATE_TYPE: _UPDATE}


def encoded(record: ShareStateRecord) -> tuple[bytes, bytes | None]:
    """Key and value as Kafka writes them; the value of a tombstone is None.

    Raises:
        KafkaRecordError: a value does not fit its field; names the field.
    """
    record_type = _UPDATE_TYPE if isinstance(record.value, ShareUpdate) else _SNAPSHOT_TYPE
    key = INT16.encode(record_type, is_flexible=False) + _KEY.encode(record.key, is_flexible=False)
    if record.value is None:
        return key, None
    version = INT16.encode(VALUE_VERSION, is_flexible=True)
    return key, version + _VALUES[record_type].encode(record.value, is_flexible=True)


def decoded(key: bytes, value: bytes | None) -> ShareStateRecord:
    """The record that Kafka wrote as these bytes.

    Raises:
        UnsupportedFormatVersionError: the type of the record or the version of its value is not known.
        KafkaRecordError: the bytes do not follow the schema.
    """
    key_reader = BytesReader(key)
    record_type = INT16.decode(key_reader, is_flexible=False)
    if record_type not in _VALUES:
        raise UnsupportedFormatVersionError(f"Record type {record_type} of the share-group state is not known.")
    partition_key: SharePartitionKey = _KEY.decode(key_reader, is_flexible=False)
    key_reader.check_end()
    return ShareStateRecord(partition_key, _decoded_value(record_type, value))


def _decoded_value(record_type: int, value: bytes | None) -> ShareSnapshot | ShareUpdate | None:
    if value is None:
        if record_type != _SNAPSHOT_TYPE:
            raise KafkaRecordError("An update has no value; what deletes a state has the key of a snapshot.")
        return None
    reader = BytesReader(value)
    version = INT16.decode(reader, is_flexible=True)
    if version != VALUE_VERSION:
        raise UnsupportedFormatVersionError(
            f"A value of the share-group state has version {version}; this release reads {VALUE_VERSION}."
        )
    state: ShareSnapshot | ShareUpdate = _VALUES[record_type].decode(reader, is_flexible=True)
    reader.check_end()
    return state
