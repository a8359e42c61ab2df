"""The process that Spark starts for the reader of a stream: when Spark ends first, it ends without a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.eventually import DEADLINE_S

pytestmark = pytest.mark.slow

PROGRAM = """
from sharegroup.spark.{module} import {source}

{source}({options}).streamReader(None)
raise {error}
"""
SOURCES = {
    "request_ranges": ("RequestRangesSource", {"topic": "requests", "startingoffsets": "{}", "log.path": "log.db"}),
    "source.stream_reader": ("ShareGroupDataSource", {"log.path": "log.db", "group.id": "a", "subscribe": "b"}),
    "commit_source": ("CommitSource", {"path": "state", "broker": "{}", "mostcommits": "10"}),
}


@pytest.mark.parametrize("module", SOURCES)
@pytest.mark.parametrize(("error", "is_reported"), [("BrokenPipeError", False), ("EOFError", False), ("OSError", True)])
def test_only_an_error_of_its_own_is_reported(module: str, error: str, is_reported: bool) -> None:
    """Also before the first offsets are asked for."""
    source, options = SOURCES[module]
    program = PROGRAM.format(module=module, source=source, options=options, error=error)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 1
    assert (error in ended.stderr) == is_reported, ended.stderr
    assert bool(ended.stderr) == is_reported
