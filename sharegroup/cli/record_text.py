"""Records as lines of text, with the properties of Kafka's console tools, and as JSON."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from sharegroup.client.message import Message, MessageHeaders
from sharegroup.errors import ConfigurationError, InputLineError, ShareGroupError
from sharegroup.logs.port import Headers, NewRecord

_NULL_MARKER = "null.marker"
_READER_SEPARATORS = {
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
READER_PROPERTIES = ("parse.key", "parse.headers", *_READER_SEPARATORS, _NULL_MARKER, "ignore.error")
"""The properties of Kafka's console producer (`LineMessageReader`)."""

_PRINTED = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
"""The parts of a printed line, in their order."""
_PRINT_SEPARATORS = {"key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null"}
_DESERIALIZED = ("key", "value", "headers")
FORMATTER_PROPERTIES = (
    *(f"print.{part}" for part in _PRINTED),
    *_PRINT_SEPARATORS,
    *(f"{part}.deserializer" for part in _DESERIALIZED),
    # As the help of Kafka's tool has it.
    "header.deserializer",
)
"""The properties of Kafka's console share consumer (`DefaultMessageFormatter`)."""

_TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
_NUMBER_LAYOUTS = {"short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d"}
DATA_TYPES = ("string", "bytearray", *_NUMBER_LAYOUTS, "uuid")
"""The types that keys, values and header values can be shown as."""


class LineReader:
    """Makes records from lines: headers and key, if the properties ask for them, then the value.

    Args:
        properties: those of READER_PROPERTIES that are set.

    Raises:
        ConfigurationError: a property is unknown, a separator is empty, or two of them are equal.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        _check_known(properties, READER_PROPERTIES, "reader")
        separators = {key: properties.get(key, default) for key, default in _READER_SEPARATORS.items()}
        _check_separators({**separators, **{k: v for k, v in properties.items() if k == _NULL_MARKER}})
        self._separators = {key: text.encode() for key, text in separators.items()}
        self._has_key = _flag(properties, "parse.key")
        self._has_headers = _flag(properties, "parse.headers")
        self._is_lenient = _flag(properties, "ignore.error")
        self._null_marker = properties[_NULL_MARKER].encode() if _NULL_MARKER in properties else None

    def record(self, line: bytes, line_number: int) -> NewRecord:
        """Return the record of a line.

        Raises:
            InputLineError: the line lacks a separator, or the key of a header is not text.
        """
        key: bytes | None = None
        headers: Headers = ()
        rest = line
        if self._has_headers:
            head, rest = self._split(rest, "headers.delimiter", line_number)
            if head is not None and head != self._null_marker:
                pairs = head.split(self._separators["headers.separator"])
                headers = tuple(self._header(pair, line_number) for pair in pairs)
        if self._has_key:
            key, rest = self._split(rest, "key.separator", line_number)
        return NewRecord(self._unless_null(key), self._unless_null(rest), headers)

    def _split(self, text: bytes, name: str, line_number: int) -> tuple[bytes | None, bytes]:
        head, separator, rest = text.partition(self._separators[name])
        if separator:
            return head, rest
        if self._is_lenient:
            return None, text
        missing = f"{name.replace('.', ' ')} {self._separators[name].decode()!r}"
        raise InputLineError(f"Line {line_number} has no {missing}: {_excerpt(text)}.")

    def _header(self, pair: bytes, line_number: int) -> tuple[str, bytes | None]:
        key, separator, value = pair.partition(self._separators["headers.key.separator"])
        if not separator and not self._is_lenient:
            missing = self._separators["headers.key.separator"].decode()
            raise InputLineError(f"Line {line_number} has a header without separator {missing!r}: {_excerpt(pair)}.")
        if key == self._null_marker:
            raise InputLineError(f"Line {line_number} has a header whose key is the null marker: {_excerpt(pair)}.")
        try:
            return key.decode(), self._unless_null(value) if separator else None
        except UnicodeDecodeError:
            raise InputLineError(f"Line {line_number} has a header whose key is not UTF-8: {_excerpt(pair)}.") from None

    def _unless_null(self, text: bytes | None) -> bytes | None:
        return None if text == self._null_marker else text


class LineFormat:
    """Makes lines from messages.

    Args:
        properties: those of FORMATTER_PROPERTIES that are set.

    Raises:
        ConfigurationError: a property is unknown, or its value is not acceptable.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        _check_known(properties, FORMATTER_PROPERTIES, "formatter")
        if "header.deserializer" in properties:
            properties = {"headers.deserializer": properties["header.deserializer"], **properties}
        self._printed = [part for part in _PRINTED if _flag(properties, f"print.{part}", part == "value")]
        self._separators = {key: properties.get(key, text).encode() for key, text in _PRINT_SEPARATORS.items()}
        self._to_text = {
            part: _deserializer(properties[f"{part}.deserializer"])
            for part in _DESERIALIZED
            if f"{part}.deserializer" in properties
        }

    def line(self, message: Message) -> bytes:
        """Return the line of a message with its end; nothing when nothing is to be printed.

        Raises:
            ShareGroupError: a key, a value or a header is not of the type that it is to be shown as.
        """
        if not self._printed:
            return b""
        parts = [self._part(part, message) for part in self._printed]
        return self._separators["key.separator"].join(parts) + self._separators["line.separator"]

    def _part(self, part: str, message: Message) -> bytes:
        match part:
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
        return self._separators["headers.separator"].join(pairs)

    def _text(self, part: str, data: object) -> bytes:
        text = data if isinstance(data, bytes) else self._separators["null.literal"]
        return self._to_text[part](text) if part in self._to_text else text


