"""End offsets of topics, by topic id and partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log

EndOffsets = Mapping[tuple[str, int], int]
"""(topic id, partition) → end offset of the log."""


def end_offsets(log: Log, topics: Iterable[str]) -> EndOffsets:
    """Return the end offsets of topics; deleted topics are left out.

    Raises:
        LogError: the log cannot be read.
    """
    ends: dict[tuple[str, int], int] = {}
    for topic in sorted(topics):
        try:
            topic_id = log.describe_topic(topic).topic_id
            offsets = log.offsets(topic)
        except UnknownTopicError:
            # The topic was deleted, and the group has not noticed yet.
            continue
        ends.update({(topic_id, partition): each.end_offset for partition, each in offsets.items()})
    return ends
