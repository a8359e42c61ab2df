"""Checks of a sink at the start: whether a table can keep what `sharegroup.spark.sink` promises.

Partitions, generated and identity columns, NOT NULL, column mapping, deletion vectors and row tracking change nothing
of it. What Delta forgets, and what it lets nobody look up, does.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from sharegroup.client.sink_table import LOG_RETENTION, TRANSACTION_RETENTION, WRITE_EXPIRY_MS, interval_ms
from sharegroup.config.spark_sink import MERGE, SparkSinkConfig
from sharegroup.errors import SinkError
from sharegroup.spark.sink.sink_table import SinkTable

_DEFAULT_LOG_RETENTION = "interval 30 days"
_CLEANUP = "delta.enableExpiredLogCleanup"
_APPEND_ONLY = "delta.appendOnly"
_CATALOG_FEATURES = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")


def check_table(
    table: SinkTable, columns: StructType, config: SparkSinkConfig, expiry_ms: int = WRITE_EXPIRY_MS
) -> None:
    """Check the properties and features of a table.

    Args:
        columns: those of the table.
        expiry_ms: `share.exactly.once.write.expiry.ms` of the group: so long the table must remember a commit.

    Raises:
        SinkError: it cannot keep the promise.
    """
    _check_transactions(table)
    _check_log(table, expiry_ms)
    _check_commits(table)
    if config.sink_mode == MERGE:
        _check_merge(table, columns, config.sink_merge_keys)


def _check_transactions(table: SinkTable) -> None:
    if (retention := table.properties.get(TRANSACTION_RETENTION)) is not None:
        raise SinkError(
            f"{table.address} forgets transactions: {TRANSACTION_RETENTION} is {retention}. A writer that is older "
            "would write its results a second time, and Spark cannot check that.",
            f"ALTER TABLE {table.identifier} UNSET TBLPROPERTIES ('{TRANSACTION_RETENTION}').",
        )


def _check_log(table: SinkTable, expiry_ms: int) -> None:
    retention = table.properties.get(LOG_RETENTION, _DEFAULT_LOG_RETENTION)
    if table.properties.get(_CLEANUP, "true").lower() == "false":
        return
    if (interval_ms(retention) or 0) < expiry_ms:
        raise SinkError(
            f"{table.address} keeps its log for {retention} ({LOG_RETENTION}); the commit of a write is looked up "
            f"for up to {expiry_ms / 86_400_000:g} days.",
            f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('{LOG_RETENTION}' = '{_DEFAULT_LOG_RETENTION}'), or "
            "set share.exactly.once.write.expiry.ms of the group to less.",
        )


def _check_commits(table: SinkTable) -> None:
    if managed := table.features.intersection(_CATALOG_FEATURES):
        raise SinkError(
            f"The commits of {table.address} are kept by its catalog ({', '.join(sorted(managed))}), so that its log "
            "cannot be read from its folder.",
            "Use a table without this feature.",
        )


def _check_merge(table: SinkTable, columns: StructType, keys: tuple[str, ...]) -> None:
    if table.properties.get(_APPEND_ONLY, "false").lower() == "true":
        raise SinkError(
            f"{table.address} takes appended rows only ({_APPEND_ONLY} is true), and sink.mode is merge.",
            "Set sink.mode to append, or merge into another table.",
        )
    known = {name.lower() for name in columns.names}
    if missing := [key for key in keys if key.lower() not in known]:
        raise SinkError(
            f"{table.address} has no column {', '.join(missing)} of sink.merge.keys; it has "
            f"{', '.join(columns.names)}.",
            "Name columns of the table.",
        )