def json_line(message: Message) -> bytes:
    """Return a message as one line of JSON; bytes that are not UTF-8 become `{"base64": …}`."""
    kind, timestamp_ms = message.timestamp()
    document = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_type": _TIMESTAMP_TYPES.get(kind),
        "timestamp_ms": timestamp_ms if kind else None,
        "delivery_count": message.delivery_count(),
        "key": as_json(message.key()),
        "value": as_json(message.value()),
        "headers": [[key, as_json(value)] for key, value in message.headers() or ()],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def as_json(data: object) -> object:
    """Return bytes as a text of JSON, or as `{"base64": …}` when they are not UTF-8; None stays."""
    if not isinstance(data, bytes):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _deserializer(name: str) -> Callable[[bytes], bytes]:
    """Return what makes UTF-8 text of the bytes of a type, named in short or by the class of Kafka's deserializer."""
    data_type = name.rpartition(".")[2].removesuffix("Deserializer").lower()
    if data_type not in DATA_TYPES:
        raise ConfigurationError(f"There is no deserializer {name}.", f"Use one of {', '.join(DATA_TYPES)}.")

    def to_text(data: bytes) -> bytes:
        if data_type == "bytearray":
            return data
        if data_type == "string":
            return data.decode(errors="replace").encode()
        try:
            if data_type == "uuid":
                return str(uuid.UUID(data.decode())).encode()
            return str(struct.unpack(_NUMBER_LAYOUTS[data_type], data)[0]).encode()
        except (ValueError, struct.error):
            raise ShareGroupError(f"The {len(data)} bytes {_excerpt(data)} are not of type {data_type}.") from None

    return to_text


def _check_known(properties: Mapping[str, str], names: Iterable[str], tool: str) -> None:
    names = list(names)
    for key in properties:
        if key not in names:
            raise ConfigurationError(f"Unknown {tool} property {key}.", f"Known are: {', '.join(names)}.")


def _check_separators(separators: Mapping[str, str]) -> None:
    for key, text in separators.items():
        if not text and key != _NULL_MARKER:
            raise ConfigurationError(f"The property {key} is empty.", "Give the text that separates.")
    for (key, text), (other, other_text) in combinations(separators.items(), 2):
        # The key may end as the headers in front of it do; everything else would be ambiguous.
        if text == other_text and (key != "key.separator" or other == _NULL_MARKER):
            raise ConfigurationError(f"The properties {key} and {other} are both {text!r}.", "They must differ.")


def _flag(properties: Mapping[str, str], key: str, default: bool = False) -> bool:
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"The property {key} is {text!r}.", "It must be true or false.")
    return text == "true"


def _excerpt(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace")) + ("…" if len(text) > 60 else "")


def _or_not_present(value: int | None) -> str:
    return "NOT_PRESENT" if value is None else str(value)
