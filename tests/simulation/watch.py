"""The watch on the record log in virtual time: it responds to WatchTopics and WatchLog with LogOffsets messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.logs.port import TopicIdentity
from sharegroup.processor.watches.topic_view import NO_TOPIC, KnownTopic, TopicView
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import LogOffsets, PartitionLogOffsets, TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope, request
from tests.simulation.log import StoredLog
from tests.simulation.world import World

PartitionKey = tuple[str, str, int]
"""Topic name, topic id and partition."""


class SimulatedWatch:
    """Polls the record log a little after it grew or a watch was set; for one processor.

    Args:
        world: time.
        log: the record log.
        send: appends messages to the request log.
        leader_epoch: epoch of the processor.
    """

    def __init__(
        self,
        world: World,
        log: StoredLog,
        send: Callable[[list[RequestEnvelope]], None],
        leader_epoch: int,
    ) -> None:
        self._world = world
        self._log = log
        self._send = send
        self._leader_epoch = leader_epoch
        self._known: dict[str, dict[str, KnownTopic]] = {}
        self._views: dict[str, TopicView] = {}
        self._above: dict[PartitionKey, dict[str, int]] = defaultdict(dict)
        self._sequence = 0

    def update(self, effects: Iterable[WatchLog | WatchTopics]) -> bool:
        """Take watches; returns True if it is time to poll."""
        is_changed = False
        for effect in effects:
            is_changed = True
            if isinstance(effect, WatchTopics):
                self._known[effect.group_id] = dict(effect.topics)
                continue
            for key in effect.forgotten:
                self._above[key].pop(effect.group_id, None)
            for key, above in effect.above_offset.items():
                self._above[key][effect.group_id] = above
        return is_changed

    def poll(self) -> float | None:
        """Tell groups what changed; returns when to poll again because something is not certain yet, in seconds."""
        if self._log.is_away:
            return self._log.away_until_ms / 1_000
        self._sequence += 1
        changes: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        uncertain = self._poll_topics(changes)
        self._read_ends(changes)
        messages = [
            request(
                ApiKey.LOG_OFFSETS,
                group_id,
                LogOffsets(topics=[self._offsets(name, sorted(topics[name])) for name in sorted(topics)]),
                leader_epoch=self._leader_epoch,
            )
            for group_id, topics in sorted(changes.items())
        ]
        if messages:
            self._send(messages)
        return min((self._views[name].next_poll_s for name in uncertain), default=None)

    def _poll_topics(self, changes: dict[str, dict[str, set[int]]]) -> set[str]:
        for name in sorted({name for topics in self._known.values() for name in topics}):
            view = self._views.setdefault(name, TopicView())
            stored = self._log.topics.get(name)
            if stored is None:
                view.take_missing(self._sequence, self._world.now_s)
            else:
                identity = TopicIdentity(stored.description.topic_id, stored.description.partition_count)
                view.take(identity, self._sequence, self._world.now_s)
        uncertain = set()
        for group_id, topics in self._known.items():
            for name, known in topics.items():
                change = self._views[name].change_for(known)
                if change is not None:
                    topics[name] = change
                    changes[group_id][name].update(range(change[1]))
                elif known != self._present(name):
                    uncertain.add(name)
        return uncertain

    def _read_ends(self, changes: dict[str, dict[str, set[int]]]) -> None:
        for (name, topic_id, partition), groups in self._above.items():
            is_present = self._present(name)[0] == topic_id
            end = self._log.topic(name).end_offsets[partition] if is_present else -1
            for group_id in [group_id for group_id, above in groups.items() if end > above]:
                del groups[group_id]
                changes[group_id][name].add(partition)

    def _present(self, name: str) -> KnownTopic:
        stored = self._log.topics.get(name)
        return (stored.description.topic_id, stored.description.partition_count) if stored else NO_TOPIC

    def _offsets(self, name: str, partitions: Iterable[int]) -> TopicLogOffsets:
        topic_id, partition_count = self._present(name)
        ends = self._log.topic(name).end_offsets if topic_id else []
        return TopicLogOffsets(
            topic=name,
            topic_id=topic_id,
            partition_count=partition_count,
            sequence=self._sequence,
            partitions=[
                PartitionLogOffsets(
                    partition_index=partition,
                    start_offset=0,
                    end_offset=ends[partition],
                    last_stable_offset=ends[partition],
                )
                for partition in partitions
            ],
        )
