"""The conditions under which delta-rs can write results into a table exactly once. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sharegroup.errors import SinkError

WRITE_EXPIRY_MS = 7 * 24 * 60 * 60 * 1_000
"""Default of `share.exactly.once.write.expiry.ms`: a write is decided within this time after its acquisition."""
CLOCK_DIFFERENCE_MS = 60 * 60 * 1_000
"""Most by which the clocks of a table's writers and readers differ."""

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
_LOG_CLEANUP = "delta.enableExpiredLogCleanup"
_DEFAULT_LOG_RETENTION_MS = 30 * 24 * 60 * 60 * 1_000

_WRITABLE = frozenset({"appendOnly", "invariants", "checkConstraints", "timestampNtz"})
"""Features of tables that delta-rs writes, each as Spark does."""
_OF_COLUMNS = frozenset({"generatedColumns", "identityColumns", "allowColumnDefaults"})
"""Features that concern the columns that have them, and no others."""
_BY_SPARK = "Use a table without it, or write to it with a Spark worker."

_PROPERTIES: Mapping[str, tuple[str, Collection[str]]] = {
    "delta.columnMapping.mode": ("column mapping", ("", "none")),
    "delta.enableChangeDataFeed": ("change data feed", ("", "false")),
    "delta.enableRowTracking": ("row tracking", ("", "false")),
    "delta.enableIcebergCompatV1": ("Iceberg's compatibility", ("", "false")),
    "delta.enableIcebergCompatV2": ("Iceberg's compatibility", ("", "false")),
}
"""Property → the feature in words, and the values with which it is off."""
_COLUMNS: Mapping[str, str] = {
    "delta.generationExpression": "a generated column, which delta-rs does not compute",
    "delta.identity.start": "an identity column, which delta-rs does not fill",
    "CURRENT_DEFAULT": "a column with a default value, which delta-rs does not fill",
}
"""Key of a column's metadata → the feature in words."""

_UNITS_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_INTERVAL = re.compile(r"(\d+)\s+([a-z]+?)s?\b", re.IGNORECASE)


class SinkTable(NamedTuple):
    """The parts of a table's protocol and metadata that are checked.

    Attributes:
        features: names of its writer's features; empty for the protocols before version 7.
        properties: its properties.
        columns: name of a column → its metadata.
    """

    address: str
    features: Collection[str]
    properties: Mapping[str, str]
    columns: Mapping[str, Mapping[str, Any]]


def check_table(table: SinkTable, expiry_ms: int = WRITE_EXPIRY_MS) -> None:
    """Check that delta-rs can write into a table exactly once.

    Args:
        expiry_ms: `share.exactly.once.write.expiry.ms` of the group.

    Raises:
        SinkError: it has a feature that delta-rs does not write, or forgets transactions or commits too early.
    """
    for property_name, (feature, off) in _PROPERTIES.items():
        if (value := table.properties.get(property_name, "")).lower() not in off:
            raise SinkError(f"{table.address} has {feature} ({property_name} is {value}).", _BY_SPARK)
    for column, metadata in table.columns.items():
        for key, feature in _COLUMNS.items():
            if key in metadata:
                raise SinkError(f"Column {column} of {table.address} is {feature}.", _BY_SPARK)
    if unknown := sorted(set(table.features) - _WRITABLE - _OF_COLUMNS):
        raise SinkError(f"{table.address} has the feature {unknown[0]}, which delta-rs does not write.", _BY_SPARK)
    _check_retention(table, expiry_ms)


def forgets_transactions(properties: Mapping[str, str]) -> bool:
    """Return True if a table forgets transactions after some time."""
    return TRANSACTION_RETENTION in properties


def _check_retention(table: SinkTable, expiry_ms: int) -> None:
    least_ms = expiry_ms + CLOCK_DIFFERENCE_MS
    if forgets_transactions(table.properties):
        _check_least(table, TRANSACTION_RETENTION, least_ms)
    if table.properties.get(_LOG_CLEANUP, "true").lower() != "false":
        _check_least(table, LOG_RETENTION, expiry_ms)


def _check_least(table: SinkTable, property_name: str, least_ms: int) -> None:
    text = table.properties.get(property_name)
    retention_ms = _DEFAULT_LOG_RETENTION_MS if text is None else interval_ms(text)
    if retention_ms is not None and retention_ms >= least_ms:
        return
    hours = -(-least_ms // 3_600_000)
    raise SinkError(
        f"{property_name} of {table.address} is {text or '30 days'!r}; a write may have to be looked up for {hours} "
        "hours.",
        f"Set it to 'interval {hours} hours' or more, or lower share.exactly.once.write.expiry.ms.",
    )


def interval_ms(text: str) -> int | None:
    """Return a duration such as `interval 2 weeks`, in ms; None if it is none."""
    parts: Iterable[tuple[str, str]] = _INTERVAL.findall(text)
    lengths = [int(count) * _UNITS_MS.get(unit.lower(), 0) for count, unit in parts]
    return sum(lengths) if lengths and all(lengths) else None
