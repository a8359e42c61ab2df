"""A site with the Spark session that its workers and sources use; its processor needs none."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.site import Site


class SparkSite(Site):
    """A site, and a session.

    Args:
        spark: the session.
        folder: the site's folder.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(folder)
        self.spark = spark
