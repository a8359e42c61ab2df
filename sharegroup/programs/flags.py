"""Flags that the programs share, and their settings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from sharegroup.cli.flags import DEFAULT_CONFIG, configuration_file
from sharegroup.config.loader import Settings, load_settings
from sharegroup.environment import WITHOUT_SPARK
from sharegroup.errors import ConfigurationError, EnvironmentNotReadyError, MissingConfigurationError
from sharegroup.exit_code import exit_codes_text

Command = Callable[..., Any]

EPILOG = f"\b\n{exit_codes_text()}"


def program_flags(once: str, wait: str, wait_s: float) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags of all programs to a command.

    Args:
        once: help of the flag `--once`.
        wait: help of the flag `--wait`, without its default.
        wait_s: default of the flag `--wait`.
    """

    file = click.Path(dir_okay=False, path_type=Path)
    options = (
        click.option("--config", type=file, help=f"Configuration file; {DEFAULT_CONFIG} when it is there."),
        click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key of it; repeatable."),
        click.option("--once", is_flag=True, help=once),
        click.option("--wait", "wait_s", type=float, default=wait_s, metavar="SECONDS", show_default=True, help=wait),
        click.option("--verbose", is_flag=True, help="Log every commit or batch, and the events of Spark."),
    )
    return lambda command: functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def load_program_settings(config: Path | None, overrides: Sequence[str]) -> Settings:
    """Return the settings of a program, from its flags, the environment and its file.

    Raises:
        ConfigurationError: a key or value is wrong, or nothing names the log.
    """
    path = configuration_file(config)
    try:
        return load_settings(path, os.environ, overrides)
    except MissingConfigurationError as error:
        if path is not None:
            raise
        remedy = f"Run `sharegroup init`, which writes {DEFAULT_CONFIG}, or name a file with --config."
        raise ConfigurationError(error.message, remedy) from None


def check_spark_installed() -> None:
    """Check that there is a PySpark, without importing it.

    Raises:
        EnvironmentNotReadyError: there is none.
    """
    if find_spec("pyspark") is None:
        raise EnvironmentNotReadyError(
            "PySpark is not installed.", f"Install it: pip install 'sharegroup[spark]'. {WITHOUT_SPARK}"
        )
