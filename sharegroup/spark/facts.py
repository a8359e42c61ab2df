"""Facts for the request log: "the log grew", "the topic is there", "time passed", as the actors asked for them.

The driver appends them; they need no fence, because each does no harm when it is repeated or late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from sharegroup.actor.effects import Wake, WatchLog, WatchTopics
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.internal_messages import UNINITIALIZED_OFFSET, LogOffsets, PartitionLogOffsets, Tick, TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope, request

PARTITIONS_PER_MESSAGE = 50_000
"""They take 9 MB at most, and less than the request topic's 16 MiB."""

# A new watch is seen after at most this time; waiting costs a look at the log's change counter.
_SLICE_MS = 20
_TOPIC_CHECK_INTERVAL_S = 0.5
# Each look asks the brokers.
_STABLE_LOOK_INTERVAL_S = 0.1


class FactSource:
    """Keeps the actors' watches and wake-up times, and says which facts are due.

    Args:
        log: the record log.
        send: appends messages to the request log.
        on_failure: called with what ended the thread, when it was not `stop`.
        check: called as often as watched topics are looked at; what it raises ends the thread.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        on_failure: Callable[[BaseException], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._log = log
        self._send = send
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._wakes: dict[tuple[str, ActorRole], int] = {}
        self._log_watches: dict[str, WatchLog] = {}
        self._topic_watches: dict[str, WatchTopics] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharegroup-facts", daemon=True)

    def start(self) -> None:
        """Start the thread that appends facts between two batches."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def update(self, wishes: Iterable[Wake | WatchLog | WatchTopics]) -> list[RequestEnvelope]:
        """Take in what a batch's actors wish; returns the facts that answer a wish at once."""
        changed: set[str] = set()
        with self._lock:
            for wish in wishes:
                changed.add(wish.group_id)
                match wish:
                    case Wake():
                        self._set_wake(wish)
                    case WatchLog():
                        self._log_watches[wish.group_id] = wish
                    case WatchTopics():
                        self._topic_watches[wish.group_id] = wish
            return self._answers(changed, with_topics=True)

    def _set_wake(self, wish: Wake) -> None:
        if wish.at_ms is None:
            self._wakes.pop((wish.group_id, wish.role), None)
        else:
            self._wakes[wish.group_id, wish.role] = wish.at_ms

    def _run(self) -> None:
        try:
            next_topic_check = next_stable_look = time.monotonic()
            while not self._stopped.is_set():
                has_grown = self._wait()
                now_s = time.monotonic()
                check_topics, look_at_stable = now_s >= next_topic_check, now_s >= next_stable_look
                if check_topics:
                    next_topic_check = now_s + _TOPIC_CHECK_INTERVAL_S
                    self._check()
                if look_at_stable:
                    next_stable_look = now_s + _STABLE_LOOK_INTERVAL_S
                with self._lock:
                    due = self._due_ticks()
                    if check_topics:
                        due += self._answers(self._log_watches.keys() | self._topic_watches.keys(), with_topics=True)
                    elif has_grown or look_at_stable:
                        due += self._answers(self._watching(has_grown), with_topics=False)
                if due:
                    self._send(due)
        except BaseException as failure:
            self._on_failure(failure)

    def _wait(self) -> bool:
        """Wait a little; whether a partition has grown that is watched for that."""
        with self._lock:
            positions = {
                (topic, partition): offset
                for watch in self._log_watches.values()
                # A last stable offset cannot be waited for.
                if watch.isolation_level is IsolationLevel.READ_UNCOMMITTED
                for (topic, _, partition), offset in watch.above_offset.items()
            }
        if not positions:
            self._stopped.wait(_SLICE_MS / 1000)
            return False
        try:
            return self._log.wait(positions, _SLICE_MS)
        except UnknownTopicError:
            # A watched topic was deleted; the topic check tells the group.
            self._stopped.wait(_SLICE_MS / 1000)
            return False

    def _watching(self, has_grown: bool) -> set[str]:
        """The groups that a grown partition may concern, and those whose last stable offset must be looked at."""
        return {
            group_id
            for group_id, watch in self._log_watches.items()
            if has_grown or watch.isolation_level is IsolationLevel.READ_COMMITTED
        }

    def _due_ticks(self) -> list[RequestEnvelope]:
        now_ms = self._log.now_ms()
        due = [key for key, at_ms in self._wakes.items() if at_ms <= now_ms]
        for key in due:
            del self._wakes[key]
        return [request(ApiKey.TICK, group_id, Tick()) for group_id in sorted({group_id for group_id, _ in due})]

    def _answers(self, group_ids: Iterable[str], with_topics: bool) -> list[RequestEnvelope]:
        facts = []
        seen_topics: dict[str, tuple[str, int]] = {}
        for group_id in sorted(group_ids):
            topics = self._grown(group_id)
            if with_topics:
                topics += self._changed_topics(group_id, seen_topics)
            facts += [request(ApiKey.LOG_OFFSETS, group_id, LogOffsets(topics=part)) for part in _portions(topics)]
        return facts

    def _grown(self, group_id: str) -> list[TopicLogOffsets]:
        """The partitions that grew above a group's watch; the watch on them is answered with that."""
        watch = self._log_watches.get(group_id)
        if watch is None:
            return []
        grown: list[TopicLogOffsets] = []
        for topic, topic_id in sorted({(topic, topic_id) for topic, topic_id, _ in watch.above_offset}):
            offsets = self._offsets(topic, topic_id)
            watched = {p: above for (_, id_, p), above in watch.above_offset.items() if id_ == topic_id}
            ends = {p: found.readable_end(watch.isolation_level) for p, found in offsets.items()}
            news = {p: offsets[p] for p, above in watched.items() if p in ends and ends[p] > above}
            if news:
                grown.append(_topic_offsets(topic, topic_id, len(offsets), news))
            # A topic that is gone never grows; to go on looking at the one of its name would be a busy loop.
            for partition in news if offsets else watched:
                del watch.above_offset[topic, topic_id, partition]
        return grown

    def _changed_topics(self, group_id: str, seen_topics: dict[str, tuple[str, int]]) -> list[TopicLogOffsets]:
        """Topics whose id or partition count is not what the group knows; told once.

        Many groups may watch one topic, idle ones too: it is looked at once for all of them.
        """
        watch = self._topic_watches.get(group_id)
        changed: list[TopicLogOffsets] = []
        for topic, known in (watch.topics if watch else {}).items():
            if topic not in seen_topics:
                seen_topics[topic] = self._seen_topic(topic)
            seen = seen_topics[topic]
            if watch is None or seen == known:
                continue
            watch.topics[topic] = seen
            resets = self._reset_offsets(topic, seen[1], watch.reset_duration_ms)
            changed.append(_topic_offsets(topic, seen[0], seen[1], self._offsets(topic, seen[0]), resets))
        return changed

    def _seen_topic(self, topic: str) -> tuple[str, int]:
        try:
            description = self._log.describe_topic(topic)
        except UnknownTopicError:
            return "", 0
        return description.topic_id, description.partition_count

    def _reset_offsets(self, topic: str, partition_count: int, duration_ms: int | None) -> dict[int, int]:
        if duration_ms is None:
            return {}
        since_ms = time.time_ns() // 1_000_000 - duration_ms
        return {p: self._log.offset_for_time(topic, p, since_ms) for p in range(partition_count)}

    def _offsets(self, topic: str, topic_id: str) -> dict[int, PartitionOffsets]:
        """Offsets of the topic with this id; none when it is gone, even if another one has its name now."""
        try:
            offsets = self._log.offsets(topic)
            # After the look at the offsets, not before it: an id that still holds now held then, too.
            return offsets if self._log.describe_topic(topic).topic_id == topic_id else {}
        except UnknownTopicError:
            return {}


