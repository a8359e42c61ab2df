"""The schemas are what the models say, and leave nothing out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.protocol.api_key import INTERNAL_KEYS, ApiKey
from sharegroup.protocol.rows import RecordType
from tools.schemas import BODIES, PAYLOADS, RESPONSES, exported_schemas, write_schemas

SCHEMAS = Path(__file__).parents[2] / "schemas"


def files(folder: Path) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in folder.glob("*/*.json")}


STORED = files(SCHEMAS)


def test_the_schemas_are_up_to_date() -> None:
    assert exported_schemas() == STORED, "run make schemas"


def test_every_kind_of_message_and_of_row_has_its_schema() -> None:
    assert BODIES.keys() == set(ApiKey)
    assert RESPONSES.keys() == set(ApiKey) - INTERNAL_KEYS - {ApiKey.MEMBER_ALIVE}
    assert PAYLOADS.keys() == set(RecordType)
    assert len(STORED) == 2 + len(BODIES) + len(RESPONSES) + len(PAYLOADS)


def objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and those that it is made of."""
    yield schema
    yield from schema.get("$defs", {}).values()


@pytest.mark.parametrize("name", sorted(STORED))
def test_every_message_and_every_field_says_what_it_is_about(name: str) -> None:
    schema = json.loads(STORED[name])
    assert all(model["description"] for model in objects(schema))
    silent = [
        f"{model['title']}.{field}"
        for model in objects(schema)
        for field, described in model.get("properties", {}).items()
        if not described.get("description") and "const" not in described  # a constant speaks for itself
    ]
    assert silent == []


@pytest.mark.parametrize(
    "name", [name for name in sorted(STORED) if name.split("/")[0] in ("requests", "responses", "internal")]
)
def test_every_message_names_its_kind_and_version(name: str) -> None:
    schema = json.loads(STORED[name])
    assert ApiKey(schema["api_key"]) in BODIES
    assert schema["api_version"] == 1


def test_a_schema_of_something_that_is_gone_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / "rows" / "Gone.json"
    stale.parent.mkdir()
    stale.write_text("{}", encoding="utf-8")
    write_schemas(tmp_path)
    assert files(tmp_path) == STORED
