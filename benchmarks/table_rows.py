"""Rows of a Delta table as its log shows them while others append to it: how many, and when each commit was made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_POLL_INTERVAL_S = 0.02
_LONGEST_S = 600.0


class AppendedRows(NamedTuple):
    """The rows of one commit.

    Attributes:
        row_count: its rows.
        time_s: time of its file, in s since the epoch.
    """

    row_count: int
    time_s: float


class TableRows:
    """The appends to a table on this machine since it was made or last looked at; nothing else writes to it.

    Args:
        table: its folder.
    """

    def __init__(self, table: Path) -> None:
        self._log = table / "_delta_log"
        self._appended: list[AppendedRows] = []
        self._next_version = 0

    @property
    def count(self) -> int:
        """All rows."""
        return sum(appended.row_count for appended in self._appended)

    def await_count(self, wanted: int, is_ended: Callable[[], bool]) -> list[AppendedRows]:
        """Wait for so many rows; return the commits, up to the one that brought the last of them.

        Args:
            is_ended: returns True when the program that writes has ended.

        Raises:
            TimeoutError: they do not come.
        """
        give_up_s = time.monotonic() + _LONGEST_S
        while not self.reaches(wanted):
            if is_ended() or time.monotonic() > give_up_s:
                raise TimeoutError(f"{self.count:,} of {wanted:,} rows are in {self._log.parent}.")
            time.sleep(_POLL_INTERVAL_S)
        return self._appended

    def reaches(self, wanted: int) -> bool:
        """Return True if there are so many rows now."""
        while self.count < wanted and (path := self._log / f"{self._next_version:020}.json").exists():
            if count := _row_count(path.read_text(encoding="utf-8")):
                self._appended.append(AppendedRows(count, path.stat().st_mtime))
            self._next_version += 1
        return self.count >= wanted


def rate_of(appended: list[AppendedRows], started_s: float | None = None) -> float:
    """Return rows a second.

    Args:
        started_s: when the program started, in s since the epoch; None begins with the first commit, whose rows do not
            count: so the start of its program does not.
    """
    if started_s is not None:
        return sum(each.row_count for each in appended) / (appended[-1].time_s - started_s)
    first, *others = appended
    return sum(each.row_count for each in others) / (others[-1].time_s - first.time_s)


def _row_count(commit: str) -> int:
    adds = (json.loads(line).get("add") for line in commit.splitlines() if '"add"' in line)
    return sum(json.loads(add["stats"])["numRecords"] for add in adds if add)
