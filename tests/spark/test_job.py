"""The common part of the programs for spark-submit, in a session."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sharegroup.errors import ConfigurationError
from sharegroup.spark.classic import log_lost_updates
from sharegroup.spark.job import check_handler_name, load_handler

HANDLERS = """
from pyspark.sql import functions as F

NUMBER = 5


@F.udf("long")
def double(number):
    return 2 * number


def work(records):
    return records.select(double("id").alias("id"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of a program, with modules of handlers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "udf_handlers.py").write_text(HANDLERS)
    (tmp_path / "broken_handlers.py").write_text("def work(records): ...\n\n1 / 0\n")
    (tmp_path / "lacking_handlers.py").write_text("import no_such_library\n")
    yield tmp_path
    for name in ("udf_handlers", "broken_handlers", "lacking_handlers"):
        sys.modules.pop(name, None)


def test_a_handler_whose_module_needs_a_session_is_named_before_and_imported_after(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    check_handler_name("udf_handlers:work")
    assert "udf_handlers" not in sys.modules
    spark: SparkSession = request.getfixturevalue("spark")
    handled = load_handler("udf_handlers:work")(spark.range(3))
    assert handled is not None
    assert [row.id for row in handled.collect()] == [0, 2, 4]


@pytest.mark.parametrize(
    "name", ["handlers", ":work", ".handlers:work", "udf_handlers:", "nowhere:work", "nowhere.module:work"]
)
def test_a_name_that_cannot_be_right_is_refused_without_an_import(folder: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere|package\.module:function"):
        check_handler_name(name)


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("broken_handlers:work", r"import of broken_handlers: ZeroDivisionError.*broken_handlers.py, line 3", "Repair"),
        (
            "lacking_handlers:work",
            r"No module named 'no_such_library' \(.*lacking_handlers.py, line 1\)",
            "searched in",
        ),
        ("udf_handlers:wrok", "udf_handlers.py has no wrok", ""),
        ("udf_handlers:NUMBER", "udf_handlers.py is not callable: NUMBER", ""),
    ],
)
def test_what_prevents_the_import_of_a_handler_is_named(
    spark: SparkSession, folder: Path, name: str, problem: str, remedy: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load_handler(name)
    assert remedy in caught.value.remedy


def test_a_jvm_that_ends_while_it_sends_counts_makes_a_line_and_no_traceback(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "sharegroup.spark.classic")
    log_lost_updates(spark)
    server = spark.sparkContext._accumulatorServer
    ours, jvm = socket.socketpair()
    with ours, jvm:
        # As its loop does when a connection fails; the JVM of the session holds the only one that it serves.
        try:
            raise EOFError("the JVM ended")
        except EOFError:
            server.handle_error(ours, ("127.0.0.1", 1))
    assert "event=task_counts_lost" in caplog.text
    assert "the JVM ended" in caplog.text
    assert "Exception" not in capfd.readouterr().err
