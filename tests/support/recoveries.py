"""The cost of crashes: the test run ends with a summary, also when its tests ran in several processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Recoveries:
    """Crashes and recoveries of a test run.

    Attributes:
        seconds: kind of crash → seconds from it to the first response after it, for each.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, kind: str, *seconds: float) -> None:
        """Note some."""
        self.seconds.setdefault(kind, []).extend(seconds)


RECOVERIES = pytest.StashKey[Recoveries]()
_OUTPUT = "recoveries"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the figures of this process to the one that prints the summary, when there is another one."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = session.config.stash.setdefault(RECOVERIES, Recoveries()).seconds


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the figures of a process that ended."""
    recoveries = node.config.stash.setdefault(RECOVERIES, Recoveries())
    for kind, seconds in getattr(node, "workeroutput", {}).get(_OUTPUT, {}).items():
        recoveries.add(kind, *seconds)


def write_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many crashes there were, and how long it took from each to the first response after it."""
    recoveries = config.stash.get(RECOVERIES, None)
    if recoveries is None or not recoveries.seconds:
        return
    terminalreporter.section("crashes: count, seconds to the first response (median, longest)")
    for kind, seconds in sorted(recoveries.seconds.items()):
        median = sorted(seconds)[len(seconds) // 2]
        terminalreporter.write_line(f"{kind:60} {len(seconds):4} {median:6.2f} {max(seconds):6.2f}")
