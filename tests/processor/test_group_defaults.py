"""The YAML file gives what a group starts with; what was altered at runtime persists."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroup.cli.group_commands import configure
from sharegroup.config.broker import BrokerConfig
from sharegroup.processor.assembly import initial_configuration, log_configuration_not_in_force
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import AlterGroupConfigRequest
from sharegroup.protocol.group_records import GroupRecord, ShareGroupConfig, ShareGroupMetadata, ShareGroupRemoved
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedState, fold

YAML = {
    "orders": {"share.delivery.count.limit": "3", "share.auto.offset.reset": "earliest"},
    "payments": {"share.auto.offset.reset": "earliest"},
}


def state(*records: GroupRecord, group_id: str = "orders") -> FoldedState:
    payload = {"records": [record.model_dump(mode="json") for record in records]}
    row = StateRow(record_type=RecordType.GROUP_METADATA, group_id=group_id, payload=payload)
    return fold([row])


def sent(folded: FoldedState) -> dict[str, dict[str, str]]:
    """Return what each group is configured with, by the messages."""
    messages = initial_configuration(folded, YAML)
    assert {message.api_key for message in messages} <= {ApiKey.INCREMENTAL_ALTER_CONFIGS}
    bodies = {message.group_id: parsed(AlterGroupConfigRequest, message.body) for message in messages}
    assert all(body.delete == [] for body in bodies.values())
    return {group_id: body.set for group_id, body in bodies.items()}


def warnings(
    caplog: pytest.LogCaptureFixture, folded: FoldedState, groups: Mapping[str, Mapping[str, str]] = YAML
) -> list[str]:
    with caplog.at_level(logging.INFO, "sharegroup.processor"):
        log_configuration_not_in_force(folded, groups, BrokerConfig())
    return [f"{record.levelname} {record.msg}" for record in caplog.records]


def test_a_new_group_starts_with_what_the_file_has(caplog: pytest.LogCaptureFixture) -> None:
    assert sent(FoldedState()) == YAML
    assert warnings(caplog, FoldedState()) == []


def test_a_group_without_keys_gets_no_message() -> None:
    assert initial_configuration(FoldedState(), {"orders": {}}) == []


def test_what_was_altered_stays(caplog: pytest.LogCaptureFixture) -> None:
    folded = state(
        ShareGroupConfig(overrides={"share.delivery.count.limit": "7", "share.auto.offset.reset": "earliest"})
    )
    assert "orders" not in sent(folded)
    assert warnings(caplog, folded) == [
        "WARNING event=group_configuration_not_in_force group=orders keys=share.delivery.count.limit "
        'command="sharegroup groups configure --group orders --alter --add-config share.delivery.count.limit=3"'
    ]


def test_what_was_deleted_stays_deleted(caplog: pytest.LogCaptureFixture) -> None:
    folded = state(ShareGroupMetadata(epoch=4))
    assert "orders" not in sent(folded)
    (line,) = warnings(caplog, folded)
    assert "keys=share.auto.offset.reset,share.delivery.count.limit" in line
    assert "--add-config share.auto.offset.reset=earliest,share.delivery.count.limit=3" in line


@pytest.mark.parametrize(
    ("altered", "wanted"),
    [({"share.delivery.count.limit": "3"}, "+3"), ({}, "5")],
    ids=["another spelling", "the default"],
)
def test_a_value_that_is_in_force_needs_no_warning(
    caplog: pytest.LogCaptureFixture, altered: dict[str, str], wanted: str
) -> None:
    folded = state(ShareGroupMetadata(epoch=4), ShareGroupConfig(overrides=altered))
    assert warnings(caplog, folded, {"orders": {"share.delivery.count.limit": wanted}}) == []


def test_a_removed_group_starts_again() -> None:
    folded = state(ShareGroupConfig(overrides={"share.delivery.count.limit": "7"}), ShareGroupRemoved(reason="deleted"))
    assert sent(folded) == YAML


def test_the_command_is_one_that_the_command_line_takes(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    group_id = "two words"
    (line,) = warnings(caplog, state(ShareGroupMetadata(epoch=4), group_id=group_id), {group_id: YAML["orders"]})
    words = shlex.split(json.loads(line.partition("command=")[2]))
    assert words[:3] == ["sharegroup", "groups", "configure"]
    missing = str(tmp_path / "missing.db")
    result = CliRunner().invoke(configure, [*words[3:], "--log", missing, "--state-table", str(tmp_path)])
    # All flags are taken: it is the log that there is none of.
    assert missing in str(result.exception)
