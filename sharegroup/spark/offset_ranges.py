"""Ranges of offsets as Spark work: how much a micro-batch takes, and how tasks share it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sharegroup.errors import ConfigurationError

_FIELDS = ("topic", "partition", "first_offset", "last_offset", "delivery_count")
_MAX_DELIVERY_COUNT = 32_767


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition from `start_offset` up to, but without, `end_offset`."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    delivery_count: int | None = None

    def __len__(self) -> int:
        """How many offsets it spans."""
        return self.end_offset - self.start_offset


def parse_ranges(text: str) -> list[OffsetRange]:
    """Ranges from JSON [[topic, partition, first_offset, last_offset, delivery_count], ...], both offsets inclusive.

    Raises:
        ConfigurationError: it is not such JSON, or a range is empty or negative.
    """
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"ranges is not JSON: {error}.", f"Give [[{', '.join(_FIELDS)}], ...].") from error
    if not isinstance(entries, list):
        raise ConfigurationError("ranges is not a JSON list.", f"Give [[{', '.join(_FIELDS)}], ...].")
    return [_range(index, entry) for index, entry in enumerate(entries)]


def split_evenly(ranges: Sequence[OffsetRange], task_count: int) -> list[list[OffsetRange]]:
    """Cut ranges, in order, into at most `task_count` shares; none is larger than an even share rounded up."""
    total = sum(len(offset_range) for offset_range in ranges)
    share_size = -(-total // task_count)
    shares: list[list[OffsetRange]] = []
    room = 0
    for offset_range in ranges:
        rest = offset_range
        while len(rest) > 0:
            if room == 0:
                shares.append([])
                room = share_size
            cut = min(rest.end_offset, rest.start_offset + room)
            shares[-1].append(replace(rest, end_offset=cut))
            room -= cut - rest.start_offset
            rest = replace(rest, start_offset=cut)
    return shares


def _range(index: int, entry: object) -> OffsetRange:
    match entry:
        case [
            str(topic),
            int(partition),
            int(first_offset),
            int(last_offset),
            int(delivery_count),
        ] if partition >= 0 and 0 <= first_offset <= last_offset and 0 <= delivery_count <= _MAX_DELIVERY_COUNT:
            return OffsetRange(topic, partition, first_offset, last_offset + 1, delivery_count)
    raise ConfigurationError(
        f"ranges[{index}] is {json.dumps(entry)}.",
        f"Give [{', '.join(_FIELDS)}] with first_offset <= last_offset and a delivery count up to "
        f"{_MAX_DELIVERY_COUNT}.",
    )
