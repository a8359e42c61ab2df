"""Fixtures of the state table's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.state.maintenance import compact, take_snapshot
from sharegroup.state.reader import StateTableReader

FAR_FUTURE_MS = 4_102_444_800_000
"""2100-01-01T00:00:00Z: everything is older than that."""


def keep_up(path: str) -> None:
    """Merge the table's files, and take a snapshot of it."""
    compact(path)
    take_snapshot(path, FAR_FUTURE_MS)


@pytest.fixture
def table_path(tmp_path: Path) -> str:
    """Where the test's state table will be; nothing is there yet."""
    return str(tmp_path / "state")


@pytest.fixture
def reader(table_path: str) -> StateTableReader:
    """A reader of the test's table."""
    return StateTableReader(table_path)
