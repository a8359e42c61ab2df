"""When the sessions of a group's members end; what is due comes from an index, not from a look at every member."""

from __future__ import annotations

from sortedcontainers import SortedSet


class SessionDeadlines:
    """Member id → end of its session, epoch ms."""

    def __init__(self) -> None:
        self._deadlines_ms: dict[str, int] = {}
        self._ordered: SortedSet[tuple[int, str]] = SortedSet()

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._deadlines_ms

    @property
    def earliest_ms(self) -> int | None:
        """When the next session ends; None when there is none."""
        return self._ordered[0][0] if self._ordered else None

    def set(self, member_id: str, deadline_ms: int) -> None:
        """Begin or prolong a session."""
        self.discard(member_id)
        self._deadlines_ms[member_id] = deadline_ms
        self._ordered.add((deadline_ms, member_id))

    def discard(self, member_id: str) -> None:
        """Forget a session, if there is one."""
        deadline_ms = self._deadlines_ms.pop(member_id, None)
        if deadline_ms is not None:
            self._ordered.remove((deadline_ms, member_id))

    def due(self, now_ms: int) -> list[str]:
        """Return the members whose session ends at or before `now_ms`, earliest first."""
        due = []
        for deadline_ms, member_id in self._ordered:
            if deadline_ms > now_ms:
                break
            due.append(member_id)
        return due
