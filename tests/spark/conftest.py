"""A processor for the tests of workers and sources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.spark_site import SparkSite


@pytest.fixture(scope="package")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSite]:
    """A running processor that tests share: each has groups and topics of its own, and lets it run."""
    site = SparkSite(spark, tmp_path_factory.mktemp("site"))
    site.start()
    yield site
    site.close()
