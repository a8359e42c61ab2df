"""How long to fuzz: `pytest tests/fuzz --fuzz SEED:COUNT` sends COUNT messages, chosen by SEED and what follows it."""

from __future__ import annotations

import pytest

DEFAULT = "1:20000"
MESSAGES_PER_RUN = 5_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", default=DEFAULT, metavar="SEED:COUNT", help=f"messages to fuzz with; {DEFAULT}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One run for each so many messages, so that runs can go side by side."""
    if "fuzz_seed" in metafunc.fixturenames:
        # A run of all folders does not read this file before its command line.
        seed, count = map(int, metafunc.config.getoption("--fuzz", DEFAULT).split(":"))
        metafunc.parametrize("fuzz_seed", range(seed, seed + -(-count // MESSAGES_PER_RUN)))
