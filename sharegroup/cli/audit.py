"""`sharegroup audit`: the commands that answer from the state table what happened."""

from __future__ import annotations

from sharegroup.cli.lazy_group import LazyCommand, LazyGroup

audit = LazyGroup(
    "audit",
    {
        "verify": LazyCommand("sharegroup.cli.verify_table", "verify_table", "Check that the state table adds up."),
        "history": LazyCommand("sharegroup.cli.show_history", "history", "Show what happened to records, and why."),
        "export": LazyCommand("sharegroup.cli.export_state", "export", "Print the state as Kafka's own records."),
    },
    """Answers from the state table: what happened, and whether everything adds up.

    All of them work while no processor runs, and cost a running one nothing. They go back to where the maintenance
    has pruned the table.

    \b
    Example:
      sharegroup audit verify
      sharegroup audit history --group orders --topic orders \\
          --partition 0 --offset 17
    """,
)
