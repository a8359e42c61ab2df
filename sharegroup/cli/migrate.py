"""`sharegroup migrate`: share groups move from a Kafka broker to here, and from here to a broker."""

from __future__ import annotations

from sharegroup.cli.lazy_group import LazyCommand, LazyGroup

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
