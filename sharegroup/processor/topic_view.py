"""One topic as looks see it, and the conclusions that several looks allow.

Brokers' metadata lags: one answer without the topic, or with another id, proves nothing. What a group knows of a topic
changes by these rules:

- a topic counts as deleted when looks over some seconds, some in a row, did not see it;
- another topic id than the one that a group knows counts when two looks in a row saw it;
- a topic that the group knows nothing of counts at once, and so do more partitions of the same topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sharegroup.logs.port import TopicIdentity

KnownTopic = tuple[str, int]
"""Topic id and partition count that a group knows; "" without a topic, count -1 when it was not looked at."""

NO_TOPIC: KnownTopic = ("", 0)

INTERVAL_S = 0.5
_CONFIRMATION_S = 0.1
_MISSING_LOOKS = 3
_MISSING_S = 3.0
_FIRST_BACK_OFF_S = 1.0
_LONGEST_BACK_OFF_S = 30.0


@dataclass(slots=True)
class TopicView:
    """The latest looks at one topic.

    Attributes:
        identity: the topic of this name by the latest look that saw one; None before, and once it counts as deleted.
        sequence: sequence of the look that showed it, or that it is deleted.
        next_look_s: when to look again, on the clock of the caller.
        is_failing: the latest look failed; nothing can be asked of the topic.
        silent: partitions that have a leader, and do not answer.
    """

    identity: TopicIdentity | None = None
    sequence: int = 0
    next_look_s: float = 0.0
    is_failing: bool = False
    silent: frozenset[int] = frozenset()
    _is_deleted: bool = False
    _seen_count: int = 0
    _missing_count: int = 0
    _missing_since_s: float = 0.0
    _failure_count: int = 0
    _failed_s: float = 0.0
    _reason: str = ""

    @property
    def unavailable(self) -> frozenset[int]:
        """Partitions that cannot be looked at."""
        return self.silent | (self.identity.leaderless if self.identity else frozenset())

    @property
    def is_present(self) -> bool:
        """Return True if the latest look saw the topic."""
        return self.identity is not None and not self._missing_count and not self.is_failing

    @property
    def published(self) -> tuple[TopicIdentity, int] | None:
        """The topic with all partitions that cannot be looked at, and the sequence; None if it is not present."""
        if self.identity is None or not self.is_present:
            return None
        return replace(self.identity, leaderless=self.unavailable), self.sequence

    @property
    def state(self) -> object:
        """All that decides what groups are told; equal when nothing of it changed."""
        return self.identity, self.silent, self.is_present, self._is_deleted, self._seen_count > 1

    def take(self, seen: TopicIdentity, sequence: int, now_s: float) -> None:
        """Take in a look that saw a topic of this name."""
        before = self.identity
        is_same = before is not None and before.topic_id == seen.topic_id
        self._seen_count = self._seen_count + 1 if is_same and not self._missing_count else 1
        if before is not None and is_same:
            # No topic loses partitions: this broker has not heard of the new ones yet.
            seen = replace(seen, partition_count=max(seen.partition_count, before.partition_count))
        else:
            self.silent = frozenset()
        self.silent -= seen.leaderless
        self.identity, self.sequence = seen, sequence
        self._missing_count, self._is_deleted, self.is_failing = 0, False, False
        self.next_look_s = now_s + (INTERVAL_S if self._seen_count > 1 else _CONFIRMATION_S)

    def take_missing(self, sequence: int, now_s: float) -> None:
        """Take in a look that saw no topic of this name."""
        if self._missing_count == 0:
            self._missing_since_s = now_s
        self._missing_count += 1
        self._seen_count = 0
        self.is_failing = False
        if self._missing_count >= _MISSING_LOOKS and now_s - self._missing_since_s >= _MISSING_S:
            self.identity, self.sequence, self._is_deleted, self.silent = None, sequence, True, frozenset()
        self.next_look_s = now_s + INTERVAL_S

    def fail(self, reason: str, now_s: float, silent: Iterable[int] | None = None) -> bool:
        """Take in a failure, which says nothing of the topic; the next look waits, longer each time.

        Args:
            reason: the failure.
            now_s: the time.
            silent: the partitions that did not answer; None when the whole topic cannot be looked at.

        Returns:
            True if the reason is new.
        """
        if self._has_recovered(now_s):
            self._failure_count, self._reason = 0, ""
        if silent is None:
            self.is_failing = True
        else:
            self.silent |= frozenset(silent)
        is_new = reason != self._reason
        self._reason, self._failed_s = reason, now_s
        self._failure_count += 1
        self.next_look_s = now_s + self._back_off_s()
        return is_new

    def answer(self, partitions: Iterable[int]) -> None:
        """Take in that partitions answer which did not."""
        self.silent -= frozenset(partitions)

    def _has_recovered(self, now_s: float) -> bool:
        """Return True if nothing has failed for twice the latest back-off."""
        return now_s - self._failed_s > 2 * self._back_off_s()

    def change_for(self, known: KnownTopic) -> KnownTopic | None:
        """Return the topic as a group has to learn it that knows this; None when nothing is new, or certain yet."""
        if self._is_deleted:
            return None if known == NO_TOPIC else NO_TOPIC
        if self.identity is None or not self.is_present:
            return None
        seen = (self.identity.topic_id, self.identity.partition_count)
        is_certain = known == NO_TOPIC or known[0] == seen[0] or self._seen_count > 1
        return seen if is_certain and seen != known else None

    def _back_off_s(self) -> float:
        return float(min(_FIRST_BACK_OFF_S * 2 ** min(self._failure_count - 1, 10), _LONGEST_BACK_OFF_S))
