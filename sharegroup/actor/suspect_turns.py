"""Turns of fetches at suspects: who takes them, who passes over them, and who waits until it holds nothing.

A process that holds nothing takes suspects before all else, and gets nothing beside them. One that holds records passes
over them. So that suspects do not wait for ever behind processes that always hold records, one at a time gets nothing
new until it holds nothing; all others go on as they do.
"""

from __future__ import annotations

from enum import Enum, auto

from sharegroup.actor.holders import Holders, Process
from sharegroup.actor.share_session import ShareSession
from sharegroup.core.records import PartitionKey


class Turn(Enum):
    """The records that a fetch may take now."""

    NOTHING = auto()
    SUSPECTS = auto()
    OTHERS = auto()


class SuspectTurns:
    """The share-partitions of a leader with suspects that wait, and the process that is emptied for them.

    Attributes:
        waiting: share-partition → suspects that can be acquired; only where there are some.
    """

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self.waiting: dict[PartitionKey, int] = {}
        self._emptied: Process | None = None
        self._emptied_until_ms = 0
        self._spared: list[str] = []

    def refresh(self, key: PartitionKey, suspect_count: int) -> None:
        """Update the number of suspects of a share-partition that can be acquired now."""
        if suspect_count:
            self.waiting[key] = suspect_count
        elif self.waiting.pop(key, None) and not self.waiting:
            self._spare()

    def turn_of(self, session: ShareSession, now_ms: int, lock_duration_ms: int) -> Turn:
        """Return the records that a fetch of a session may take.

        Args:
            lock_duration_ms: a process that is not empty after that time makes room for another one.
        """
        process = self._holders.process_of(session.member_id)
        if self._holders.holds_suspects(process):
            return Turn.NOTHING
        if not any(key in session for key in self.waiting):
            return Turn.OTHERS
        if self._holders.holds_nothing(process):
            if process == self._emptied:
                self._spare()
            return Turn.SUSPECTS
        if self._emptied is not None and (
            now_ms >= self._emptied_until_ms or self._holders.holds_nothing(self._emptied)
        ):
            self._spare()
        if self._emptied is None and not self._holders.are_suspects_held:
            self._emptied, self._emptied_until_ms = process, now_ms + lock_duration_ms
        return Turn.NOTHING if process == self._emptied else Turn.OTHERS

    def take_changed(self) -> list[str]:
        """Return the members whose turn may have changed since the last call."""
        spared, self._spared = self._spared, []
        return [*self._holders.take_lighter(), *spared]

    def _spare(self) -> None:
        if self._emptied is not None:
            self._spared += self._holders.members_of(self._emptied)
            self._emptied = None
