"""`sharegroup groups`: the commands about share groups."""

from __future__ import annotations

from sharegroup.cli.lazy_group import LazyCommand, LazyGroup

groups = LazyGroup(
    "groups",
    {
        "list": LazyCommand("sharegroup.cli.list_groups", "list_groups", "List all groups with their lag."),
        "describe": LazyCommand(
            "sharegroup.cli.describe_groups", "describe", "Show state, offsets, members and locks."
        ),
        "configure": LazyCommand("sharegroup.cli.configure_group", "configure", "Show or change a group's keys."),
        "reset-offsets": LazyCommand(
            "sharegroup.cli.reset_offsets", "reset_offsets", "Begin anew at other offsets; a dry run shows where."
        ),
        "delete-offsets": LazyCommand("sharegroup.cli.delete_offsets", "delete_offsets", "Forget topics of a group."),
        "delete": LazyCommand("sharegroup.cli.delete_groups", "delete", "Delete groups without members."),
        "resume": LazyCommand("sharegroup.cli.resume_group", "resume", "Let a quarantined group go on."),
    },
    """Share groups.

    `list` and `describe` read the state table: they work while no processor runs, and cost a running one nothing.
    All that changes something asks the processor.

    \b
    Example:
      sharegroup groups describe --group orders
    """,
)
