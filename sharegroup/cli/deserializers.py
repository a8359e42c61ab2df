"""What bytes look like as text, under the names of Kafka's deserializers."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping

from sharegroup.errors import ConfigurationError, ShareGroupError

Deserializer = Callable[[bytes], bytes]
"""Serialized bytes → UTF-8 text."""

_PACKAGE = "org.apache.kafka.common.serialization."


def _number(name: str, layout: str) -> Deserializer:
    def deserialize(data: bytes) -> bytes:
        if len(data) != struct.calcsize(layout):
            raise ShareGroupError(f"{name} needs {struct.calcsize(layout)} bytes, not {len(data)}.")
        return str(struct.unpack(layout, data)[0]).encode()

    return deserialize


def _string(data: bytes) -> bytes:
    return data.decode(errors="replace").encode()


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError:
        raise ShareGroupError(f"UUIDDeserializer needs the text of a UUID, not {data!r}.") from None


_BY_NAME: dict[str, Deserializer] = {
    "StringDeserializer": _string,
    "ByteArrayDeserializer": bytes,
    "ShortDeserializer": _number("ShortDeserializer", ">h"),
    "IntegerDeserializer": _number("IntegerDeserializer", ">i"),
    "LongDeserializer": _number("LongDeserializer", ">q"),
    "FloatDeserializer": _number("FloatDeserializer", ">f"),
    "DoubleDeserializer": _number("DoubleDeserializer", ">d"),
    "UUIDDeserializer": _uuid,
}
DESERIALIZERS: Mapping[str, Deserializer] = {_PACKAGE + name: found for name, found in _BY_NAME.items()}
"""Java class name → the same in Python."""


def deserializer_named(name: str) -> Deserializer:
    """The deserializer of a Java class name.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if name not in DESERIALIZERS:
        raise ConfigurationError(f"There is no deserializer {name}.", f"Use one of {', '.join(DESERIALIZERS)}.")
    return DESERIALIZERS[name]
