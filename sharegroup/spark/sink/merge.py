"""MERGE of results into a sink: one row of each key, and the transaction by settings of a session of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.errors import InvalidRequestError
from sharegroup.spark import classic
from sharegroup.spark.sink.kept_rows import kept
from sharegroup.spark.sink.sink_table import SinkTable

_VIEW = "sharegroup_results"
_SETTINGS = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
    "mergeSchema": "spark.databricks.delta.schema.autoMerge.enabled",
}
"""Option of Delta's writer → the setting that says the same of a MERGE."""


def merge(
    table: SinkTable, rows: DataFrame, session: SparkSession, config: SparkSinkConfig, options: Mapping[str, str]
) -> None:
    """Merge rows by their keys; that makes no commit if it changes nothing.

    Args:
        session: a session of this merge alone, which is active; it gets the transaction.
        options: those of Delta's writer.

    Raises:
        InvalidRequestError: two rows have one key, a key is not among the columns, or the table lacks a column.
    """
    if not config.sink_schema_evolution:
        _check_columns(rows, table, session)
    # The check and MERGE, which reads them twice, get the same rows.
    with kept(rows):
        _check_keys(rows, config.sink_merge_keys)
        for name, key in _SETTINGS.items():
            session.conf.set(key, options[name])
        classic.moved(rows, session).createOrReplaceTempView(_VIEW)
        session.sql(_statement(table, rows.columns, config))


def _statement(table: SinkTable, columns: Sequence[str], config: SparkSinkConfig) -> str:
    on = " AND ".join(f"target.{_quoted(key)} <=> source.{_quoted(key)}" for key in config.sink_merge_keys)
    condition = f" AND ({config.sink_merge_condition})" if config.sink_merge_condition else ""
    if config.sink_schema_evolution:
        update, insert = "*", "*"
    else:
        # With `*`, the results would need all columns of the table.
        names = [_quoted(name) for name in columns]
        update = ", ".join(f"target.{name} = source.{name}" for name in names)
        insert = f"({', '.join(names)}) VALUES ({', '.join(f'source.{name}' for name in names)})"
    return (
        f"MERGE INTO {table.identifier} AS target USING {_VIEW} AS source ON {on} "
        f"WHEN MATCHED{condition} THEN UPDATE SET {update} WHEN NOT MATCHED THEN INSERT {insert}"
    )


def _check_columns(rows: DataFrame, table: SinkTable, session: SparkSession) -> None:
    """Name the columns that the table lacks, which the error of MERGE does not."""
    known = {name.lower() for name in session.table(table.identifier).columns}
    if further := [name for name in rows.columns if name.lower() not in known]:
        raise InvalidRequestError(
            f"The results have columns that {table.address} lacks: {', '.join(further)}.",
            "Add them to the table, or set sink.schema.evolution to true.",
        )


def _check_keys(rows: DataFrame, keys: Sequence[str]) -> None:
    known = {name.lower() for name in rows.columns}
    if missing := [key for key in keys if key.lower() not in known]:
        raise InvalidRequestError(
            f"The results lack the column {', '.join(missing)} of sink.merge.keys; they have {', '.join(rows.columns)}."
        )
    grouped = rows.groupBy(*(F.col(_quoted(key)) for key in keys)).agg(F.count(F.lit(1)).alias("__rows"))
    if twice := grouped.where("__rows > 1").head(1):
        key = ", ".join(f"{name} = {value!r}" for name, value in zip(keys, twice[0], strict=False))
        raise InvalidRequestError(
            f"{twice[0]['__rows']} rows of the results have the key {key}.",
            "Return one row of each key: which of them should be in the table?",
        )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
