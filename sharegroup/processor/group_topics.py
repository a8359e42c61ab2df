"""The topics that groups watch, and what each group knows of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, KeysView

from sharegroup.actor.effects import WatchTopics
from sharegroup.processor.topic_view import KnownTopic


class GroupTopics:
    """An index of the latest `WatchTopics` of each group, for one thread."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, KnownTopic]] = {}
        self._durations_ms: dict[str, int] = {}
        self._watchers: defaultdict[str, set[str]] = defaultdict(set)

    def replace(self, watch: WatchTopics) -> set[str]:
        """Replace a group's watch; return the topics that it watched or watches."""
        before = self._known.pop(watch.group_id, {})
        self._durations_ms.pop(watch.group_id, None)
        for topic in before.keys() - watch.topics.keys():
            self._watchers[topic].discard(watch.group_id)
            if not self._watchers[topic]:
                del self._watchers[topic]
        for topic in watch.topics:
            self._watchers[topic].add(watch.group_id)
        if watch.topics:
            self._known[watch.group_id] = dict(watch.topics)
            if watch.reset_duration_ms is not None:
                self._durations_ms[watch.group_id] = watch.reset_duration_ms
        return before.keys() | watch.topics.keys()

    def topics(self) -> KeysView[str]:
        """Return the topics that some group watches."""
        return self._watchers.keys()

    def watchers(self, topic: str) -> Iterable[tuple[str, KnownTopic]]:
        """Yield the groups that watch a topic, by id, with what they know of it."""
        return ((group_id, self._known[group_id][topic]) for group_id in sorted(self._watchers.get(topic, ())))

    def learn(self, group_id: str, topic: str, known: KnownTopic) -> None:
        """Take in what a group was told."""
        self._known[group_id][topic] = known

    def reset_duration_ms(self, group_id: str) -> int | None:
        """Return how far back a group's `share.auto.offset.reset` by duration looks; None without one."""
        return self._durations_ms.get(group_id)
