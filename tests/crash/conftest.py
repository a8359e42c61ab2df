"""One processor for all crash tests: each leaves it running, whatever it did to it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.crash.deployment import Deployment, Recoveries

_RECOVERIES = pytest.StashKey[Recoveries]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make soak` sets."""
    parser.addoption("--crashes", type=int, default=10, help="how often the processor is killed in one run")
    parser.addoption("--crash-seed", type=int, help="where the random moments come from; it is printed")


@pytest.fixture(scope="package")
def recoveries(request: pytest.FixtureRequest) -> Recoveries:
    """Crashes and recoveries so far; the run ends with a summary of them."""
    return request.config.stash.setdefault(_RECOVERIES, Recoveries())


@pytest.fixture
def crash_count(request: pytest.FixtureRequest) -> int:
    """How often a processor is killed in one run: `--crashes`."""
    count: int = request.config.getoption("--crashes")
    return count


@pytest.fixture
def crash_seed(request: pytest.FixtureRequest) -> int:
    """What the random moments come from: `--crash-seed`, or a new one; a test that fails prints it."""
    given: int | None = request.config.getoption("--crash-seed")
    seed = random.randrange(2**32) if given is None else given
    print(f"--crash-seed={seed}")
    return seed


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory, recoveries: Recoveries) -> Iterator[Deployment]:
    """A running processor that tests may kill, as long as they start another one."""
    deployment = Deployment(tmp_path_factory.mktemp("deployment"), recoveries)
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many crashes there were, and how long it took from each to the first answer after it."""
    recoveries = config.stash.get(_RECOVERIES, None)
    if recoveries is None or not recoveries.seconds:
        return
    terminalreporter.section("crashes: count, seconds to the first answer (median, longest)")
    for kind, seconds in recoveries.seconds.items():
        median = sorted(seconds)[len(seconds) // 2]
        terminalreporter.write_line(f"{kind:60} {len(seconds):4} {median:6.1f} {max(seconds):6.1f}")
