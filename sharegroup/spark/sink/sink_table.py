"""The Delta table of a sink: a path, a URI, or the name of a table of a catalog; and Spark's ways to write to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sharegroup.config.table_location import absolute_address
from sharegroup.errors import SinkError

_PATH_CHARACTERS = re.compile(r"[/\\:]")


@dataclass(frozen=True)
class SinkTable:
    """A table that was there when it was described.

    Attributes:
        address: absolute path, URI, or name, as fetches give it.
        identifier: the table in SQL.
        location: URI of its folder.
        properties: its table properties.
        features: names of its table features.
        file_count: files with rows when it was described.
    """

    address: str
    identifier: str
    location: str
    properties: Mapping[str, str]
    features: frozenset[str]
    file_count: int = 0

    @property
    def is_named(self) -> bool:
        """True for a table of a catalog."""
        return not is_path(self.address)

    def append(self, rows: DataFrame, options: Mapping[str, str]) -> None:
        """Append rows, with options of Delta's writer.

        Raises:
            Exception: what Spark raises, also where the table was dropped; `save` and `saveAsTable` would create it.
        """
        rows.writeTo(self.identifier).options(**options).append()


def is_path(address: str) -> bool:
    """Return True for a path or a URI, False for the name of a table."""
    return _PATH_CHARACTERS.search(address) is not None


def described_table(spark: SparkSession, address: str) -> SinkTable:
    """Return the table at a path or URI, or of a name.

    Raises:
        SinkError: there is no Delta table, or this session may not read it.
    """
    address = absolute_address(address) if is_path(address) else address
    identifier = f"delta.`{address.replace('`', '``')}`" if is_path(address) else address
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {identifier}").head()
    except PySparkException as error:
        raise SinkError(
            f"{address} is no Delta table that this session can read: {_first_line(error)}",
            "Create it with the columns of the results; name a table of a catalog as catalog.schema.table, and any "
            "other one by its path.",
        ) from error
    if detail is None or detail["format"] != "delta" or not detail["location"]:
        kind = "no table" if detail is None else f"a table of the format {detail['format']}"
        raise SinkError(f"{address} is {kind}, and no Delta table.", "Create a Delta table with the results' columns.")
    return SinkTable(
        address=address,
        identifier=identifier,
        location=detail["location"],
        properties=dict(detail["properties"] or {}),
        features=frozenset(detail["tableFeatures"] or ()),
        file_count=detail["numFiles"] or 0,
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
