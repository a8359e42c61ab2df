"""Offsets as the ranges that they form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.core.offset_ranges import consecutive

Content = tuple[object, ...]
"""The content of one record: its state, its delivery count, perhaps its holder."""


def touching(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """The fewest ranges, both ends inclusive, that hold exactly these offsets."""
    return list(consecutive(sorted(offsets)))


def shown(offsets: Iterable[int]) -> str:
    """Offsets as text: `0..4, 7..7`, or `nothing`."""
    return ", ".join(f"{first}..{last}" for first, last in touching(offsets)) or "nothing"


def shown_contents(contents: Mapping[int, Content]) -> str:
    """Contents as text: `0..4 ACQUIRED 1 m1, 5..9 AVAILABLE 1`, or `nothing`."""
    runs = [
        (first, f"{first}..{last} " + " ".join(str(part) for part in content if part != ""))
        for content in set(contents.values())
        for first, last in touching(offset for offset, known in contents.items() if known == content)
    ]
    return ", ".join(text for _, text in sorted(runs)) or "nothing"
