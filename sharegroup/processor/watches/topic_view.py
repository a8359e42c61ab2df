"""Topics as groups know them: one topic's state from several reads, the groups' knowledge, and LogOffsets messages.

Brokers' metadata lags: one response without the topic, or with another id, proves nothing. A group's knowledge of a
topic changes by these rules:

- a topic counts as deleted when reads over some seconds, some in a row, did not find it;
- another topic id than the group's counts when two reads in a row returned it;
- a topic that is new to the group counts at once, and so do more partitions of the same topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass, field, replace

from sharegroup.actor.effects import WatchTopics
from sharegroup.config.group import TimedReset
from sharegroup.logs.missing_topic import MissingTopic
from sharegroup.logs.port import Log, PartitionOffsets, TopicIdentity
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import (
    UNINITIALIZED_OFFSET,
    LogOffsets,
    PartitionLogOffsets,
    TopicLogOffsets,
)
from sharegroup.protocol.message_portions import topic_portions
from sharegroup.protocol.messages import RequestEnvelope, request

KnownTopic = tuple[str, int]
"""Topic id and partition count that a group knows; "" without a topic, count -1 before the first read."""

NO_TOPIC: KnownTopic = ("", 0)

INTERVAL_S = 0.5
_CONFIRMATION_S = 0.1
_FIRST_BACK_OFF_S = 1.0
_LONGEST_BACK_OFF_S = 30.0


@dataclass(slots=True)
class TopicView:
    """The latest reads of one topic.

    Attributes:
        identity: the topic of this name in the latest read that has one; None before, and once it counts as deleted.
        sequence: sequence of the read that has it, or that decided its deletion.
        next_poll_s: time of the next read, on the clock of the caller.
        is_failing: True if the latest read failed; the topic cannot be read.
        silent: partitions that have a leader, and do not respond.
    """

    identity: TopicIdentity | None = None
    sequence: int = 0
    next_poll_s: float = 0.0
    is_failing: bool = False
    silent: frozenset[int] = frozenset()
    _is_deleted: bool = False
    _seen_count: int = 0
    _missing: MissingTopic = field(default_factory=MissingTopic)
    _failure_count: int = 0
    _failed_s: float = 0.0
    _reason: str = ""

    @property
    def unavailable(self) -> frozenset[int]:
        """Return the partitions that cannot be read."""
        return self.silent | (self.identity.leaderless if self.identity else frozenset())

    @property
    def is_present(self) -> bool:
        """Return True if the latest read has the topic."""
        return self.identity is not None and not self._missing.is_missing and not self.is_failing

    @property
    def published(self) -> tuple[TopicIdentity, int] | None:
        """Return the topic with all partitions that cannot be read, and the sequence; None if it is not present."""
        if self.identity is None or not self.is_present:
            return None
        return replace(self.identity, leaderless=self.unavailable), self.sequence

    @property
    def state(self) -> object:
        """Return the values that groups are informed of; equal when none of them changed."""
        return self.identity, self.silent, self.is_present, self._is_deleted, self._seen_count > 1

    def take(self, seen: TopicIdentity, sequence: int, now_s: float) -> None:
        """Record a read with a topic of this name."""
        before = self.identity
        is_same = before is not None and before.topic_id == seen.topic_id
        self._seen_count = self._seen_count + 1 if is_same and not self._missing.is_missing else 1
        if before is not None and is_same:
            # No topic loses partitions: this broker does not know the new ones yet.
            seen = replace(seen, partition_count=max(seen.partition_count, before.partition_count))
        else:
            self.silent = frozenset()
        self.silent -= seen.leaderless
        self.identity, self.sequence = seen, sequence
        self._missing.take()
        self._is_deleted, self.is_failing = False, False
        self.next_poll_s = now_s + (INTERVAL_S if self._seen_count > 1 else _CONFIRMATION_S)

    def take_missing(self, sequence: int, now_s: float) -> None:
        """Record a read without a topic of this name."""
        self._seen_count = 0
        self.is_failing = False
        if self._missing.take_missing(now_s):
            self.identity, self.sequence, self._is_deleted, self.silent = None, sequence, True, frozenset()
        self.next_poll_s = now_s + INTERVAL_S

    def fail(self, reason: str, now_s: float, silent: Iterable[int] | None = None) -> bool:
        """Record a failed read, which leaves the topic unchanged; the next read waits, longer each time.

        Args:
            silent: the partitions that did not respond; None when the whole topic cannot be read.

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
        self.next_poll_s = now_s + self._back_off_s()
        return is_new

    def respond(self, partitions: Iterable[int]) -> None:
        """Record that silent partitions respond again."""
        self.silent -= frozenset(partitions)

    def _has_recovered(self, now_s: float) -> bool:
        """Return True if no read has failed for twice the latest back-off."""
        return now_s - self._failed_s > 2 * self._back_off_s()

    def change_for(self, known: KnownTopic) -> KnownTopic | None:
        """Return the topic's new state for a group with this knowledge; None if it is unchanged or uncertain."""
        if self._is_deleted:
            return None if known == NO_TOPIC else NO_TOPIC
        if self.identity is None or not self.is_present:
            return None
        seen = (self.identity.topic_id, self.identity.partition_count)
        is_certain = known == NO_TOPIC or known[0] == seen[0] or self._seen_count > 1
        return seen if is_certain and seen != known else None

    def _back_off_s(self) -> float:
        return float(min(_FIRST_BACK_OFF_S * 2 ** min(self._failure_count - 1, 10), _LONGEST_BACK_OFF_S))


