"""Records from lines of text, with the properties of Kafka's console producer (`LineMessageReader`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Self

from sharegroup.cli.properties import as_bool, check_known
from sharegroup.errors import ConfigurationError, InputLineError
from sharegroup.logs.port import Headers, NewRecord

_SEPARATORS = {
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
_SWITCHES = ("parse.key", "parse.headers", "ignore.error")
_NULL_MARKER = "null.marker"

READER_PROPERTIES = ("parse.key", "parse.headers", *_SEPARATORS, _NULL_MARKER, "ignore.error")
"""All properties, under Kafka's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """What a line holds: headers and key, if they are asked for, then the value.

    Attributes:
        has_key: whether a line has a key.
        has_headers: whether a line has headers.
        key_separator: between key and value.
        headers_delimiter: between headers and what follows.
        headers_separator: between two headers.
        headers_key_separator: between the key of a header and its value.
        null_marker: the text of a key, value or header value that is null; None for no such text.
        is_lenient: whether what is missing from a line is left out of the record.
    """

    has_key: bool = False
    has_headers: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    is_lenient: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """The reader that properties of Kafka's console producer describe.

        Raises:
            ConfigurationError: a property is unknown, a separator is empty, or two of them are equal.
        """
        check_known(properties, READER_PROPERTIES, "reader")
        separators = {key: properties.get(key, default) for key, default in _SEPARATORS.items()}
        _check_separators({**separators, **{k: v for k, v in properties.items() if k == _NULL_MARKER}})
        has_key, has_headers, is_lenient = (as_bool(properties, key, False) for key in _SWITCHES)
        marker = properties.get(_NULL_MARKER)
        return cls(
            has_key=has_key,
            has_headers=has_headers,
            null_marker=None if marker is None else marker.encode(),
            is_lenient=is_lenient,
            **{key.replace(".", "_"): text.encode() for key, text in separators.items()},
        )

    def record(self, line: bytes, line_number: int) -> NewRecord:
        """The record of a line.

        Raises:
            InputLineError: the line lacks a separator, or the key of a header is not text.
        """
        key: bytes | None = None
        headers: Headers = ()
        rest = line
        if self.has_headers:
            head, rest = self._split(rest, self.headers_delimiter, "headers delimiter", line_number)
            if head is not None and head != self.null_marker:
                headers = tuple(self._header(pair, line_number) for pair in head.split(self.headers_separator))
        if self.has_key:
            key, rest = self._split(rest, self.key_separator, "key separator", line_number)
        return NewRecord(self._unless_null(key), self._unless_null(rest), headers)

    def _split(self, text: bytes, separator: bytes, name: str, line_number: int) -> tuple[bytes | None, bytes]:
        head, found, rest = text.partition(separator)
        if found:
            return head, rest
        if self.is_lenient:
            return None, text
        raise InputLineError(f"Line {line_number} has no {name} {separator.decode()!r}: {_shown(text)}.")

    def _header(self, pair: bytes, line_number: int) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.is_lenient:
            separator = self.headers_key_separator.decode()
            raise InputLineError(f"Line {line_number} has a header without separator {separator!r}: {_shown(pair)}.")
        if key == self.null_marker:
            raise InputLineError(f"Line {line_number} has a header whose key is the null marker: {_shown(pair)}.")
        try:
            return key.decode(), self._unless_null(value) if found else None
        except UnicodeDecodeError:
            raise InputLineError(f"Line {line_number} has a header whose key is not UTF-8: {_shown(pair)}.") from None

    def _unless_null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null_marker else text


def _check_separators(separators: Mapping[str, str]) -> None:
    for key, text in separators.items():
        if not text and key != _NULL_MARKER:
            raise ConfigurationError(f"The property {key} is empty.", "Give the text that separates.")
    for (key, text), (other, other_text) in combinations(separators.items(), 2):
        # The key may end as the headers in front of it do; everything else would be ambiguous.
        if text == other_text and (key != "key.separator" or other == _NULL_MARKER):
            raise ConfigurationError(f"The properties {key} and {other} are both {text!r}.", "They must differ.")


def _shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace")) + ("…" if len(text) > 60 else "")
