"""Fixtures that every test folder may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sharegroup.spark.session import build_session

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses the Spark session, so that `-m "not spark"` starts no JVM."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the run, as programs make theirs."""
    session = build_session("sharegroup-tests")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
