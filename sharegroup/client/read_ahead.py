"""Records that were read along with others, because the same member holds them and will be asked for them next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sharegroup.client.acknowledgements import PartitionKey
from sharegroup.client.acquisition import HeldRange
from sharegroup.logs.port import LogRecord

MAX_RECORDS = 10_000
"""Records of one partition that one read brings at most. A read costs some requests, however many it brings."""


@dataclass(slots=True)
class _Span:
    """Records of a range; its offsets without a record will never have one."""

    held: HeldRange
    records: deque[LogRecord]
    timestamp_type: int


@dataclass(frozen=True, slots=True)
class RecordsAhead:
    """Records of a range, and the type of their timestamps."""

    records: list[LogRecord]
    timestamp_type: int


class ReadAhead:
    """Keeps one span of records of each partition."""

    def __init__(self) -> None:
        self._spans: dict[PartitionKey, _Span] = {}

    def keep(self, held: HeldRange, records: Iterable[LogRecord], timestamp_type: int) -> None:
        """Keep all records of a range; they replace what was kept of the partition."""
        self._spans[held.key] = _Span(held, deque(records), timestamp_type)

    def take(self, held: HeldRange) -> RecordsAhead | None:
        """The records of a range, when it is where the span begins and wholly in it; else the span is dropped."""
        span = self._spans.pop(held.key, None)
        if span is None or not _begins_with(span.held, held):
            return None
        records = []
        while span.records and span.records[0].offset <= held.last_offset:
            records.append(span.records.popleft())
        if held.last_offset < span.held.last_offset:
            span.held = replace(span.held, first_offset=held.last_offset + 1)
            self._spans[held.key] = span
        return RecordsAhead(records, span.timestamp_type)


def extended(held: HeldRange, following: Iterable[HeldRange]) -> HeldRange:
    """The range with those that go on where it ends, up to MAX_RECORDS; the same object when there are none."""
    last_offset = held.last_offset
    for found in following:
        if found.key == held.key and found.first_offset == last_offset + 1:
            if found.last_offset - held.first_offset >= MAX_RECORDS:
                break
            last_offset = found.last_offset
    return held if last_offset == held.last_offset else replace(held, last_offset=last_offset)


def _begins_with(span: HeldRange, held: HeldRange) -> bool:
    return (
        span.first_offset == held.first_offset
        and span.last_offset >= held.last_offset
        and span.isolation_level is held.isolation_level
    )
