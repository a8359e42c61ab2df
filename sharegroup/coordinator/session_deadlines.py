"""When the sessions of a group's members end; what is due comes from a queue, not from a look at every member.

A member has one entry in the queue, which may be early: a heartbeat changes its deadline only, and the entry moves when
it comes to the front. So a heartbeat costs a dictionary's update.
"""

from __future__ import annotations

import heapq


class SessionDeadlines:
    """Member id → end of its session, epoch ms."""

    def __init__(self) -> None:
        self._deadlines_ms: dict[str, int] = {}
        self._queued_ms: dict[str, int] = {}
        """Member id → its entry in the queue, not above its deadline; other entries of the queue are void."""
        self._queue: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._deadlines_ms

    @property
    def earliest_ms(self) -> int | None:
        """When the next session ends; None when there is none."""
        while self._queue:
            queued_ms, member_id = self._queue[0]
            if self._queued_ms.get(member_id) != queued_ms:
                heapq.heappop(self._queue)
                continue
            deadline_ms = self._deadlines_ms[member_id]
            if deadline_ms == queued_ms:
                return deadline_ms
            heapq.heapreplace(self._queue, (deadline_ms, member_id))
            self._queued_ms[member_id] = deadline_ms
        return None

    def set(self, member_id: str, deadline_ms: int) -> None:
        """Begin or prolong a session."""
        self._deadlines_ms[member_id] = deadline_ms
        queued_ms = self._queued_ms.get(member_id)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queued_ms[member_id] = deadline_ms
            heapq.heappush(self._queue, (deadline_ms, member_id))

    def discard(self, member_id: str) -> None:
        """Forget a session, if there is one."""
        self._deadlines_ms.pop(member_id, None)
        self._queued_ms.pop(member_id, None)

    def end_due(self, now_ms: int) -> list[str]:
        """End the sessions that are over at `now_ms`; returns their members, earliest first."""
        ended = []
        while (deadline_ms := self.earliest_ms) is not None and deadline_ms <= now_ms:
            _, member_id = heapq.heappop(self._queue)
            self.discard(member_id)
            ended.append(member_id)
        return ended
