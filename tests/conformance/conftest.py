"""Recorded vectors: `pytest tests/conformance --vectors DIR` runs those of another folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.scenario import Scenario
from tests.conformance.vector_files import FILE_PATTERNS, OWN_VECTORS, read_lines

OUTCOMES = pytest.StashKey[Counter[str]]()


def _folder(text: str) -> Path:
    return Path(text).resolve()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors", type=_folder, default=OWN_VECTORS, metavar="DIR", help="folder of recorded vectors (*.jsonl)"
    )


def vectors(config: pytest.Config) -> Path:
    """The folder to read; the option is unknown when pytest began above this folder."""
    folder: Path = config.getoption("--vectors", default=OWN_VECTORS)
    if not any(folder.glob("*.jsonl")):
        raise pytest.UsageError(f"--vectors {folder}: no *.jsonl file there.")
    return folder


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = Counter()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument in FILE_PATTERNS.keys() & set(metafunc.fixturenames):
        lines = read_lines(vectors(metafunc.config), argument)
        values = [Scenario(line["name"], line) for line in lines] if argument == "scenario" else lines
        metafunc.parametrize(argument, values, ids=[line["name"] for line in lines])


@pytest.fixture
def outcomes(pytestconfig: pytest.Config) -> Counter[str]:
    """How many scenarios ended how; printed at the end."""
    return pytestconfig.stash[OUTCOMES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counted = config.stash[OUTCOMES]
    if counted:
        text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.items()))
        terminalreporter.write_line(f"{counted.total()} recorded scenarios of Kafka's engine: {text}")
