"""Waits in a separate thread for growth of all watched partitions at once, and informs the groups that watch them.

One turn of the thread:

1. wait until a partition has grown, a watch is new, a topic changed, or a last stable offset is due to be read;
2. read the offsets of just those partitions, topic by topic;
3. inform the groups whose watch these offsets satisfy, all in one append;
4. wait for the other partitions from the end offsets that were read.

The identity of a topic is that of the latest read of `TopicWatch`. When a topic was created again since, offsets of the
new topic may be sent as those of the old one, which is harmless: readers compare the id before they read.

A topic that cannot be read is passed to `TopicWatch`, which schedules the next read; its watches are kept.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from sharegroup.actor.effects import WatchLog
from sharegroup.config.group import TimedReset
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import LogCorruptedError, ShareGroupError
from sharegroup.logs.port import EndWatch, Log, PartitionOffsets, TopicIdentity
from sharegroup.processor.part import Part
from sharegroup.processor.watches.topic_view import log_offsets_messages, reset_offsets, topic_log_offsets
from sharegroup.processor.watches.topic_watch import TopicWatch
from sharegroup.protocol.internal_messages import TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope

POLL_TIMEOUT_MS = 1_000
"""Time for which silent partitions may delay the others, once for each time that they become silent."""

_STABLE_INTERVAL_S = 0.1
_LONGEST_WAIT_MS = 60_000
_LONGEST_REST_S = 0.01
"""Reading offsets from Kafka takes some milliseconds: watches in quick succession share a read."""

WatchKey = tuple[str, str, int]
"""Topic, topic id, partition."""

_Growth = tuple[str, tuple[int, ...], TimedReset | None]
"""Topic, its partitions that have grown, and the reset by time for those without an offset, if any."""


class GrowthWatch:
    """Responds to log watches; any thread may use it.

    Args:
        topics: the topics of the log.
        on_failure: called with the error that ended the thread.

    Attributes:
        part: the thread that waits for growth.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        leader_epoch: int,
        topics: TopicWatch,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._send = send
        self._leader_epoch = leader_epoch
        self._topics = topics
        self._inbox: deque[WatchLog | str] = deque()
        self._woken = threading.Event()
        self.part = Part("growth-watch", self._run, on_failure, self._wake)
        self._watched = WatchedPartitions()
        self._wanted_topics: set[str] = set()
        self._end_watch: EndWatch | None = None
        self._ends: dict[tuple[str, int], tuple[str, int]] = {}
        """Topic and partition → the topic id, and the end offset that is waited for."""
        self._due: defaultdict[str, set[WatchKey]] = defaultdict(set)
        self._unstable: set[WatchKey] = set()
        self._next_stable_poll_s = 0.0
        self._stable_interval_s = _STABLE_INTERVAL_S

    def update(self, watch: WatchLog) -> None:
        """Apply changes of a group's watches; returns at once."""
        self._post(watch)

    def topic_changed(self, topic: str) -> None:
        """Handle a change of a topic's identity or available partitions."""
        self._post(topic)

    def _run(self) -> None:
        try:
            while not self.part.is_stopping.is_set():
                self._wait()
                self._take_inbox()
                if not self.part.is_stopping.is_set():
                    self._poll()
        finally:
            if self._end_watch is not None:
                self._end_watch.close()

    def _post(self, item: WatchLog | str) -> None:
        self._inbox.append(item)
        self._wake()

    def _wake(self) -> None:
        self._woken.set()
        end_watch = self._end_watch
        if end_watch is not None:
            end_watch.wake()

    # 1. Wait.

    def _wait(self) -> None:
        timeout_s: float | None = None
        if self._unstable:
            timeout_s = max(self._next_stable_poll_s - time.monotonic(), 0)
        # A post that came before the end watch was made has not woken it.
        if self._inbox or self.part.is_stopping.is_set():
            pass
        elif not self._ends or self._end_watch is None:
            self._woken.wait(timeout_s)
        else:
            growth = self._end_watch.wait(_LONGEST_WAIT_MS if timeout_s is None else int(timeout_s * 1000))
            for topic, partitions in growth.partitions.items():
                self._forget_ends(topic, partitions)
                self._due[topic] |= {key for key in self._watched.of_topic(topic) if key[2] in partitions}
            for topic, error in growth.failures.items():
                self._hold(topic)
                self._topics.fail(topic, error)
        self._woken.clear()
        if self._unstable and time.monotonic() >= self._next_stable_poll_s:
            self._next_stable_poll_s = time.monotonic() + self._stable_interval_s
            for key in self._unstable:
                self._due[key[0]].add(key)

    def _take_inbox(self) -> None:
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, WatchLog):
                self._take_watch(item)
            else:
                self._take_topic(item)

    def _take_watch(self, watch: WatchLog) -> None:
        for key in self._watched.update(watch):
            topic = key[0]
            self._want(topic)
            end = self._end(key)
            # There are no records at an end offset that is waited for.
            if end is None or end > self._watched.lowest(key) or key in self._unstable:
                self._due[topic].add(key)
        unwatched: defaultdict[str, list[WatchKey]] = defaultdict(list)
        for key in watch.forgotten:
            if not self._watched.is_watched(key):
                self._unstable.discard(key)
                unwatched[key[0]].append(key)
        for topic, keys in unwatched.items():
            self._unwatch(topic, keys)

    def _take_topic(self, topic: str) -> None:
        seen = self._topics.identity(topic)
        for key in self._watched.of_topic(topic):
            is_available = seen is not None and _is_available(key, seen[0])
            if is_available and self._end(key) is None:
                self._due[topic].add(key)
            elif not is_available:
                self._unwatch(topic, [key])

    # 2. Read.

    def _poll(self) -> None:
        if not self._due:
            return
        began_s = time.monotonic()
        due, self._due = self._due, defaultdict(set)
        growth: defaultdict[str, list[_Growth]] = defaultdict(list)
        contents: dict[_Growth, TopicLogOffsets] = {}
        for topic, keys in due.items():
            self._read(topic, {key for key in keys if self._watched.is_watched(key)}, growth, contents)
        # 3. Inform.
        groups_of: defaultdict[tuple[_Growth, ...], list[str]] = defaultdict(list)
        for group_id, of_group in growth.items():
            groups_of[tuple(of_group)].append(group_id)
        messages: list[RequestEnvelope] = []
        for grown, group_ids in groups_of.items():
            messages += log_offsets_messages(group_ids, self._leader_epoch, [contents[each] for each in grown])
        if messages:
            self._send(messages)
        took_s = time.monotonic() - began_s
        self._stable_interval_s = max(_STABLE_INTERVAL_S, 10 * took_s)
        self.part.is_stopping.wait(min(2 * took_s, _LONGEST_REST_S))

    def _read(
        self,
        topic: str,
        keys: set[WatchKey],
        growth: defaultdict[str, list[_Growth]],
        contents: dict[_Growth, TopicLogOffsets],
    ) -> None:
        seen = self._topics.identity(topic)
        if seen is None:
            self._hold(topic)
            return
        identity, sequence = seen
        available = {key[2] for key in keys if _is_available(key, identity)}
        if not available:
            return
        try:
            offsets = self._log.offsets(topic, available, POLL_TIMEOUT_MS)
            grown = self._grown(topic, identity, offsets)
            for each, group_ids in grown.items():
                _, partitions, reset = each
                contents[each] = topic_log_offsets(
                    topic,
                    identity.topic_id,
                    identity.partition_count,
                    sequence,
                    {partition: offsets[partition] for partition in partitions},
                    reset_offsets(self._log, topic, partitions, reset),
                )
                for group_id in group_ids:
                    growth[group_id].append(each)
                    for partition in partitions:
                        self._watched.remove(group_id, (topic, identity.topic_id, partition))
        except LogCorruptedError:
            raise
        except ShareGroupError as error:
            self._hold(topic)
            self._topics.fail(topic, error)
            return
        self._wait_from(topic, identity.topic_id, offsets)
        if silent := available - offsets.keys():
            self._unwatch(topic, [(topic, identity.topic_id, partition) for partition in silent])
            self._topics.fail_partitions(topic, silent)

    def _grown(
        self, topic: str, identity: TopicIdentity, offsets: Mapping[int, PartitionOffsets]
    ) -> dict[_Growth, list[str]]:
        """Return the growth of a topic, with the groups that watch it."""
        grown: defaultdict[tuple[str, TimedReset | None], list[int]] = defaultdict(list)
        for partition, seen in sorted(offsets.items()):
            for group_id, above in self._watched.satisfied_by((topic, identity.topic_id, partition), seen):
                # A watch below all offsets is of a share-partition that has no start offset yet.
                reset = self._topics.reset(group_id) if above < 0 else None
                grown[group_id, reset].append(partition)
        groups_of: defaultdict[_Growth, list[str]] = defaultdict(list)
        for (group_id, reset), partitions in grown.items():
            groups_of[topic, tuple(partitions), reset].append(group_id)
        return groups_of

    # 4. Wait from the end offsets that were read.

    def _wait_from(self, topic: str, topic_id: str, offsets: Mapping[int, PartitionOffsets]) -> None:
        waiting: dict[int, int] = {}
        satisfied: list[WatchKey] = []
        for partition, seen in offsets.items():
            key = (topic, topic_id, partition)
            if self._watched.waits_for_stable(key, seen):
                self._unstable.add(key)
            else:
                self._unstable.discard(key)
            if not self._watched.is_watched(key):
                satisfied.append(key)
            elif self._end(key) != seen.end_offset:
                waiting[partition] = seen.end_offset
        self._unwatch(topic, satisfied)
        if waiting:
            if self._end_watch is None:
                self._end_watch = self._log.watch_ends()
            self._end_watch.watch(topic, waiting)
            self._ends |= {(topic, partition): (topic_id, end) for partition, end in waiting.items()}

    def _end(self, key: WatchKey) -> int | None:
        """Return the end offset of a partition that is waited for; None for one of a former topic of its name."""
        topic, topic_id, partition = key
        waiting_id, end = self._ends.get((topic, partition), ("", None))
        return end if waiting_id == topic_id else None

    def _unwatch(self, topic: str, keys: Iterable[WatchKey]) -> None:
        ended = [key[2] for key in keys if self._end(key) is not None]
        if ended and self._end_watch is not None:
            self._end_watch.forget(topic, ended)
        self._forget_ends(topic, ended)
        self._want(topic)

    def _hold(self, topic: str) -> None:
        """Stop waiting for growth of a topic until it changes."""
        keys = [(name, topic_id, partition) for (name, partition), (topic_id, _) in self._ends.items() if name == topic]
        self._unwatch(topic, keys)
        self._unstable = {key for key in self._unstable if key[0] != topic}

    def _forget_ends(self, topic: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._ends.pop((topic, partition), None)

    def _want(self, topic: str) -> None:
        """Let `TopicWatch` read a topic while partitions of it are watched."""
        is_wanted = bool(self._watched.of_topic(topic))
        if is_wanted != (topic in self._wanted_topics):
            (self._wanted_topics.add if is_wanted else self._wanted_topics.discard)(topic)
            self._topics.want(topic, is_wanted)


def _is_available(key: WatchKey, identity: TopicIdentity) -> bool:
    _, topic_id, partition = key
    return (
        topic_id == identity.topic_id and partition < identity.partition_count and partition not in identity.leaderless
    )


class WatchedPartitions:
    """An index of the groups' `WatchLog` effects that are not satisfied; growth costs with the groups that watch it."""

    def __init__(self) -> None:
        self._above: dict[WatchKey, dict[str, int]] = {}
        self._by_topic: defaultdict[str, set[WatchKey]] = defaultdict(set)
        self._by_group: defaultdict[str, set[WatchKey]] = defaultdict(set)
        self._levels: dict[str, IsolationLevel] = {}

    def update(self, watch: WatchLog) -> set[WatchKey]:
        """Apply changes of a group's watches; return the partitions to read."""
        group_id = watch.group_id
        for key in watch.forgotten:
            self.remove(group_id, key)
        for key, above in watch.above_offset.items():
            self._above.setdefault(key, {})[group_id] = above
            self._by_topic[key[0]].add(key)
            self._by_group[group_id].add(key)
        changed = set(watch.above_offset)
        if group_id in self._by_group:
            if self._levels.get(group_id, watch.isolation_level) is not watch.isolation_level:
                changed |= self._by_group[group_id]
            self._levels[group_id] = watch.isolation_level
        return changed

    def remove(self, group_id: str, key: WatchKey) -> None:
        """Remove a group's watch of a partition, if there is one."""
        groups = self._above.get(key, {})
        if groups.pop(group_id, None) is None:
            return
        if not groups:
            del self._above[key]
            _discard(self._by_topic, key[0], key)
        if _discard(self._by_group, group_id, key):
            del self._levels[group_id]

    def of_topic(self, topic: str) -> frozenset[WatchKey]:
        """Return the watched partitions of all topics that have or had this name."""
        return frozenset(self._by_topic.get(topic, ()))

    def is_watched(self, key: WatchKey) -> bool:
        """Return True if a group watches the partition."""
        return key in self._above

    def lowest(self, key: WatchKey) -> int:
        """Return the lowest offset above which a group watches the partition."""
        return min(self._above[key].values())

    def satisfied_by(self, key: WatchKey, seen: PartitionOffsets) -> Iterator[tuple[str, int]]:
        """Yield the groups whose watch of a partition is satisfied by these offsets, by id, with the watched offset."""
        for group_id, above in sorted(self._above.get(key, {}).items()):
            if seen.readable_end(self._levels[group_id]) > above:
                yield group_id, above

    def waits_for_stable(self, key: WatchKey, seen: PartitionOffsets) -> bool:
        """Return True if a group waits only for open transactions of a partition to end."""
        return any(
            seen.last_stable_offset <= above < seen.end_offset
            and self._levels[group_id] is IsolationLevel.READ_COMMITTED
            for group_id, above in self._above.get(key, {}).items()
        )


def _discard(index: defaultdict[str, set[WatchKey]], name: str, key: WatchKey) -> bool:
    """Remove a key from an index; return True if the name has no key any more."""
    index[name].discard(key)
    if index[name]:
        return False
    del index[name]
    return True
