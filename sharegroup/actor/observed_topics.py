"""The coordinator's watch on topics of the record log: the watched topics, and their observations.

The watcher observes topics outside the loop, so observations may arrive late or out of order. Each has a sequence
number; one that is older than the last one of its topic is ignored, so that it cannot end a state that is in use.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from sharegroup.actor.effects import WatchTopics
from sharegroup.config.group import TimedReset
from sharegroup.config.model import is_topic_name
from sharegroup.protocol.internal_messages import TopicLogOffsets

TopicIdentity = tuple[str, int]
"""Topic id, or "" when there is no such topic, and partition count."""
_NOT_OBSERVED: TopicIdentity = ("", -1)
"""An identity that no topic has, so that the watcher reports the topic, existing or not."""
_NO_TOPIC: TopicIdentity = ("", 0)


class ObservedTopics:
    """The last observations of the topics that a group watches."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.seen: dict[str, TopicIdentity] = {}
        """Topic name → its identity in the last observation; without topics that must be observed again."""
        self._last_observations: dict[str, tuple[int, TopicIdentity]] = {}
        self._subscribed: frozenset[str] = frozenset()
        self._watched: dict[str, TopicIdentity] = {}
        self._reset: TimedReset | None = None

    def accept(self, topic: TopicLogOffsets) -> bool:
        """Apply an observation of a topic.

        Returns:
            True if the topic has changed since its last observation.
        """
        identity = (topic.topic_id, topic.partition_count) if topic.topic_id else _NO_TOPIC
        last_sequence, last_identity = self._last_observations.get(topic.topic, (topic.sequence, identity))
        if topic.sequence < last_sequence or (topic.sequence == last_sequence and identity != last_identity):
            return False
        self._last_observations[topic.topic] = (topic.sequence, identity)
        if self._watched.get(topic.topic) not in (None, identity):
            # The watch on this topic was reported; if the group still does not know the topic, it must watch it again.
            del self._watched[topic.topic]
        is_new = self.seen.get(topic.topic) != identity
        self.seen[topic.topic] = identity
        return is_new

    def observe_again(self, topic: str) -> None:
        """Forget a topic that may have changed since its last observation."""
        self.seen.pop(topic, None)

    def watch_again(self) -> None:
        """Send the watch again with the next change: observations may have been lost."""
        self._watched = {}

    def change(
        self, subscribed: AbstractSet[str], in_use: AbstractSet[str], reset: TimedReset | None
    ) -> WatchTopics | None:
        """Change the watched topics.

        Args:
            subscribed: topics that members subscribe to; they are reported when they exist.
            in_use: topics that have a state or that an administrator names; they are reported even if they are missing.
            reset: `share.auto.offset.reset` by time; None for earliest and latest.

        Returns:
            The watch; None when the one in force need not change.
        """
        # The observation of a topic without subscribers may be old: it must not define start offsets.
        for name in subscribed - self._subscribed:
            self.observe_again(name)
        self._subscribed = frozenset(subscribed)
        unknown = {**dict.fromkeys(subscribed, _NO_TOPIC), **dict.fromkeys(in_use, _NOT_OBSERVED)}
        watched = {name: self.seen.get(name, unknown[name]) for name in sorted(unknown) if is_topic_name(name)}
        self.seen = {name: identity for name, identity in self.seen.items() if name in watched}
        self._last_observations = {name: last for name, last in self._last_observations.items() if name in watched}
        if watched == self._watched and (not watched or reset == self._reset):
            return None
        self._watched, self._reset = watched, reset
        return WatchTopics(self._group_id, dict(watched), reset)
