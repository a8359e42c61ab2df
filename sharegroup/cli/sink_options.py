"""The flag of commands that open sinks: the options of their stores."""

from __future__ import annotations

from pathlib import Path

import click

from sharegroup.cli.flags import PROPERTIES_FILE, read_properties

_STORAGE = "sink.storage."

sink_config_option = click.option(
    "--sink-config",
    metavar="FILE",
    type=PROPERTIES_FILE,
    help=f"File of the sink's options, a line {_STORAGE}K=V each.",
)
"""Passes the path of the file as `sink_config`, None without it."""


def sink_options(path: Path | None) -> dict[str, str]:
    """Return the options of delta-rs in a file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    options = {} if path is None else read_properties(path, ())
    if unknown := next((key for key in options if not key.startswith(_STORAGE)), None):
        raise click.BadParameter(f"{unknown!r} is no key {_STORAGE}….", param_hint="--sink-config")
    return {key.removeprefix(_STORAGE).lower(): value for key, value in options.items()}
