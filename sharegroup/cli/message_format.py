"""How a consumed message is printed: as by Kafka's `DefaultMessageFormatter`, or as one line of JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sharegroup.cli.deserializers import Deserializer, deserializer_named
from sharegroup.cli.properties import as_bool, check_known
from sharegroup.client.message import Message, MessageHeaders

_PRINTED = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
"""What a line may hold, in its order."""
_SEPARATORS = {"key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null"}
_DESERIALIZED = ("key", "value", "headers")
_TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}

FORMATTER_PROPERTIES = (
    *(f"print.{what}" for what in _PRINTED),
    *_SEPARATORS,
    *(f"{what}.deserializer" for what in _DESERIALIZED),
)
"""All properties, under Kafka's names."""


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """What a line holds of a message.

    Attributes:
        printed: parts of the line, of `_PRINTED`.
        separators: property → text.
        deserializers: key, value, headers → how their bytes become text.
    """

    printed: tuple[str, ...]
    separators: Mapping[str, bytes]
    deserializers: Mapping[str, Deserializer]

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """The format that properties of Kafka's formatter describe.

        Raises:
            ConfigurationError: a property is unknown, or its value not acceptable.
        """
        check_known(properties, FORMATTER_PROPERTIES, "formatter")
        return cls(
            tuple(what for what in _PRINTED if as_bool(properties, f"print.{what}", what == "value")),
            {key: properties.get(key, default).encode() for key, default in _SEPARATORS.items()},
            {
                what: deserializer_named(properties[f"{what}.deserializer"])
                for what in _DESERIALIZED
                if f"{what}.deserializer" in properties
            },
        )

    def line(self, message: Message) -> bytes:
        """The line of a message, with its end; nothing when nothing is to be printed.

        Raises:
            ShareGroupError: a deserializer does not understand the bytes.
        """
        if not self.printed:
            return b""
        parts = [self._part(what, message) for what in self.printed]
        return self.separators["key.separator"].join(parts) + self.separators["line.separator"]

    def _part(self, what: str, message: Message) -> bytes:
        match what:
            case "timestamp":
                kind, timestamp_ms = message.timestamp()
                return f"{_TIMESTAMP_TYPES[kind]}:{timestamp_ms}".encode() if kind else b"NO_TIMESTAMP"
            case "partition":
                return f"Partition:{message.partition()}".encode()
            case "offset":
                return f"Offset:{message.offset()}".encode()
            case "delivery":
                return f"Delivery:{_or_not_present(message.delivery_count())}".encode()
            case "epoch":
                return f"Epoch:{_or_not_present(message.leader_epoch())}".encode()
            case "headers":
                return self._headers(message.headers())
            case "key":
                return self._text("key", message.key())
            case _:
                return self._text("value", message.value())

    def _headers(self, headers: MessageHeaders | None) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        pairs = (f"{key}:".encode() + self._text("headers", value) for key, value in headers)
        return self.separators["headers.separator"].join(pairs)

    def _text(self, what: str, data: object) -> bytes:
        found = data if isinstance(data, bytes) else self.separators["null.literal"]
        return self.deserializers[what](found) if what in self.deserializers else found


def json_line(message: Message) -> bytes:
    """A message as one line of JSON; bytes that are not UTF-8 become `{"base64": …}`."""
    kind, timestamp_ms = message.timestamp()
    document = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_type": _TIMESTAMP_TYPES.get(kind),
        "timestamp_ms": timestamp_ms if kind else None,
        "delivery_count": message.delivery_count(),
        "key": _as_json(message.key()),
        "value": _as_json(message.value()),
        "headers": [[key, _as_json(value)] for key, value in message.headers() or ()],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _as_json(data: object) -> object:
    if not isinstance(data, bytes):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _or_not_present(value: int | None) -> str:
    return "NOT_PRESENT" if value is None else str(value)
