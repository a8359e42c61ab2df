"""The byte encoding of Kafka's generated messages, driven by tables of fields (KIP-482, "Unsigned varints", "Tags").

A message is a `Struct`: named fields with types, in the order in which they are written. In the *flexible* encoding
lengths are unsigned varints, one too high so that 0 can mean null, and every struct ends with its tagged fields. In
the older encoding strings have an int16 length and nothing is tagged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from sharegroup.errors import KafkaRecordError

_UUID_LENGTH = 16
_VARINT_MAX_LENGTH = 5


class BytesReader:
    """Bytes that are read from the front to the end."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self._position = 0

    def check_end(self) -> None:
        """Make sure that nothing is left.

        Raises:
            KafkaRecordError: something is.
        """
        if self._position != len(self._encoded):
            raise KafkaRecordError(f"{len(self._encoded) - self._position} bytes are left behind the record.")

    def take(self, length: int) -> bytes:
        """The next bytes.

        Raises:
            KafkaRecordError: fewer are left.
        """
        end = self._position + length
        if not self._position <= end <= len(self._encoded):
            left = len(self._encoded) - self._position
            raise KafkaRecordError(f"The record ends at byte {len(self._encoded)}: {length} more are due, {left} left.")
        taken, self._position = self._encoded[self._position : end], end
        return taken

    def unsigned_varint(self) -> int:
        """The next unsigned varint: seven bits a byte, the lowest first."""
        value = 0
        for shift in range(0, 7 * _VARINT_MAX_LENGTH, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise KafkaRecordError(f"A varint is longer than {_VARINT_MAX_LENGTH} bytes.")


def unsigned_varint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Type(Protocol):
    """How values of one type become bytes."""

    def encode(self, value: Any, is_flexible: bool) -> bytes:
        """The bytes of a value."""

    def decode(self, reader: BytesReader, is_flexible: bool) -> Any:
        """The next value."""


@dataclass(frozen=True, slots=True)
class Int:
    """A signed integer, big endian; `make` turns it into what it stands for."""

    bits: int
    make: Callable[[int], int] = int

    def encode(self, value: int, is_flexible: bool) -> bytes:
        """The bytes of a value."""
        if not -(1 << self.bits - 1) <= value < 1 << self.bits - 1:
            raise KafkaRecordError(f"{value} does not fit into {self.bits} bits.")
        return int(value).to_bytes(self.bits // 8, signed=True)

    def decode(self, reader: BytesReader, is_flexible: bool) -> int:
        """The next value."""
        value = int.from_bytes(reader.take(self.bits // 8), signed=True)
        try:
            return self.make(value)
        except ValueError as error:
            raise KafkaRecordError(f"{error}.") from None


INT8, INT16, INT32, INT64 = Int(8), Int(16), Int(32), Int(64)


def enumeration(values: type[IntEnum]) -> Int:
    """An int8 that stands for a member of an enumeration."""
    return Int(8, values)


@dataclass(frozen=True, slots=True)
class String:
    """UTF-8 text that is not null."""

    def encode(self, value: str, is_flexible: bool) -> bytes:
        """The bytes of a value."""
        encoded = value.encode()
        length = unsigned_varint(len(encoded) + 1) if is_flexible else INT16.encode(len(encoded), is_flexible)
        return length + encoded

    def decode(self, reader: BytesReader, is_flexible: bool) -> str:
        """The next value."""
        length = reader.unsigned_varint() - 1 if is_flexible else INT16.decode(reader, is_flexible)
        try:
            return reader.take(length).decode()
        except UnicodeDecodeError as error:
            raise KafkaRecordError(f"A string is not UTF-8: {error}.") from None


STRING = String()


@dataclass(frozen=True, slots=True)
class Uuid:
    """16 bytes, shown as Kafka shows them: URL-safe base64 without padding, 22 characters."""

    def encode(self, value: str, is_flexible: bool) -> bytes:
        """The bytes of a value."""
        try:
            encoded = base64.urlsafe_b64decode(value + "==")
        except (binascii.Error, ValueError):
            encoded = b""
        if len(encoded) != _UUID_LENGTH:
            raise KafkaRecordError(f"{value!r} is not a UUID in base64.")
        return encoded

    def decode(self, reader: BytesReader, is_flexible: bool) -> str:
        """The next value."""
        return base64.urlsafe_b64encode(reader.take(_UUID_LENGTH)).rstrip(b"=").decode("ascii")


UUID = Uuid()


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type, not null; read as a tuple."""

    element: Type

    def encode(self, value: Any, is_flexible: bool) -> bytes:
        """The bytes of a value."""
        length = unsigned_varint(len(value) + 1) if is_flexible else INT32.encode(len(value), is_flexible)
        return length + b"".join(self.element.encode(element, is_flexible) for element in value)

    def decode(self, reader: BytesReader, is_flexible: bool) -> tuple[Any, ...]:
        """The next value."""
        length = reader.unsigned_varint() - 1 if is_flexible else INT32.decode(reader, is_flexible)
        if length < 0:
            raise KafkaRecordError("An array is null.")
        return tuple(self.element.decode(reader, is_flexible) for _ in range(length))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    Attributes:
        name: attribute of the object that the struct describes.
        type: its type.
        tag: number of a tagged field, None of any other.
        default: value that a tagged field has when it is not written.
    """

    name: str
    type: Type
    tag: int | None = None
    default: Any = None


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields, in order; `make` makes the object from them.

    Attributes:
        make: called with the fields by name.
        fields: the fields; tagged ones may stand anywhere, and are written at the end by ascending tag.
    """

    make: Callable[..., Any]
    fields: tuple[Field, ...]

    def encode(self, value: Any, is_flexible: bool) -> bytes:
        """The bytes of an object.

        Raises:
            KafkaRecordError: a value does not fit its field; names the field.
        """
        encoded = b"".join(self._encoded_field(field, value, is_flexible) for field in self.fields if field.tag is None)
        return encoded + self._tagged_section(value) if is_flexible else encoded

    def decode(self, reader: BytesReader, is_flexible: bool) -> Any:
        """The next object; tagged fields that are not in the table are passed over."""
        values = {
            field.name: field.default if field.tag is not None else field.type.decode(reader, is_flexible)
            for field in self.fields
        }
        if is_flexible:
            tagged = {field.tag: field for field in self.fields if field.tag is not None}
            for _ in range(reader.unsigned_varint()):
                field = tagged.get(reader.unsigned_varint())
                section = BytesReader(reader.take(reader.unsigned_varint()))
                if field is not None:
                    values[field.name] = field.type.decode(section, is_flexible)
        return self.make(**values)

    def _encoded_field(self, field: Field, value: Any, is_flexible: bool) -> bytes:
        try:
            return field.type.encode(getattr(value, field.name), is_flexible)
        except KafkaRecordError as error:
            raise KafkaRecordError(f"{field.name}: {error.message}") from None

    def _tagged_section(self, value: Any) -> bytes:
        written = {
            field.tag: self._encoded_field(field, value, True)
            for field in self.fields
            if field.tag is not None and getattr(value, field.name) != field.default
        }
        sections = (
            unsigned_varint(tag) + unsigned_varint(len(encoded)) + encoded for tag, encoded in sorted(written.items())
        )
        return unsigned_varint(len(written)) + b"".join(sections)
