"""Fixtures of the state table's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.state.reader import StateTableReader


@pytest.fixture
def table_path(tmp_path: Path) -> str:
    """Where the test's state table will be; nothing is there yet."""
    return str(tmp_path / "state")


@pytest.fixture
def reader(table_path: str) -> StateTableReader:
    """A reader of the test's table."""
    return StateTableReader(table_path)
