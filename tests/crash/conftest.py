"""One processor and one workload for the tests of a file: each leaves them running, whatever fault it made."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.crash.deployment import Deployment, Recoveries
from tests.crash.workload import Workload, workload

_RECOVERIES = pytest.StashKey[Recoveries]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `make soak` sets."""
    parser.addoption("--crashes", type=int, default=10, help="how often the processor is killed in one run")
    parser.addoption("--crash-seed", type=int, help="where the random moments come from; it is printed")


@pytest.fixture(scope="session")
def recoveries(request: pytest.FixtureRequest) -> Recoveries:
    """Crashes and recoveries so far; the run ends with a summary of them."""
    return request.config.stash.setdefault(_RECOVERIES, Recoveries())


@pytest.fixture
def crash_count(request: pytest.FixtureRequest) -> int:
    """Return how often a processor is killed in one run: `--crashes`."""
    count: int = request.config.getoption("--crashes")
    return count


@pytest.fixture
def crash_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the random moments: `--crash-seed`, or a new one; a test that fails prints it."""
    seed: int | None = request.config.getoption("--crash-seed")
    if seed is None:
        seed = random.randrange(2**32)
    print(f"--crash-seed={seed}")
    return seed


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, recoveries: Recoveries) -> Iterator[Deployment]:
    """A running processor that tests may kill, as long as they start another one."""
    deployment = Deployment(tmp_path_factory.mktemp("deployment"), recoveries)
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()


@pytest.fixture(scope="module")
def load(deployment: Deployment) -> Iterator[Workload]:
    """Members at work, whose locks and sessions end while a test waits."""
    config = {"share_record_lock_duration_ms": "5000", "share_session_timeout_ms": "6000"}
    with workload(deployment, **config) as load:
        yield load


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many crashes there were, and how long it took from each to the first answer after it."""
    recoveries = config.stash.get(_RECOVERIES, None)
    if recoveries is None or not recoveries.seconds:
        return
    terminalreporter.section("crashes: count, seconds to the first answer (median, longest)")
    for kind, seconds in recoveries.seconds.items():
        median = sorted(seconds)[len(seconds) // 2]
        terminalreporter.write_line(f"{kind:60} {len(seconds):4} {median:6.2f} {max(seconds):6.2f}")
