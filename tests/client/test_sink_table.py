"""Tables that delta-rs can write into exactly once, and those that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_commits import WritePart
from sharegroup.client.sink_table import SinkTable, check_table, interval_ms
from sharegroup.errors import SinkError
from sharegroup.protocol.sink_writes import UnresolvedWrite

DAY_MS = 86_400_000


def checked(
    properties: Mapping[str, str] | None = None,
    features: tuple[str, ...] = (),
    columns: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    check_table(SinkTable("/sink", features, properties or {}, columns or {}))


@pytest.mark.parametrize(
    ("properties", "features", "columns", "text"),
    [
        ({"delta.columnMapping.mode": "name"}, (), {}, "column mapping"),
        ({"delta.enableRowTracking": "true"}, (), {}, "row tracking"),
        ({}, ("appendOnly", "deletionVectors"), {}, "deletionVectors"),
        ({}, ("columnMapping",), {}, "columnMapping"),
        ({}, (), {"id": {"delta.identity.start": 1}}, "Column id .* an identity column"),
        ({}, (), {"day": {"delta.generationExpression": "CAST(t AS DATE)"}}, "Column day .* a generated column"),
        ({}, ("allowColumnDefaults",), {"kind": {"CURRENT_DEFAULT": "'x'"}}, "Column kind .* a default value"),
        ({"delta.setTransactionRetentionDuration": "interval 7 days"}, (), {}, "interval 169 hours"),
        ({"delta.setTransactionRetentionDuration": "interval 1 month"}, (), {}, "'interval 1 month'"),
        ({"delta.logRetentionDuration": "interval 2 days"}, (), {}, "interval 168 hours"),
    ],
)
def test_what_would_not_be_exactly_once_is_refused(
    properties: Mapping[str, str], features: tuple[str, ...], columns: Mapping[str, Mapping[str, Any]], text: str
) -> None:
    with pytest.raises(SinkError, match=text):
        checked(properties, features, columns)


def test_what_is_harmless_is_accepted() -> None:
    checked(
        {
            "delta.appendOnly": "true",
            "delta.columnMapping.mode": "none",
            "delta.enableChangeDataFeed": "false",
            "delta.setTransactionRetentionDuration": "interval 2 weeks",
            "delta.logRetentionDuration": "interval 1 day",
            "delta.enableExpiredLogCleanup": "false",
        },
        ("appendOnly", "invariants", "generatedColumns", "identityColumns"),
        {"value": {"comment": "of the sensor"}},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 2 weeks", 14 * DAY_MS),
        ("INTERVAL 1 DAY 12 HOURS", DAY_MS * 3 // 2),
        ("interval 40 seconds", 40_000),
        ("interval 1 month", None),
        ("soon", None),
    ],
)
def test_durations_are_those_of_delta(text: str, expected: int | None) -> None:
    assert interval_ms(text) == expected


def test_a_partitioned_table_with_columns_that_must_not_be_null_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "sink")
    schema = pa.schema([pa.field("day", pa.string(), nullable=False), pa.field("value", pa.int64(), nullable=False)])
    DeltaTable.create(path, schema, partition_by=["day"], configuration={"delta.appendOnly": "true"})
    with DeltaSink(path) as sink:
        sink.check()
        write = UnresolvedWrite(
            app_id="a/0", version=1, table_id=sink.sink.table_id, address=path, sink_version=sink.sink.version
        )
        rows = pa.table({"day": ["mo", "tu"], "value": [1, 2]}, schema=schema)
        assert sink.commit([WritePart(write)], rows).is_written
        fenced = write.model_copy(update={"app_id": "a/1"})
        sink.resolve(fenced)
        assert not sink.commit([WritePart(fenced)], rows).is_written
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2


def test_a_sink_is_refused_by_the_check(tmp_path: Path) -> None:
    path = str(tmp_path / "sink")
    write_deltalake(path, pa.table({"value": [1]}), configuration={"delta.logRetentionDuration": "interval 1 hour"})
    with DeltaSink(path) as sink, pytest.raises(SinkError, match="logRetentionDuration of"):
        sink.check()
