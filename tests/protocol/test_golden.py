"""Messages and rows of version 1 can be read for ever. Never change a golden file; add one for what is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message, decoded_request, decoded_response, parsed
from sharegroup.protocol.rows import StateRow
from sharegroup.state.schema import decoded
from tools.schemas import BODIES, PAYLOADS, RESPONSES, exported_schemas

GOLDEN = Path(__file__).parent / "golden" / "v1"
ROWS = sorted((GOLDEN / "rows").glob("*.json"))


def lost(kept: Any, read: Any, path: str = "") -> list[str]:
    """Return the paths that were kept and are not read; additions of a later release do not matter."""
    if isinstance(kept, dict) and isinstance(read, dict):
        return [
            difference
            for key, value in kept.items()
            for difference in (lost(value, read[key], f"{path}.{key}") if key in read else [f"{path}.{key}"])
        ]
    if isinstance(kept, list) and isinstance(read, list) and len(kept) == len(read):
        pairs = enumerate(zip(kept, read, strict=True))
        return [difference for index, pair in pairs for difference in lost(*pair, path=f"{path}[{index}]")]
    return [] if kept == read else [f"{path} is {read!r}, was {kept!r}"]


@pytest.mark.parametrize("file", sorted([*GOLDEN.glob("requests/*.json"), *GOLDEN.glob("internal/*.json")]), ids=str)
def test_a_request_or_internal_message_is_read_whole(file: Path) -> None:
    value = file.read_bytes()
    envelope = decoded_request(value)
    body = parsed(BODIES[ApiKey(envelope.api_key)], envelope.body)
    read = {**envelope.model_dump(mode="json"), "body": body.model_dump(mode="json")}
    assert lost(json.loads(value), read) == []


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("responses/*.json")), ids=str)
def test_a_response_is_read_whole(file: Path) -> None:
    value = file.read_bytes()
    envelope = decoded_response(value)
    body = parsed(RESPONSES[ApiKey(envelope.api_key)], envelope.body)
    read = {**envelope.model_dump(mode="json"), "body": body.model_dump(mode="json")}
    assert lost(json.loads(value), read) == []


@pytest.mark.parametrize("file", ROWS, ids=str)
def test_a_row_is_read_whole(file: Path) -> None:
    for kept in json.loads(file.read_bytes()):
        row = StateRow.model_validate(kept)
        assert lost(kept, row.model_dump(mode="json")) == []
        assert any(is_read_whole_by(model, kept["payload"]) for model in PAYLOADS[row.record_type])


def is_read_whole_by(model: type[Message], payload: dict[str, Any]) -> bool:
    try:
        read = model.model_validate(payload)
    except ValidationError:
        return False
    return not lost(payload, read.model_dump(mode="json"))


def test_the_rows_are_read_from_the_table_s_own_files() -> None:
    kept = [StateRow.model_validate(row) for file in ROWS for row in json.loads(file.read_bytes())]
    read = [row for file in sorted(GOLDEN.glob("*.parquet")) for row in decoded(pq.read_table(file))]
    assert len(read) == len(kept)
    assert all(row in read for row in kept)


def test_every_kind_of_message_and_row_of_this_release_has_its_golden_file() -> None:
    kept = {file.relative_to(GOLDEN).as_posix() for file in GOLDEN.glob("*/*.json")}
    assert {name for name in exported_schemas() if not name.startswith("envelopes/")} <= kept
