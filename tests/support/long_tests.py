"""Tests that `make test` leaves out, by the marker `long` with its reason, and tests that ought to have it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.eventually import DEADLINE_S, SLOWNESS

LONGEST_S = 5.0
"""Longest time of a test of `make test` on a quiet machine."""


def check_reasons(items: Iterable[pytest.Item]) -> None:
    """Check that each marker `long` says why.

    Raises:
        pytest.UsageError: one does not.
    """
    for item in items:
        for marker in item.iter_markers("long"):
            if len(marker.args) != 1 or not isinstance(marker.args[0], str) or marker.kwargs:
                raise pytest.UsageError(f"{item.nodeid}: the marker has one argument: long(reason)")


class LongTests:
    """Collects the tests that take too long for `make test`; a plugin of the process that prints the summary."""

    def __init__(self) -> None:
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test, without what its fixtures took: many share those."""
        if report.when == "call" and report.duration > LONGEST_S * SLOWNESS and "long" not in report.keywords:
            self._reports.append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print them, with the order of the run and its deadlines."""
        if self._reports:
            terminalreporter.section(
                f"longer than {LONGEST_S * SLOWNESS:.1f} s: make it shorter, or mark it long(reason)"
            )
            for report in sorted(self._reports, key=lambda report: -report.duration):
                terminalreporter.write_line(f"{report.duration:6.1f} s  {report.nodeid}")
        seed = config.getoption("randomly_seed", default=None)
        terminalreporter.write_line(
            f"Order: --randomly-seed={seed}. Speed: {SLOWNESS:.2f} times the time of a quiet machine, so tests give up "
            f"after {DEADLINE_S:.0f} s."
        )
