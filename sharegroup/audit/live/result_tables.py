"""The tables of the live auditor: findings, and one row of statistics for each share-partition and minute.

A batch that Spark repeats is not appended twice: the Delta log has its number. An auditor that begins from the start,
without its checkpoint, comes to minutes that are in the table already: they are left out.

delta-rs writes them: Spark's first append to a Delta table takes ten seconds of CPU, in which the auditor falls behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from sharegroup.audit.live.minute_statistics import MinuteRow
from sharegroup.errors import EnvironmentNotReadyError

FINDINGS = "findings"
"""Folder of the table of findings."""
STATISTICS = "statistics"
"""Folder of the table of statistics."""

_TIME = pa.timestamp("us", "UTC")
_FINDING_SCHEMA = pa.schema(
    [
        ("noticed_at", _TIME),
        ("location", pa.string()),
        ("invariant", pa.string()),
        ("detail", pa.string()),
        ("request_offset", pa.int64()),
    ]
)
_ARROW_TYPES = {"group_id": pa.string(), "topic": pa.string(), "topic_id": pa.string(), "partition": pa.int32()}
_STATISTICS_SCHEMA = pa.schema(
    [("minute", _TIME)]
    + [
        (field.name, _ARROW_TYPES.get(field.name, pa.int64()))
        for field in fields(MinuteRow)
        if field.name != "minute_ms"
    ]
)
_KEY = ("group_id", "topic_id", "partition")
_Minute = Mapping[str, Any]


class ResultTables:
    """Appends to the tables; only one auditor at a time does.

    Args:
        output: folder of the tables.
        name: name of the checkpoint: batches of each are numbered from the start.

    Raises:
        EnvironmentNotReadyError: a table can neither be read nor written; each method raises it, too.
    """

    def __init__(self, output: Path, name: str) -> None:
        self._output = output
        self._name = name
        self._written_ms: dict[tuple[Any, ...], int] | None = None

    def add_findings(self, findings: Iterable[Mapping[str, Any]], now_ms: int, batch_id: int) -> None:
        """Append findings."""
        self._append(FINDINGS, _FINDING_SCHEMA, [{"noticed_at": now_ms * 1_000, **f} for f in findings], batch_id)

    def add_minutes(self, minutes: Sequence[_Minute], batch_id: int) -> list[_Minute]:
        """Append the minutes that are not in the table yet, and return them."""
        if not minutes:
            return []
        if self._written_ms is None:
            self._written_ms = self._last_minutes_ms(min(minute["minute_ms"] for minute in minutes))
        new: list[_Minute] = []
        for minute in minutes:
            key = tuple(minute[name] for name in _KEY)
            if minute["minute_ms"] > self._written_ms.get(key, -1):
                self._written_ms[key] = minute["minute_ms"]
                new.append(minute)
        rows = [{**minute, "minute": minute["minute_ms"] * 1_000} for minute in new]
        self._append(STATISTICS, _STATISTICS_SCHEMA, rows, batch_id)
        return new

    def _last_minutes_ms(self, since_ms: int) -> dict[tuple[Any, ...], int]:
        """Return the last minute of each share-partition in the table, of those since one."""
        last_ms: dict[tuple[Any, ...], int] = {}
        path = str(self._output / STATISTICS)
        with _translated(path):
            if not DeltaTable.is_deltatable(path):
                return last_ms
            schema = pa.schema([_STATISTICS_SCHEMA.field(name) for name in ("minute", *_KEY)])
            for piece in pa.RecordBatchReader.from_stream(DeltaTable(path).scan(columns=schema.names)):
                minutes = pa.Table.from_batches([piece]).cast(schema)
                recent = minutes.filter(pc.greater_equal(minutes["minute"], pa.scalar(since_ms * 1_000, _TIME)))
                times_ms = pc.divide(recent["minute"].cast(pa.int64()), 1_000).to_pylist()
                for minute, time_ms in zip(recent.select(_KEY).to_pylist(), times_ms, strict=True):
                    key = tuple(minute[name] for name in _KEY)
                    last_ms[key] = max(last_ms.get(key, -1), time_ms)
        return last_ms

    def _append(self, folder: str, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], batch_id: int) -> None:
        if not rows:
            return
        path = str(self._output / folder)
        name = f"{self._name}-{folder}"
        with _translated(path):
            table = DeltaTable(path) if DeltaTable.is_deltatable(path) else None
            written = table.transaction_version(name) if table is not None else None
            if written is None or written < batch_id:
                content = pa.Table.from_pylist(rows, schema=schema)
                properties = CommitProperties(app_transactions=[Transaction(name, batch_id)])
                write_deltalake(table or path, content, mode="append", commit_properties=properties)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate errors of the libraries."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise EnvironmentNotReadyError(
            f"Table {path} of the live auditor cannot be read or written: {reason}.",
            "Give this user the right to write the folder, and free space on its disk, or start with an empty one.",
        ) from error
