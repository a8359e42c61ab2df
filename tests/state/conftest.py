"""Fixtures of the state table's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

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


def lose_log(table_path: str) -> None:
    """Delete the commits before the newest version, as the library does with those that have expired."""
    table = DeltaTable(table_path)
    table.create_checkpoint()
    for file in Path(table_path, "_delta_log").glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()
