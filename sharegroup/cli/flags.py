"""Flags that several commands have, and what they select: the log, the state table, the processor."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sharegroup.config.loader import Settings, environment_variable, load_settings
from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.errors import ConfigurationError, MissingConfigurationError
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log

if TYPE_CHECKING:
    from sharegroup.client.admin import AdminClient
    from sharegroup.client.settings import ChannelTopics

DEFAULT_CONFIG = Path("sharegroup.yaml")
"""The settings of a command that names no file, when this one is in the working folder."""

PROPERTIES_FILE = click.Path(dir_okay=False, path_type=Path)
"""The type of a flag that names a file of properties."""

_FLAGS = {"log.path": "--log", "state.table.path": "--state-table"}
_UNUSED = "not-used-by-this-command"
_END_OF_NAME = re.compile(r"[:=\s]")
_EQUALS = re.compile(r"\s*=\s*")
Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Site:
    """The log, the state table and the settings that a command works on.

    Attributes:
        has_state_table: False if the settings do not name the state table.
    """

    settings: Settings
    has_state_table: bool = True

    @property
    def state_table_path(self) -> str:
        """The path of the state table."""
        return self.settings.processor.state_table_path

    @property
    def channel_topics(self) -> ChannelTopics:
        """The topics between members and the processor."""
        # Here and below: a command that asks no processor does not import its client.
        from sharegroup.client.settings import ChannelTopics

        processor = self.settings.processor
        return ChannelTopics(
            request_topic_name=processor.request_topic_name, response_topic_name=processor.response_topic_name
        )

    def open_log(self, must_exist: bool = True) -> Log:
        """Open the log; a mistyped path is an error unless the command creates the log."""
        return open_log(self.settings.log, must_exist)

    def admin_client(self, log: Log) -> AdminClient:
        """Return a client of the processor of an opened log."""
        from sharegroup.client.admin import AdminClient

        return AdminClient(log, "sharegroup", self.channel_topics)


def needs_log(command: Command) -> Command:
    """Add the flags of the log to a command, and pass their selection as `site`."""
    return _log_options(_with_site(command))


def needs_state_table(command: Command) -> Command:
    """Add the flags of the log and of the state table to a command, and pass their selection as `site`."""
    return _log_options(_table_option(_with_site(command)))


def needs_groups(command: Command) -> Command:
    """Add the flags of the log and of the state table, which may be unset, and pass their selection as `site`."""
    return _log_options(
        _table_option(_with_site(command, is_table_optional=True), " Without one the processor is asked.")
    )


def _with_site(command: Command, is_table_optional: bool = False) -> Command:
    @functools.wraps(command)
    def with_site(
        *,
        config: Path | None,
        overrides: tuple[str, ...],
        log: str | None,
        state_table: str | None = _UNUSED,
        **others: object,
    ) -> object:
        return command(site=_site(config, overrides, log, state_table, is_table_optional), **others)

    return with_site


def _table_option(command: Command, remark: str = "") -> Command:
    meaning = f"The Delta state table; short for --set state.table.path=PATH.{remark}"
    return click.option("--state-table", metavar="PATH", help=meaning)(command)


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


def _site(
    config: Path | None, overrides: tuple[str, ...], log: str | None, state_table: str | None, is_table_optional: bool
) -> Site:
    path = configuration_file(config)
    if state_table == _UNUSED:
        # The path that is set, and the options that belong to it, are taken where there is one.
        try:
            return _site(config, overrides, log, None, False)
        except MissingConfigurationError as error:
            if error.key != "state.table.path":
                raise
    flags = {"state.table.path": state_table, "log.path": log, "checkpoint.path": _UNUSED}
    try:
        pairs = [*overrides, *(f"{key}={value}" for key, value in flags.items() if value)]
        return Site(load_settings(path, os.environ, pairs))
    except MissingConfigurationError as error:
        if is_table_optional and error.key == "state.table.path":
            return Site(_site(config, overrides, log, _UNUSED, False).settings, has_state_table=False)
        if error.key not in _FLAGS:
            raise
        remedy = f"Give {_FLAGS[error.key]}, name a file with --config, or set {environment_variable(error.key)}."
        raise MissingConfigurationError(error.message, remedy, error.key) from None


def configuration_file(config: Path | None) -> Path | None:
    """Return the file that `--config` names, else the one of the working folder; None where there is neither."""
    return config if config is not None or not DEFAULT_CONFIG.is_file() else DEFAULT_CONFIG


def reporting_interval_option(what: str) -> Callable[[Command], Command]:
    """Return the flag `--reporting-interval` of Kafka's performance tools.

    Args:
        what: its help.
    """
    return click.option(
        "--reporting-interval",
        type=click.IntRange(min=1),
        default=5_000,
        show_default=True,
        metavar="MS",
        help=what,
    )


def timeout_option(command: Command) -> Command:
    """Add the flag `--timeout`, as Kafka's tools have it."""
    return click.option(
        "--timeout",
        "--timeout-ms",
        "timeout_ms",
        metavar="MS",
        type=click.IntRange(min=1),
        default=10_000,
        show_default=True,
        help="How long to wait for the processor's response, in ms.",
    )(command)


def parse_offsets(text: str, flag: str) -> OffsetRange:
    """Return the first and the last offset of a flag's value: `17`, or `10-20`.

    Raises:
        BadParameter: the text has another form, the first offset is above the last, or one has more than 18 digits,
            beyond which columns of 64 bits end.
    """
    match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if first > last:
        raise click.BadParameter(f"{text!r} is neither an offset like 17 nor a range like 10-20.", param_hint=flag)
    return first, last


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return key → value of `key=value` texts; of a repeated key the last one counts.

    Raises:
        ConfigurationError: a text has no `=`.
    """
    properties: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # The rest may be a secret.
            name = _END_OF_NAME.split(pair.strip())[0]
            raise ConfigurationError(f"{name!r} is no property.", "Write it as key=value.")
        properties[key.strip()] = value
    return properties


def read_properties(path: Path | None, pairs: Iterable[str]) -> dict[str, str]:
    """Return the properties of a file, and over them those of flags.

    Args:
        path: lines of `key=value` or `key = value`; empty ones and those that begin with `#` or `!` are skipped. None
            for no file.
        pairs: the arguments of the flags.

    Raises:
        ConfigurationError: the file cannot be read, or a line or an argument has no `=`.
    """
    lines: list[str] = []
    if path is not None:
        try:
            stripped = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
            lines = [_EQUALS.sub("=", line, count=1) for line in stripped]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"The file {path} cannot be read: {error}.") from error
    return parse_pairs([*(line for line in lines if line and not line.startswith(("#", "!"))), *pairs])
