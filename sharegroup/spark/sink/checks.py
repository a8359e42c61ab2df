"""Checks of a sink at the start: whether a table can keep what `sharegroup.spark.sink` promises.

Partitions, generated and identity columns, NOT NULL, column mapping, deletion vectors and row tracking change nothing
of it. What Delta forgets, and what it lets nobody look up, does.
"""

from __future__ import annotations

import re

from pyspark.sql.types import StructType

from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.config.spark_sink import MERGE, SparkSinkConfig
from sharegroup.errors import SinkError
from sharegroup.spark.sink.sink_table import SinkTable

_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"
_DEFAULT_LOG_RETENTION = "interval 30 days"
_CLEANUP = "delta.enableExpiredLogCleanup"
_APPEND_ONLY = "delta.appendOnly"
_CATALOG_FEATURES = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")
_UNITS_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_INTERVAL_PART = re.compile(r"(\d+)\s*([a-z]+?)s?\b")


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
    if (retention := table.properties.get(_TRANSACTION_RETENTION)) is not None:
        raise SinkError(
            f"{table.address} forgets transactions: {_TRANSACTION_RETENTION} is {retention}. A writer that is older "
            "would write its results a second time, and Spark cannot check that.",
            f"ALTER TABLE {table.identifier} UNSET TBLPROPERTIES ('{_TRANSACTION_RETENTION}').",
        )


def _check_log(table: SinkTable, expiry_ms: int) -> None:
    retention = table.properties.get(_LOG_RETENTION, _DEFAULT_LOG_RETENTION)
    if table.properties.get(_CLEANUP, "true").lower() == "false":
        return
    if (kept_ms := _interval_ms(retention)) is not None and kept_ms < expiry_ms:
        raise SinkError(
            f"{table.address} keeps its log for {retention} ({_LOG_RETENTION}); the commit of a write is looked up "
            f"for up to {expiry_ms / 86_400_000:g} days.",
            f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('{_LOG_RETENTION}' = '{_DEFAULT_LOG_RETENTION}'), or "
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


def _interval_ms(text: str) -> float | None:
    """Return the duration of an interval such as `interval 30 days`; None if it has another form."""
    parts = _INTERVAL_PART.findall(text.lower())
    if not parts or any(unit not in _UNITS_MS for _, unit in parts):
        return None
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
