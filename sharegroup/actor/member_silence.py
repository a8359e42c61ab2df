"""Detection of members that hold records and have been silent for too long, so that they are assumed dead.

A busy interpreter silences a member that lives. So silence counts only against members for which another process gives
a sign of life every second while they hold records (`MemberAlive`): the first sign shows that there is one, and counts
for as long as the member holds records without a break. Members without signs keep their locks until these end by time.

Silence counts only while the request log is known to work: over the time between two messages of the processor's own
that came back from the group's request partition soon after each other. So an unavailable log, or a processor that is
down, ends no lock; and after a takeover all silence starts from zero, with the next sign of life.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from sharegroup.core.due_times import DueTimes

OWN_MESSAGE_INTERVAL_MS = 1_000
"""The processor's own messages come this often while the silence of a member counts."""

_LONGEST_GAP_MS = 2_000
"""Time between two own messages that counts; a longer gap is no evidence of anything."""


class MemberSilence:
    """Silence of the members of one group that hold records and have given a sign of life.

    Args:
        silence_ms: `share.member.silence.ms`; 0 counts no silence.
    """

    def __init__(self, silence_ms: int) -> None:
        self._silence_ms = silence_ms
        self._observed_ms = 0
        """Time over which the log was known to work."""
        self._last_own_ms: int | None = None
        self._heard_ms: dict[str, int] = {}
        """Watched member → observed time when it was last heard."""
        self._due: DueTimes[str] = DueTimes()

    def watch(self, member_id: str, now_ms: int) -> None:
        """Count the silence of a member from its sign of life on, if it is not counted yet; epoch ms."""
        if self._silence_ms and member_id not in self._heard_ms:
            self._heard_ms[member_id] = self._observed_at(now_ms)
            self._due.set(member_id, self._heard_ms[member_id] + self._silence_ms)

    def forget(self, member_ids: Iterable[str]) -> None:
        """Count no silence of members that hold records again until their next sign of life."""
        for member_id in member_ids:
            if self._heard_ms.pop(member_id, None) is not None:
                self._due.set(member_id, None)

    def heard(self, member_id: str, now_ms: int) -> None:
        """Reset the silence of a member that sent a message; epoch ms."""
        if member_id in self._heard_ms:
            self._heard_ms[member_id] = self._observed_at(now_ms)

    def change(self, silence_ms: int, now_ms: int) -> None:
        """Apply a changed `share.member.silence.ms`; all silence starts from zero. Epoch ms."""
        if silence_ms != self._silence_ms:
            watched, self._heard_ms = self._heard_ms, {}
            self._silence_ms = silence_ms
            self._due = DueTimes()
            for member_id in watched:
                self.watch(member_id, now_ms)

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
            if member_id in holders:
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
        return self._observed_ms + (since_own_ms if since_own_ms <= _LONGEST_GAP_MS else 0)
