"""`sharegroup audit`: the list of its commands."""

from __future__ import annotations

from sharegroup.cli.lazy_group import LazyCommand, LazyGroup

_LAZY = {
    "report": LazyCommand("sharegroup.cli.audit_report", "report", "Write the history of a group as an HTML file."),
    "redrive": LazyCommand("sharegroup.cli.redrive", "redrive", "Deliver records again that a group gave up."),
    "export": LazyCommand("sharegroup.cli.kafka_export", "export", "Print the state as Kafka's own records."),
    "import-kafka": LazyCommand(
        "sharegroup.cli.kafka_import", "import_kafka", "Import the history of a Kafka cluster's share groups."
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
    _LAZY,
)
