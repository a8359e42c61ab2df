"""One processor and one workload for the tests of a file: each leaves them running, whatever fault it made."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sharegroup.processor.standby.standby import FIRST_PATIENCE_S
from tests.crash.deployment import Deployment
from tests.crash.workload import Workload, workload
from tests.support.recoveries import RECOVERIES, Recoveries

CRASHES = 6
"""Kills in one run; the options are unknown when pytest began above this folder."""
OUTAGE_S = 2.5 * FIRST_PATIENCE_S
"""Beyond a standby's patience, and less than what ends a commit."""
SINK_OUTAGE_S = 6.0
"""Beyond the end of locks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `make soak` sets."""
    parser.addoption("--crashes", type=int, default=CRASHES, help="how often the processor is killed in one run")
    parser.addoption("--outage", type=float, default=OUTAGE_S, help="seconds without the state table, and of a fold")
    parser.addoption("--sink-outage", type=float, default=SINK_OUTAGE_S, help="seconds without the table of results")
    parser.addoption("--crash-seed", type=int, help="where the random moments come from; it is printed")


@pytest.fixture(scope="session")
def recoveries(request: pytest.FixtureRequest) -> Recoveries:
    """Crashes and recoveries so far; the run ends with a summary of them."""
    return request.config.stash.setdefault(RECOVERIES, Recoveries())


@pytest.fixture
def outage_s(request: pytest.FixtureRequest) -> float:
    """Return for how long the state table is away from processor and standbys, or a fold takes: `--outage`."""
    duration_s: float = request.config.getoption("--outage", default=OUTAGE_S)
    return duration_s


@pytest.fixture
def sink_outage_s(request: pytest.FixtureRequest) -> float:
    """Return for how long a sink is away: `--sink-outage`."""
    duration_s: float = request.config.getoption("--sink-outage", default=SINK_OUTAGE_S)
    return duration_s


@pytest.fixture
def spark_fault_count(crash_count: int) -> int:
    """Return how many faults Spark applications meet in one run: they take their time to start."""
    return max(3, crash_count // 5)


@pytest.fixture
def crash_count(request: pytest.FixtureRequest) -> int:
    """Return how often a processor is killed in one run: `--crashes`."""
    count: int = request.config.getoption("--crashes", default=CRASHES)
    return count


@pytest.fixture
def crash_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of the random moments: `--crash-seed`, or a new one; a test that fails prints it."""
    seed: int | None = request.config.getoption("--crash-seed", default=None)
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
