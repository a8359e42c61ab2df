"""Detection of members that hold records and have been silent for too long, so that they are assumed dead.

Members that hold records send a message every second. Silence counts only while the request log is known to work: over
the time between two messages of the processor's own that came back from the group's request partition soon after each
other. So an unavailable log, or a processor that is down, ends no lock; and after a takeover all silence starts from
zero.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from sharegroup.core.due_times import DueTimes

OWN_MESSAGE_INTERVAL_MS = 1_000
"""The processor's own messages come this often while a member holds records."""

_LONGEST_GAP_MS = 2_000
"""Time between two own messages that counts; a longer gap is no evidence of anything."""


class MemberSilence:
    """Silence of the members of one group that hold records.

    Args:
        silence_ms: `share.member.silence.ms`; 0 counts no silence.
        may_return: members that may come back after any time; their locks end by time only.
        limit: maximum number of those; the oldest go when there are too many.
    """

    def __init__(self, silence_ms: int, may_return: Iterable[str], limit: int) -> None:
        self._silence_ms = silence_ms
        self._may_return = dict.fromkeys(may_return)
        self._limit = limit
        self._observed_ms = 0
        """Time over which the log was known to work."""
        self._last_own_ms: int | None = None
        self._heard_ms: dict[str, int] = {}
        """Watched member → observed time when it was last heard."""
        self._due: DueTimes[str] = DueTimes()

    def record_join(self, member_id: str, *, may_return: bool) -> None:
        """Record if a joining member may come back after any time."""
        self._may_return.pop(member_id, None)
        if may_return:
            self._may_return[member_id] = None
        if len(self._may_return) > self._limit:
            del self._may_return[next(iter(self._may_return))]

    def watch(self, member_ids: Iterable[str], now_ms: int) -> None:
        """Count the silence of members that hold records from now on; epoch ms."""
        if not self._silence_ms:
            return
        for member_id in member_ids:
            if member_id not in self._heard_ms and member_id not in self._may_return:
                self._heard_ms[member_id] = self._observed_at(now_ms)
                self._due.set(member_id, self._heard_ms[member_id] + self._silence_ms)

    def heard(self, member_id: str, now_ms: int) -> None:
        """Reset the silence of a member that sent a message; epoch ms."""
        if member_id in self._heard_ms:
            self._heard_ms[member_id] = self._observed_at(now_ms)

    def change(self, silence_ms: int, holders: Iterable[str], now_ms: int) -> None:
        """Apply a changed `share.member.silence.ms`; all silence starts from zero. Epoch ms."""
        if silence_ms != self._silence_ms:
            self._silence_ms = silence_ms
            self._heard_ms.clear()
            self._due = DueTimes()
            self.watch(holders, now_ms)

    def take_silent(self, own_ms: int, holders: Container[str]) -> list[str]:
        """Return members that were silent for too long, the longest silent first; they are no longer watched.

        Args:
            own_ms: append time of a message of the processor's own; epoch ms.
        """
        elapsed_ms = own_ms - self._last_own_ms if self._last_own_ms is not None else 0
        if elapsed_ms <= _LONGEST_GAP_MS:
            self._observed_ms += elapsed_ms
        self._last_own_ms = own_ms
        silent: list[str] = []
        for member_id in self._due.take_due(self._observed_ms):
            due_ms = self._heard_ms[member_id] + self._silence_ms
            if member_id in holders and due_ms > self._observed_ms:
                self._due.set(member_id, due_ms)
                continue
            del self._heard_ms[member_id]
            if member_id in holders and member_id not in self._may_return:
                silent.append(member_id)
        return silent

    def next_own_ms(self, now_ms: int) -> int | None:
        """Return when the next message of the processor's own is needed; None while no member is watched. Epoch ms."""
        due_ms = self._due.earliest_ms
        if due_ms is None:
            return None
        wait_ms = max(1, min(OWN_MESSAGE_INTERVAL_MS, due_ms - self._observed_ms))
        return (self._last_own_ms if self._last_own_ms is not None else now_ms) + wait_ms

    def _observed_at(self, now_ms: int) -> int:
        """Return the observed time as it will have been now, once the next own message has come."""
        since_own_ms = now_ms - self._last_own_ms if self._last_own_ms is not None else 0
        return self._observed_ms + min(since_own_ms, _LONGEST_GAP_MS)
