"""The byte encoding of Kafka's generated messages, driven by tables of fields (KIP-482, "Unsigned varints", "Tags").

A message is a `Struct`: named fields with types, in the order in which they are written. In the *flexible* encoding
a length n is the unsigned varint n + 1, so that 0 can mean null, and every struct ends with its tagged fields. In the
older encoding strings have an int16 length and nothing is tagged.

A tagged field that is not in the table is of a later release: its bytes are kept, and written again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from sharegroup.errors import KafkaRecordError

_UUID_LENGTH = 16
_VARINT_MAX_LENGTH = 5


@dataclass(frozen=True, slots=True)
class UnknownTaggedField:
    """A tagged field that the table of its struct does not have.

    Attributes:
        struct_index: number of its struct: 0 is the message, then the structs in it in the order of their bytes.
    """

    struct_index: int
    tag: int
    value: bytes

    def __str__(self) -> str:
        return f"tagged field {self.tag} of struct {self.struct_index} ({len(self.value)} bytes)"


class BytesReader:
    """Bytes that are read from the front to the end.

    Attributes:
        struct_count: structs that began so far.
        unknown_tagged_fields: the tagged fields so far that no table has.
    """

    def __init__(self, encoded: bytes, is_flexible: bool) -> None:
        self._encoded = encoded
        self._position = 0
        self.is_flexible = is_flexible
        self.struct_count = 0
        self.unknown_tagged_fields: list[UnknownTaggedField] = []

    def check_end(self) -> None:
        """Check that no bytes are left.

        Raises:
            KafkaRecordError: some are.
        """
        if self._position != len(self._encoded):
            raise KafkaRecordError(f"{len(self._encoded) - self._position} bytes are left behind the record.")

    def take(self, length: int) -> bytes:
        """Read the next bytes.

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
        """Read the next unsigned varint: seven bits per byte, the lowest first."""
        value = 0
        for shift in range(0, 7 * _VARINT_MAX_LENGTH, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise KafkaRecordError(f"A varint is longer than {_VARINT_MAX_LENGTH} bytes.")


def unsigned_varint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Encoding:
    """The encoding of one message that is written.

    Args:
        unknown_tagged_fields: tagged fields that no table has, as a reader kept them.

    Attributes:
        struct_count: structs that began so far.
    """

    def __init__(self, is_flexible: bool, unknown_tagged_fields: Iterable[UnknownTaggedField] = ()) -> None:
        self.is_flexible = is_flexible
        self.struct_count = 0
        self._unknown: dict[int, dict[int, bytes]] = {}
        for field in unknown_tagged_fields:
            self._unknown.setdefault(field.struct_index, {})[field.tag] = field.value

    def unknown_of(self, struct_index: int) -> dict[int, bytes]:
        """Return tag → bytes of the unknown tagged fields of a struct."""
        return self._unknown.get(struct_index, {})


class Type(Protocol):
    """Byte encoding of the values of one type."""

    def encode(self, value: Any, encoding: Encoding) -> bytes:
        """Return the bytes of a value."""

    def decode(self, reader: BytesReader) -> Any:
        """Read the next value."""


@dataclass(frozen=True, slots=True)
class Int:
    """An integer, big endian; `make` converts it to the value that it represents."""

    bits: int
    make: Callable[[int], int] = int
    is_signed: bool = True

    def encode(self, value: int, encoding: Encoding) -> bytes:
        """Return the bytes of a value."""
        try:
            return int(value).to_bytes(self.bits // 8, signed=self.is_signed)
        except OverflowError:
            raise KafkaRecordError(f"{value} does not fit into {self.bits} bits.") from None

    def decode(self, reader: BytesReader) -> int:
        """Read the next value."""
        value = int.from_bytes(reader.take(self.bits // 8), signed=self.is_signed)
        try:
            return self.make(value)
        except ValueError as error:
            raise KafkaRecordError(f"{error}.") from None


INT8, INT16, INT32, INT64 = Int(8), Int(16), Int(32), Int(64)
UINT16 = Int(16, is_signed=False)


def enumeration(values: type[IntEnum]) -> Int:
    """Return the type of an int8 that represents a member of an enumeration."""
    return Int(8, values)


@dataclass(frozen=True, slots=True)
class String:
    """UTF-8 text that is not null."""

    def encode(self, value: str, encoding: Encoding) -> bytes:
        """Return the bytes of a value."""
        encoded = value.encode()
        length = unsigned_varint(len(encoded) + 1) if encoding.is_flexible else INT16.encode(len(encoded), encoding)
        return length + encoded

    def decode(self, reader: BytesReader) -> str:
        """Read the next value."""
        text = self.decode_if_present(reader)
        if text is None:
            raise KafkaRecordError("A string is null.")
        return text

    def decode_if_present(self, reader: BytesReader) -> str | None:
        """Read the next value; None if it is null."""
        length = reader.unsigned_varint() - 1 if reader.is_flexible else INT16.decode(reader)
        if length == -1:
            return None
        try:
            return reader.take(length).decode()
        except UnicodeDecodeError as error:
            raise KafkaRecordError(f"A string is not UTF-8: {error}.") from None


STRING = String()


@dataclass(frozen=True, slots=True)
class NullableString:
    """UTF-8 text, or None."""

    def encode(self, value: str | None, encoding: Encoding) -> bytes:
        """Return the bytes of a value."""
        if value is not None:
            return STRING.encode(value, encoding)
        return unsigned_varint(0) if encoding.is_flexible else INT16.encode(-1, encoding)

    def decode(self, reader: BytesReader) -> str | None:
        """Read the next value."""
        return STRING.decode_if_present(reader)


NULLABLE_STRING = NullableString()


@dataclass(frozen=True, slots=True)
class Uuid:
    """16 bytes, shown as Kafka shows them: URL-safe base64 without padding, 22 characters."""

    def encode(self, value: str, encoding: Encoding) -> bytes:
        """Return the bytes of a value."""
        try:
            encoded = base64.urlsafe_b64decode(value + "==")
        except (binascii.Error, ValueError):
            encoded = b""
        if len(encoded) != _UUID_LENGTH:
            raise KafkaRecordError(f"{value!r} is not a UUID in base64.")
        return encoded

    def decode(self, reader: BytesReader) -> str:
        """Read the next value."""
        return base64.urlsafe_b64encode(reader.take(_UUID_LENGTH)).rstrip(b"=").decode("ascii")


UUID = Uuid()


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type, not null; read as a tuple."""

    element: Type

    def encode(self, value: Any, encoding: Encoding) -> bytes:
        """Return the bytes of a value."""
        length = unsigned_varint(len(value) + 1) if encoding.is_flexible else INT32.encode(len(value), encoding)
        return length + b"".join(self.element.encode(element, encoding) for element in value)

    def decode(self, reader: BytesReader) -> tuple[Any, ...]:
        """Read the next value."""
        length = reader.unsigned_varint() - 1 if reader.is_flexible else INT32.decode(reader)
        if length < 0:
            raise KafkaRecordError("An array is null.")
        return tuple(self.element.decode(reader) for _ in range(length))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    Attributes:
        name: attribute of the object that the struct describes.
        tag: number of a tagged field, None of any other.
        default: value that a tagged field has when it is not written.
    """

    name: str
    type: Type
    tag: int | None = None
    default: Any = None


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields, in order; `make` creates the object from them.

    Attributes:
        make: called with the fields by name.
        fields: the fields; tagged ones may stand anywhere, and are written at the end by ascending tag.
    """

    make: Callable[..., Any]
    fields: tuple[Field, ...]

    def encode(self, value: Any, encoding: Encoding) -> bytes:
        """Return the bytes of an object.

        Raises:
            KafkaRecordError: a value does not fit its field; names the field.
        """
        struct_index = encoding.struct_count
        encoding.struct_count += 1
        encoded = b"".join(self._encoded_field(field, value, encoding) for field in self.fields if field.tag is None)
        if not encoding.is_flexible:
            return encoded
        return encoded + self._tagged_section(value, encoding, encoding.unknown_of(struct_index))

    def decode(self, reader: BytesReader) -> Any:
        """Read the next object; the reader keeps tagged fields that are not in the table."""
        struct_index = reader.struct_count
        reader.struct_count += 1
        values = {
            field.name: field.default if field.tag is not None else field.type.decode(reader) for field in self.fields
        }
        if reader.is_flexible:
            self._read_tagged_section(reader, struct_index, values)
        return self.make(**values)

    def _read_tagged_section(self, reader: BytesReader, struct_index: int, values: dict[str, Any]) -> None:
        tagged = {field.tag: field for field in self.fields if field.tag is not None}
        for _ in range(reader.unsigned_varint()):
            tag = reader.unsigned_varint()
            encoded = reader.take(reader.unsigned_varint())
            field = tagged.get(tag)
            if field is None:
                reader.unknown_tagged_fields.append(UnknownTaggedField(struct_index, tag, encoded))
            else:
                values[field.name] = field.type.decode(BytesReader(encoded, is_flexible=True))

    def _encoded_field(self, field: Field, value: Any, encoding: Encoding) -> bytes:
        try:
            return field.type.encode(getattr(value, field.name), encoding)
        except KafkaRecordError as error:
            raise KafkaRecordError(f"{field.name}: {error.message}") from None

    def _tagged_section(self, value: Any, encoding: Encoding, unknown: dict[int, bytes]) -> bytes:
        written = {
            field.tag: self._encoded_field(field, value, encoding)
            for field in self.fields
            if field.tag is not None and getattr(value, field.name) != field.default
        } | unknown
        sections = (
            unsigned_varint(tag) + unsigned_varint(len(encoded)) + encoded for tag, encoded in sorted(written.items())
        )
        return unsigned_varint(len(written)) + b"".join(sections)
