"""How many messages of the request log no batch has applied yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sharegroup.errors import LogError
from sharegroup.logs.port import Log


class RequestBacklog:
    """The part of the request log that is still to be applied.

    Args:
        log: the request log.
        topic: its topic.
        ends: partition → offset after the last message that was applied.
    """

    def __init__(self, log: Log, topic: str, ends: Mapping[int, int]) -> None:
        self._log = log
        self._topic = topic
        self._ends = dict(ends)

    def applied(self, ends: Iterable[tuple[int, int]]) -> None:
        """Take in how far a batch came: (partition, offset after its last message)."""
        for partition, end_offset in ends:
            self._ends[partition] = max(self._ends.get(partition, 0), end_offset)

    def size(self) -> int | None:
        """Messages that wait; None when the log does not say."""
        try:
            offsets = self._log.offsets(self._topic)
        except LogError:
            return None
        waiting = (
            found.end_offset - max(self._ends.get(partition, 0), found.start_offset)
            for partition, found in offsets.items()
        )
        return sum(max(count, 0) for count in waiting)
