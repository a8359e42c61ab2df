"""Long tests, in runs of their own: what has no reason is refused, and what takes long without the marker is named."""

from __future__ import annotations

import pytest

from tests.support.long_tests import LONGEST_S

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from tests.conftest import pytest_collection_modifyitems, pytest_configure
from tests.support.eventually import SLOWNESS

TAKEN_S = {taken_s}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    report.duration = TAKEN_S.get((item.name, report.when), 0.0) * SLOWNESS
    return report
"""


def run(pytester: pytest.Pytester, tests: str, taken_s: dict[tuple[str, str], float]) -> pytest.RunResult:
    """Run tests as if their phases took this long on a quiet machine; all others take no time."""
    pytester.makeconftest(CONFTEST.format(taken_s=taken_s))
    pytester.makepyfile(test_some=f"import pytest\n\n{tests}")
    return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")


@pytest.mark.parametrize("arguments", ["", "()", "('locks', 'end')", "(5)", "(reason='locks end')"])
def test_a_marker_without_its_reason_is_refused(pytester: pytest.Pytester, arguments: str) -> None:
    result = run(pytester, f"@pytest.mark.long{arguments}\ndef test_one(): pass", {})
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_some.py::test_one: the marker has one argument: long(reason)"])


def test_tests_that_take_long_without_the_marker_are_named_the_longest_first(pytester: pytest.Pytester) -> None:
    tests = """
def test_short(): pass
def test_long(): pass
def test_longest(): assert False
def test_with_a_long_fixture(): pass
@pytest.mark.long("locks end")
def test_marked(): pass
"""
    taken_s = {
        ("test_short", "call"): LONGEST_S,
        ("test_long", "call"): LONGEST_S + 1,
        ("test_longest", "call"): LONGEST_S + 2,
        ("test_with_a_long_fixture", "setup"): LONGEST_S + 3,
        ("test_marked", "call"): LONGEST_S + 4,
    }
    lines = run(pytester, tests, taken_s).outlines
    begin = next(number for number, line in enumerate(lines) if "make it shorter, or mark it long(reason)" in line)
    named = [line.rpartition("::")[2] for line in lines[begin + 1 :] if " s  test_some.py::" in line]
    assert named == ["test_longest", "test_long"]


def test_a_run_without_such_tests_names_none(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_short(): pass", {})
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*mark it long(reason)*")
    result.stdout.fnmatch_lines(["Order: --randomly-seed=*tests give up after * s."])
