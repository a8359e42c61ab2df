"""Groups of commands whose modules are imported when they are called: a command loads only its own libraries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click


class LazyCommand(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        summary: its line in the list of commands.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group of commands in the order of their definition, then of lazy ones.

    Args:
        lazy: name → command of another module.
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


_AUDITS = {
    "report": LazyCommand("sharegroup.cli.audit_report", "report", "Write the history of a group as an HTML file."),
    "redrive": LazyCommand("sharegroup.cli.audit_redrive", "redrive", "Deliver records again that a group gave up."),
    "export": LazyCommand("sharegroup.cli.audit_kafka", "export", "Print the state as Kafka's own records."),
    "import-kafka": LazyCommand(
        "sharegroup.cli.audit_kafka", "import_kafka", "Import the history of a Kafka cluster's share groups."
    ),
    "verify": LazyCommand("sharegroup.cli.audit_verify", "verify_command", "Check that the state table adds up."),
    "as-of": LazyCommand("sharegroup.cli.audit_points", "as_of_command", "Show the state of groups at a point."),
    "diff": LazyCommand("sharegroup.cli.audit_points", "diff_command", "Show the changes between two points."),
    "lineage": LazyCommand("sharegroup.cli.audit_lineage", "lineage_command", "Show every delivery of records."),
    "stats": LazyCommand("sharegroup.cli.audit_stats", "stats_command", "Show the figures of groups."),
    "what-if": LazyCommand(
        "sharegroup.cli.audit_what_if", "what_if_command", "Replay the request log under other limits."
    ),
}

audit = LazyGroup(
    "audit",
    """Answer questions about every record, from the state table.

    All commands work while no processor runs, and cost a running one nothing. They go back to where the maintenance
    has pruned the table, and say from where on they can answer.

    \b
    Example:
      sharegroup audit verify
      sharegroup audit lineage --group orders --topic orders \\
          --partition 0 --offset 17
    """,
    _AUDITS,
)

migrate = LazyGroup(
    "migrate",
    """Move share groups from a Kafka broker to here, and from here to a broker.

    Both ways stop the members for a moment, and lose no record. docs/migration.md has all steps, and what is kept.

    \b
    Example:
      sharegroup migrate from-kafka --bootstrap-server localhost:9092 \\
          --group orders --dry-run
      sharegroup migrate to-kafka --group orders --drain --execute
    """,
    {
        "from-kafka": LazyCommand(
            "sharegroup.cli.migrate_from_kafka", "from_kafka", "Continue a share group of a Kafka broker here."
        ),
        "to-kafka": LazyCommand(
            "sharegroup.cli.migrate_to_kafka", "to_kafka", "Continue a share group on a Kafka broker."
        ),
    },
)
