"""The bytes of the records that Kafka's coordinators keep in their internal topics.

A key is an int16 record type and the key's fields in the older encoding; a value is an int16 version and the value's
fields in the flexible one. A null value deletes what the key names.

Kafka 4.0, in which share groups were an early access, wrote other fields under the same version 0. Bytes that do not
follow the fields of 4.1 to 4.3 are read by those of 4.0; no bytes follow both, since their lengths differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sharegroup.errors import KafkaRecordError, UnsupportedFormatVersionError
from sharegroup.protocol.kafka_encoding import INT16, BytesReader, Encoding, Struct, UnknownTaggedField

VALUE_VERSION = 0
"""The only version of the values that Kafka 4.0 to 4.3 writes."""


class RecordSchema(NamedTuple):
    """The fields of one record type.

    Attributes:
        early_value: fields of the value in Kafka 4.0, if they were others.
    """

    key: Struct
    value: Struct
    early_value: Struct | None = None


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator.

    Attributes:
        value: its value; None deletes.
        unknown_tagged_fields: tagged fields of the value that this release does not know.
        is_early: True if the value has the fields of Kafka 4.0.
    """

    record_type: int
    key: Any
    value: Any
    unknown_tagged_fields: tuple[UnknownTaggedField, ...] = ()
    is_early: bool = False


class CoordinatorRecordCodec:
    """The record types of one coordinator.

    Args:
        name: what the records are about, for errors.
        schemas: record type → its fields.
    """

    def __init__(self, name: str, schemas: Mapping[int, RecordSchema]) -> None:
        self._name = name
        self._schemas = schemas

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return key and value as Kafka writes them.

        Raises:
            KafkaRecordError: a value does not fit its field; names the field.
        """
        schema = self._schemas[record.record_type]
        older = Encoding(is_flexible=False)
        key = INT16.encode(record.record_type, older) + schema.key.encode(record.key, older)
        if record.value is None:
            return key, None
        flexible = Encoding(is_flexible=True, unknown_tagged_fields=record.unknown_tagged_fields)
        fields = schema.early_value if record.is_early and schema.early_value is not None else schema.value
        return key, INT16.encode(VALUE_VERSION, flexible) + fields.encode(record.value, flexible)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord:
        """Return the record that Kafka wrote as these bytes.

        Raises:
            UnsupportedFormatVersionError: the type of the record or the version of its value is not known.
            KafkaRecordError: the bytes do not follow the schema.
        """
        key_reader = BytesReader(key, is_flexible=False)
        record_type = INT16.decode(key_reader)
        schema = self._schemas.get(record_type)
        if schema is None:
            raise UnsupportedFormatVersionError(
                f"Record type {record_type} of {self._name} is not known; this release reads {_listed(self._schemas)}."
            )
        key_fields = schema.key.decode(key_reader)
        key_reader.check_end()
        if value is None:
            return CoordinatorRecord(record_type, key_fields, None)
        version = INT16.decode(BytesReader(value, is_flexible=True))
        if version != VALUE_VERSION:
            raise UnsupportedFormatVersionError(
                f"A value of {self._name}, record type {record_type}, has version {version}; this release reads "
                f"{VALUE_VERSION}."
            )
        try:
            fields, unknown = _fields(schema.value, value)
            return CoordinatorRecord(record_type, key_fields, fields, unknown)
        except KafkaRecordError:
            if schema.early_value is None:
                raise
            early = _early_fields(schema.early_value, value)
            if early is None:
                raise
        return CoordinatorRecord(record_type, key_fields, *early, is_early=True)


def _fields(struct: Struct, value: bytes) -> tuple[Any, tuple[UnknownTaggedField, ...]]:
    """Return the fields of a value, and its tagged fields that are not known."""
    reader = BytesReader(value, is_flexible=True)
    INT16.decode(reader)
    fields = struct.decode(reader)
    reader.check_end()
    return fields, tuple(reader.unknown_tagged_fields)


def _early_fields(struct: Struct, value: bytes) -> tuple[Any, tuple[UnknownTaggedField, ...]] | None:
    """Return the fields of a value of Kafka 4.0; None if it is not one."""
    try:
        return _fields(struct, value)
    except KafkaRecordError:
        return None


def record_type_of(key: bytes) -> int:
    """Return the record type in a key.

    Raises:
        KafkaRecordError: the key has fewer than two bytes.
    """
    return INT16.decode(BytesReader(key, is_flexible=False))


def _listed(record_types: Iterable[int]) -> str:
    return ", ".join(str(record_type) for record_type in sorted(record_types))