class GroupTopics:
    """An index of the latest `WatchTopics` of each group, for one thread."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, KnownTopic]] = {}
        self._resets: dict[str, TimedReset] = {}
        self._watchers: defaultdict[str, set[str]] = defaultdict(set)

    def replace(self, watch: WatchTopics) -> set[str]:
        """Replace a group's watch; return the topics that it watched or watches."""
        before = self._known.pop(watch.group_id, {})
        self._resets.pop(watch.group_id, None)
        for topic in before.keys() - watch.topics.keys():
            self._watchers[topic].discard(watch.group_id)
            if not self._watchers[topic]:
                del self._watchers[topic]
        for topic in watch.topics:
            self._watchers[topic].add(watch.group_id)
        if watch.topics:
            self._known[watch.group_id] = dict(watch.topics)
            if watch.reset is not None:
                self._resets[watch.group_id] = watch.reset
        return before.keys() | watch.topics.keys()

    def topics(self) -> KeysView[str]:
        """Return the topics that some group watches."""
        return self._watchers.keys()

    def watchers(self, topic: str) -> Iterable[tuple[str, KnownTopic]]:
        """Yield the groups that watch a topic, by id, with their knowledge of it."""
        return ((group_id, self._known[group_id][topic]) for group_id in sorted(self._watchers.get(topic, ())))

    def learn(self, group_id: str, topic: str, known: KnownTopic) -> None:
        """Record the topic state that was sent to a group."""
        self._known[group_id][topic] = known

    def reset(self, group_id: str) -> TimedReset | None:
        """Return a group's `share.auto.offset.reset` by time; None if it does not reset by time."""
        return self._resets.get(group_id)


def log_offsets_messages(
    group_ids: Iterable[str], leader_epoch: int, topics: Iterable[TopicLogOffsets]
) -> list[RequestEnvelope]:
    """Build the messages that send the same offsets to several groups; they share their bodies."""
    bodies = [LogOffsets(topics=portion) for portion in topic_portions(topics)]
    first_of = [request(ApiKey.LOG_OFFSETS, "", body, leader_epoch=leader_epoch) for body in bodies]
    return [first.model_copy(update={"group_id": group_id}) for group_id in group_ids for first in first_of]


def topic_log_offsets(
    topic: str,
    topic_id: str,
    partition_count: int,
    sequence: int,
    offsets: Mapping[int, PartitionOffsets] | None = None,
    reset_offsets: Mapping[int, int] | None = None,
) -> TopicLogOffsets:
    """Build the offsets of a topic from one read."""
    return TopicLogOffsets(
        topic=topic,
        topic_id=topic_id,
        partition_count=partition_count,
        partitions=[
            PartitionLogOffsets(
                partition_index=partition,
                start_offset=seen.start_offset,
                end_offset=seen.end_offset,
                last_stable_offset=seen.last_stable_offset,
                reset_offset=(reset_offsets or {}).get(partition, UNINITIALIZED_OFFSET),
            )
            for partition, seen in sorted((offsets or {}).items())
        ],
        sequence=sequence,
    )


def reset_offsets(log: Log, topic: str, partitions: Iterable[int], reset: TimedReset | None) -> dict[int, int]:
    """Return the start offsets of `share.auto.offset.reset` by time, the log's; empty without one.

    Raises:
        UnknownTopicError: the topic was deleted meanwhile.
        LogError: the log cannot be read.
    """
    if reset is None:
        return {}
    since_ms = reset.start_ms(log.now_ms())
    return {partition: log.offset_for_time(topic, partition, since_ms) for partition in partitions}
