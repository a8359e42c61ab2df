"""Where a command finds the log, the state table and everything else that is configured, and the flags that say so."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sharegroup.config.loader import Settings, environment_variable, load_settings
from sharegroup.errors import ConfigurationError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log

DEFAULT_CONFIG = Path("conf/local.yaml")
"""The settings of a command that names no file, when this one is in the working folder."""

_FLAGS = {"log.path": "--log", "state.table.path": "--state-table"}
_NOT_USED = "not-used-by-this-command"

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Site:
    """What the flags of a command have selected.

    Attributes:
        settings: all settings.
    """

    settings: Settings

    @property
    def state_table_path(self) -> str:
        """The state table."""
        return self.settings.processor.state_table_path

    def open_log(self, must_exist: bool = True) -> Log:
        """The log; a mistyped path is an error unless the command is there to create things."""
        return open_log(self.settings.log, must_exist)


def needs_log(command: Command) -> Command:
    """Give a command the log's flags, and what they select as `site`."""

    @functools.wraps(command)
    def with_site(*, config: Path | None, overrides: tuple[str, ...], log: str | None, **others: object) -> object:
        return command(site=_site(config, (*overrides, f"state.table.path={_NOT_USED}"), log), **others)

    return _log_options(with_site)


def needs_state_table(command: Command) -> Command:
    """Give a command the flags of the log and of the state table, and what they select as `site`."""

    @functools.wraps(command)
    def with_site(
        *, config: Path | None, overrides: tuple[str, ...], log: str | None, state_table: str | None, **others: object
    ) -> object:
        table = [f"state.table.path={state_table}"] if state_table else []
        return command(site=_site(config, (*overrides, *table), log), **others)

    option = click.option(
        "--state-table", metavar="PATH", help="The Delta state table; short for --set state.table.path=PATH."
    )
    return _log_options(option(with_site))


def _log_options(command: Command) -> Command:
    log = click.option("--log", metavar="PATH", help="The log; short for --set log.path=PATH.")
    overrides = click.option(
        "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key of the configuration; repeatable."
    )
    config = click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        help=f"Configuration file; {DEFAULT_CONFIG} when it is there.",
    )
    return config(overrides(log(command)))


def _site(config: Path | None, overrides: tuple[str, ...], log: str | None) -> Site:
    path = config if config is not None or not DEFAULT_CONFIG.is_file() else DEFAULT_CONFIG
    given = [*overrides, *([f"log.path={log}"] if log else []), f"checkpoint.path={_NOT_USED}"]
    try:
        return Site(load_settings(path, os.environ, given))
    except ConfigurationError as error:
        for key, flag in _FLAGS.items():
            if error.message.startswith(f"Missing required configuration {key} "):
                remedy = f"Give {flag}, name a file with --config, or set {environment_variable(key)}."
                raise ConfigurationError(error.message, remedy) from None
        raise
