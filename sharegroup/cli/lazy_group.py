"""Commands whose modules are imported when they are called, so that no command pays for the libraries of another."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click


class LazyCommand(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        module: the module.
        attribute: the command in it.
        summary: its line in the list of commands.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group of lazy commands.

    Args:
        name: the group's own name.
        lazy: name → command.
        help: what `--help` shows.
        epilog: what follows the list of commands there.
    """

    def __init__(self, name: str, lazy: Mapping[str, LazyCommand], help: str, epilog: str | None = None) -> None:
        super().__init__(name, help=help, epilog=epilog, no_args_is_help=True)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which they were given."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in self._lazy:
            return None
        lazy = self._lazy[cmd_name]
        command: click.Command = getattr(import_module(lazy.module), lazy.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])
