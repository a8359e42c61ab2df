"""The watch on the record log in virtual time: it answers WatchTopics and WatchLog with LogOffsets messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import LogOffsets, PartitionLogOffsets, TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope, request
from tests.simulation.log import StoredLog, StoredTopic
from tests.simulation.world import World

PartitionKey = tuple[str, int]


class SimulatedWatch:
    """Looks at the record log a little after it grew or a watch was set; for one processor.

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
        self._topics: dict[str, dict[str, tuple[str, int]]] = {}
        self._above: dict[PartitionKey, dict[str, int]] = defaultdict(dict)
        self._sequence = 0

    def update(self, effects: Iterable[WatchLog | WatchTopics]) -> bool:
        """Take watches; returns True if it is time to look."""
        is_changed = False
        for effect in effects:
            is_changed = True
            if isinstance(effect, WatchTopics):
                self._topics[effect.group_id] = dict(effect.topics)
                continue
            for topic, _, partition in effect.forgotten:
                self._above[topic, partition].pop(effect.group_id, None)
            for (topic, _, partition), above in effect.above_offset.items():
                self._above[topic, partition][effect.group_id] = above
        return is_changed

    def look(self) -> None:
        """Tell groups what changed."""
        self._sequence += 1
        messages: list[RequestEnvelope] = []
        by_group: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for group_id, topics in self._topics.items():
            for name, known in topics.items():
                stored = self._log.topics.get(name)
                seen = (stored.description.topic_id, len(stored.end_offsets)) if stored else ("", 0)
                if seen != known:
                    by_group[group_id][name].update(range(seen[1]))
                    topics[name] = seen
        for (name, partition), groups in self._above.items():
            stored = self._log.topics.get(name)
            end = stored.end_offsets[partition] if stored and partition < len(stored.end_offsets) else -1
            for group_id in [group_id for group_id, above in groups.items() if end > above]:
                del groups[group_id]
                by_group[group_id][name].add(partition)
        for group_id, topics_of_group in sorted(by_group.items()):
            body = LogOffsets(
                topics=[self._offsets(name, sorted(partitions)) for name, partitions in sorted(topics_of_group.items())]
            )
            messages.append(request(ApiKey.LOG_OFFSETS, group_id, body, leader_epoch=self._leader_epoch))
        if messages:
            self._send(messages)

    def _offsets(self, name: str, partitions: Iterable[int]) -> TopicLogOffsets:
        stored: StoredTopic | None = self._log.topics.get(name)
        ends = stored.end_offsets if stored else []
        return TopicLogOffsets(
            topic=name,
            topic_id=stored.description.topic_id if stored else "",
            partition_count=len(ends),
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
