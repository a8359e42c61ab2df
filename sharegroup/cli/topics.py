"""`sharegroup topics`: the commands about topics."""

from __future__ import annotations

from sharegroup.cli.lazy_group import LazyCommand, LazyGroup

topics = LazyGroup(
    "topics",
    {
        "create": LazyCommand("sharegroup.cli.topic_commands", "create", "Create a topic."),
        "list": LazyCommand("sharegroup.cli.topic_commands", "list_topics", "List all topics."),
        "describe": LazyCommand("sharegroup.cli.topic_commands", "describe", "Show partitions with their offsets."),
        "produce": LazyCommand("sharegroup.cli.produce", "produce", "Produce records from a file or a pipe."),
    },
    """Topics of the log.

    \b
    Example:
      sharegroup topics create --topic orders --partitions 3
      sharegroup topics produce --topic orders --file orders.txt
    """,
)
