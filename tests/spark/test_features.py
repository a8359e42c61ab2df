"""Features that older releases of Spark lack, and the two modules that reach into the JVM."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.features import RememberingReader
from sharegroup.spark.request_ranges import RequestRangesReader
from tests.conftest import ROOT

TOPIC = "requests"
OF_THE_JVM = {"sparkContext", "SparkContext", "_jvm", "_jsc", "_jdf", "_jsparkSession", "_jo", "_sc", "_gateway"}
CLASSIC = [ROOT / "sharegroup" / "spark" / name for name in ("classic.py", "sink/classic_log.py")]
PROGRAMS = [path for folder in ("sharegroup", "jobs", "notebooks") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as log:
        log.create_topic(TOPIC, 1)
        yield log


def reader(log: LocalLog) -> RememberingReader:
    options = {"log.path": str(log.path), "topic": TOPIC, "startingoffsets": '{"0": 2}'}
    return RememberingReader(RequestRangesReader(options))


def rows(reader: RememberingReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [row[:-1] for task in reader.partitions(start, end) for row in reader.read(task)]


def test_a_reader_without_a_start_goes_on_at_the_end_of_its_last_batch(log: LocalLog) -> None:
    log.append(TOPIC, 0, [NewRecord(None, b"value")] * 5)
    new = reader(log)
    assert new.initialOffset() == {"0": 2}
    assert new.latestOffset() == {"0": 5}
    # Spark may ask again before it plans.
    assert new.latestOffset() == {"0": 5}
    assert rows(new, {"0": 2}, {"0": 5}) == [(TOPIC, 0, 2, 5)]
    assert new.latestOffset() == {"0": 5}
    log.append(TOPIC, 0, [NewRecord(None, b"value")])
    assert new.latestOffset() == {"0": 6}
    new.stop()


def test_a_restarted_reader_goes_on_where_its_offset_log_ends(log: LocalLog) -> None:
    log.append(TOPIC, 0, [NewRecord(None, b"value")] * 5)
    restarted = reader(log)
    # The batch is ahead of what the log has, so that a start before it would show.
    assert rows(restarted, {"0": 7}, {"0": 7}) == []
    assert restarted.latestOffset() == {"0": 7}
    restarted.stop()
    committed = reader(log)
    assert rows(committed, {"0": 6}, {"0": 8}) == [(TOPIC, 0, 6, 8)]
    assert committed.latestOffset() == {"0": 8}
    committed.stop()


def test_only_the_modules_of_classic_sessions_reach_into_the_jvm() -> None:
    """An import contract sees py4j; the rest are attributes of sessions and frames."""
    assert [path for path in PROGRAMS if names_of(path) & OF_THE_JVM] == CLASSIC


def names_of(path: Path) -> set[str]:
    """Return the names and attributes in a program."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name)}