def _portions(topics: Iterable[TopicLogOffsets]) -> Iterator[list[TopicLogOffsets]]:
    """The topics as lists that one message each has room for; large topics are divided."""
    portion: list[TopicLogOffsets] = []
    room = PARTITIONS_PER_MESSAGE
    for topic in topics:
        rest = topic.partitions
        while len(rest) > room:
            yield [*portion, topic.model_copy(update={"partitions": rest[:room]})]
            portion, rest, room = [], rest[room:], PARTITIONS_PER_MESSAGE
        portion.append(topic.model_copy(update={"partitions": rest}))
        room -= len(rest)
    if portion:
        yield portion


def _topic_offsets(
    topic: str,
    topic_id: str,
    partition_count: int,
    offsets: dict[int, PartitionOffsets],
    reset_offsets: dict[int, int] | None = None,
) -> TopicLogOffsets:
    return TopicLogOffsets(
        topic=topic,
        topic_id=topic_id,
        partition_count=partition_count,
        partitions=[
            PartitionLogOffsets(
                partition_index=partition,
                start_offset=found.start_offset,
                end_offset=found.end_offset,
                last_stable_offset=found.last_stable_offset,
                reset_offset=(reset_offsets or {}).get(partition, UNINITIALIZED_OFFSET),
            )
            for partition, found in sorted(offsets.items())
        ],
    )
