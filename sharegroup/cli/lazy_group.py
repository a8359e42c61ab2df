"""Commands whose modules are imported when they are called, so that a command loads only its own libraries."""

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
    """A group of commands in the order of their definition, then of lazy ones.

    Args:
        name: the group's own name.
        help: the text of `--help`.
        lazy: name → command of another module.
        epilog: the text after the list of commands.
    """

    def __init__(
        self, name: str, help: str, lazy: Mapping[str, LazyCommand] | None = None, epilog: str | None = None
    ) -> None:
        super().__init__(name, help=help, epilog=epilog, no_args_is_help=True)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name; import a lazy one."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        lazy = self._lazy[cmd_name]
        command: click.Command = getattr(import_module(lazy.module), lazy.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing lazy ones."""
        own = [(name, command.short_help or "") for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, lazy.summary) for name, lazy in self._lazy.items())])
