"""The program of docs/exactly_once.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.client.admin import AdminClient
from sharegroup.logs.local import LocalLog
from tests.support.eventually import eventually

DOCUMENT = Path(__file__).parents[2] / "docs" / "exactly_once.md"


def test_the_program_writes_each_record_once(
    log: LocalLog, produce: Callable[[str, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    AdminClient(log).alter_group_config(
        "totals", {"share.auto.offset.reset": "earliest", "share.exactly.once.enable": "true"}
    )
    produce("orders", 30)
    write_deltalake("totals", pa.schema([("offset", pa.int64()), ("value", pa.binary())]).empty_table())
    (text,) = re.findall(r"\n\n```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    program: dict[str, object] = {}
    exec(text, program)
    consumer, write_next = program["consumer"], program["write_next"]

    def are_written() -> bool:
        write_next()  # type: ignore[operator]
        return bool(DeltaTable("totals").to_pyarrow_table().num_rows >= 30)

    eventually(are_written, "all results are written")
    consumer.close()  # type: ignore[attr-defined]
    assert sorted(DeltaTable("totals").to_pyarrow_table()["offset"].to_pylist()) == list(range(30))
