"""A local log with a processor behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.logs.local import LocalLog
from tests.client.processor_peer import ProcessorPeer


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def log(log_path: Path) -> Iterator[LocalLog]:
    with LocalLog(log_path) as log:
        yield log


@pytest.fixture
def processor(log: LocalLog) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(log) as processor:
        yield processor
