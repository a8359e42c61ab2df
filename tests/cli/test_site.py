"""Where commands find the log and the state table, and what they say of wrong settings."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine


def test_the_settings_of_the_working_folder(cli: CommandLine) -> None:
    cli.out("topics", "create", "--topic", "orders")
    assert (cli.folder / "events.log").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ("--log", "other.log"),
        ("--set", "log.path=other.log"),
        ("--config", "other.yaml"),
        ("--set", "log.path=events.log", "--log", "other.log"),
    ],
    ids=" ".join,
)
def test_other_settings(cli: CommandLine, flags: tuple[str, ...]) -> None:
    (cli.folder / "other.yaml").write_text("log.path: other.log", encoding="utf-8")
    cli.out("topics", "create", "--topic", "orders", *flags)
    assert (cli.folder / "other.log").exists()
    assert not (cli.folder / "events.log").exists()


def test_settings_of_the_environment(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREGROUP_LOG_PATH", "other.log")
    cli.out("topics", "create", "--topic", "orders")
    assert (cli.folder / "other.log").exists()


def test_without_settings_the_error_names_the_flag(cli: CommandLine) -> None:
    (cli.folder / "sharegroup.yaml").unlink()
    error = cli.error("topics", "list", exit_code=2)
    assert error.startswith("error: Missing required configuration log.path")
    assert "--log" in error
    cli.out("topics", "create", "--topic", "orders", "--log", "events.log")
    error = cli.error("audit", "verify", "--log", "events.log", exit_code=2)
    assert error.startswith("error: Missing required configuration state.table.path")
    assert "--state-table" in error


def test_wrong_settings_are_named_with_their_origin(cli: CommandLine) -> None:
    assert cli.error("topics", "list", "--set", "log.paht=x", exit_code=2) == (
        "error: Unknown configuration log.paht (from flag --set log.paht=x). Did you mean log.path?\n"
    )


def test_a_flag_that_is_none(cli: CommandLine) -> None:
    assert "No such option" in cli.error("topics", "list", "--nonsense", exit_code=2)


def test_a_command_of_the_log_alone_leaves_a_table_on_a_store_alone(cli: CommandLine) -> None:
    cli.out("topics", "create", "--topic", "orders")
    settings = "log.path: events.log\nstate.table.path: s3://b/t\nstate.table.storage.aws_region: eu-1\n"
    (cli.folder / "store.yaml").write_text(settings, encoding="utf-8")
    assert "orders" in cli.out("topics", "list", "--config", "store.yaml")
