"""The document of the command line is right: its first session, and the JSON documents."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.exit_code import ExitCode
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.programs.project import write_project
from tests.cli.conftest import CommandLine
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually

ROOT = Path(__file__).parents[2]
COMMAND_LINE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
(TRANSCRIPT,) = re.findall(r"<!-- commands -->\n```\n(.*?)```", COMMAND_LINE, re.DOTALL)
DOCUMENTS = dict(re.findall(r"<!-- json: (.+?) -->\n```json\n(.*?)```", COMMAND_LINE, re.DOTALL))


@pytest.mark.slow
def test_the_commands_of_the_readme_print_the_shown_output(tmp_path: Path) -> None:
    write_project(tmp_path)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SHAREGROUP_", "COLUMNS"))}
    environment = {**inherited, "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited["PATH"]])}
    shown = re.split(r"^\$ ", TRANSCRIPT, flags=re.MULTILINE)[1:]
    assert len(shown) >= 6
    folder = tmp_path / "data"
    with LocalLog(folder / "log.db") as log, ProcessorPeer(log, table_path=str(folder / "state")):
        for entry in shown:
            command, _, output = entry.replace("\\\n", " ").partition("\n")
            ran = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"], cwd=tmp_path, env=environment, capture_output=True, check=False
            )
            assert without_padding(ran.stdout.decode()) == without_padding(output), command


def test_json_documents_have_the_keys_that_are_shown(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * 30)
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "max.poll.records": 30,
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        assert len(member.poll(DEADLINE_S)) == 30
        eventually(lambda: cli.json("groups", "list")[0]["locked_count"] == 30, "the table shows the locks")
        flags_of = {
            "topics describe": ["--topic", "orders"],
            "groups list": [],
            "topics peek": ["--topic", "orders", "--group", "packers", "--max-messages", "1"],
            "groups describe": ["--all-groups"],
            "audit verify": [],
            "audit as-of": ["--group", "packers"],
            "audit diff": ["--from", "commit:0", "--group", "packers"],
            "audit lineage": shlex.split("--topic orders --partition 0 --offset 0"),
            "audit stats": ["--group", "packers"],
            "audit report": ["--group", "packers", "--file", "report.html"],
        }
        for command, flags in flags_of.items():
            assert shape(cli.json(*command.split(), *flags)) == shape(json.loads(DOCUMENTS[command])), command
    lines = map(json.loads, cli.out("audit", "export", "--group", "packers").splitlines())
    exported = [line for line in lines if line["topic"] == "__share_group_state"]
    assert shape(exported[0]) == shape(json.loads(DOCUMENTS["audit export"]))
    line = cli.out("consume", "--topic", "orders", "--group", "packers", "--max-messages", "1", "--output", "json")
    assert shape(json.loads(line)) == shape(json.loads(DOCUMENTS["consume"]))


def test_exit_codes_are_those_of_all_programs() -> None:
    codes = re.findall(r"^\| ([0-9, ]+) \|", COMMAND_LINE, re.MULTILINE)
    never = {ExitCode.FENCED}
    assert codes == [*(str(code.value) for code in ExitCode if code not in never), "130, 143"]


def shape(document: object) -> object:
    """Names and nesting of a JSON document, with the first entry standing for each list."""
    if isinstance(document, dict):
        return {key: shape(value) for key, value in document.items()}
    if isinstance(document, list):
        return [shape(document[0])] if document and isinstance(document[0], dict) else []
    return None


def without_padding(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]
