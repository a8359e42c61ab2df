"""Where logs end, by topic id and partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log

EndOffsets = Mapping[tuple[str, int], int]
"""(topic id, partition) → end offset of the log."""


def end_offsets(log: Log, topics: Iterable[str]) -> EndOffsets:
    """The ends of topics; those that are gone are left out.

    Raises:
        LogError: the log cannot be read.
    """
    ends: dict[tuple[str, int], int] = {}
    for topic in sorted(topics):
        try:
            topic_id = log.describe_topic(topic).topic_id
            offsets = log.offsets(topic)
        except UnknownTopicError:
            # Deleted, and the group has not noticed yet.
            continue
        ends.update({(topic_id, partition): found.end_offset for partition, found in offsets.items()})
    return ends
