"""Start and end offsets of topics, by topic id and partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets

TopicOffsets = Mapping[tuple[str, int], PartitionOffsets]
"""(topic id, partition) → its offsets in the log."""


def topic_offsets(log: Log, topics: Iterable[str]) -> TopicOffsets:
    """Return the offsets of topics; deleted topics are left out.

    Raises:
        LogError: the log cannot be read.
    """
    known: dict[tuple[str, int], PartitionOffsets] = {}
    for topic in sorted(topics):
        try:
            topic_id = log.describe_topic(topic).topic_id
            offsets = log.offsets(topic)
        except UnknownTopicError:
            # The topic was deleted, and the group has not noticed yet.
            continue
        known.update({(topic_id, partition): each for partition, each in offsets.items()})
    return known
