"""`sharegroup init`: its files, and what it leaves alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroup.cli.flags import DEFAULT_CONFIG
from sharegroup.config.loader import load_settings
from sharegroup.exit_code import ExitCode
from sharegroup.programs.main import program
from sharegroup.programs.project import FILES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_has_settings_and_a_handler(folder: Path) -> None:
    result = CliRunner().invoke(program, ["init"])
    assert result.exit_code == ExitCode.OK
    assert "Wrote sharegroup.yaml and handler.py. Next:" in result.output
    settings = load_settings(folder / DEFAULT_CONFIG, {})
    assert settings.worker_config().topics == ("orders",)
    assert set(settings.groups) == {settings.worker["group.id"]}
    functions = [node.name for node in ast.parse((folder / "handler.py").read_text()).body if hasattr(node, "name")]
    assert functions == ["handle"]


def test_another_folder_is_made(folder: Path) -> None:
    result = CliRunner().invoke(program, ["init", "new/project"])
    assert "in new/project" in result.output
    assert {path.name for path in (folder / "new" / "project").iterdir()} == set(FILES)


def test_nothing_is_written_over(folder: Path) -> None:
    (folder / "handler.py").write_text("# mine\n")
    result = CliRunner().invoke(program, ["init"])
    assert result.exit_code == ExitCode.USAGE
    assert f"handler.py is there already, in {folder}." in result.stderr
    assert [path.name for path in folder.iterdir()] == ["handler.py"]
    assert (folder / "handler.py").read_text() == "# mine\n"
