"""Number of messages of the request log that are not applied yet."""

from __future__ import annotations

from collections.abc import Mapping

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

    def applied(self, end_offsets: Mapping[int, int]) -> None:
        """Update the applied part: partition → offset after the last message that was applied."""
        for partition, end_offset in end_offsets.items():
            self._ends[partition] = max(self._ends.get(partition, 0), end_offset)

    def size(self) -> int | None:
        """Return the number of messages that wait; None when the log does not answer."""
        try:
            offsets = self._log.offsets(self._topic)
        except LogError:
            return None
        waiting = (
            log.end_offset - max(self._ends.get(partition, 0), log.start_offset) for partition, log in offsets.items()
        )
        return sum(max(count, 0) for count in waiting)
