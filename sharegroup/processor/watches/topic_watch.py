"""Reads topics for all groups at once in a separate thread, and informs the groups of changes.

A topic that cannot be read, since it is denied or its partitions have no leader, affects only the groups that watch it:
it is read again with a growing pause, while the others are read as always.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from sharegroup.actor.effects import WatchTopics
from sharegroup.config.group import TimedReset
from sharegroup.errors import LogCorruptedError, ShareGroupError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log, PartitionOffsets, TopicIdentity
from sharegroup.processor.part import Part
from sharegroup.processor.watches.topic_view import (
    GroupTopics,
    KnownTopic,
    TopicView,
    log_offsets_messages,
    reset_offsets,
    topic_log_offsets,
)
from sharegroup.protocol.internal_messages import TopicLogOffsets
from sharegroup.protocol.messages import RequestEnvelope

POLL_TIMEOUT_MS = 2_000
"""Time for which the read of one topic may delay the others."""

_logger = logging.getLogger(__name__)


class TopicWatch:
    """Keeps a view of each watched topic; any thread may use it.

    Args:
        changed: called with a topic whose identity or available partitions changed.
        on_failure: called with the error that ended the thread.

    Attributes:
        part: the thread that reads topics.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        leader_epoch: int,
        changed: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._send = send
        self._leader_epoch = leader_epoch
        self._changed = changed
        self._inbox: deque[Callable[[], None]] = deque()
        self._woken = threading.Event()
        self.part = Part("topic-watch", self._run, on_failure, self._woken.set)
        self._groups = GroupTopics()
        self._wanted: set[str] = set()
        self._views: dict[str, TopicView] = {}
        self._published: dict[str, tuple[TopicIdentity, int]] = {}
        self._uninformed: set[str] = set()
        self._sequence = 0

    def update(self, watch: WatchTopics) -> None:
        """Replace a group's watch; returns at once."""
        self._post(partial(self._replace, watch))

    def want(self, topic: str, is_wanted: bool = True) -> None:
        """Read a topic also when no group watches its identity; or no longer."""
        self._post(partial(self._set_wanted, topic, is_wanted))

    def fail(self, topic: str, error: ShareGroupError) -> None:
        """Record that a topic cannot be read."""
        self._post(partial(self._fail, topic, str(error)))

    def fail_partitions(self, topic: str, partitions: Iterable[int]) -> None:
        """Record that some partitions of a topic do not respond in time."""
        self._post(partial(self._fail, topic, _no_response(partitions), frozenset(partitions)))

    def identity(self, topic: str) -> tuple[TopicIdentity, int] | None:
        """Return a topic, with all partitions that cannot be read as leaderless, and the sequence of the read.

        None when the latest read has no topic, or failed, or is not done yet.
        """
        return self._published.get(topic)

    def reset(self, group_id: str) -> TimedReset | None:
        """Return a group's `share.auto.offset.reset` by time; None if it does not reset by time."""
        return self._groups.reset(group_id)

    def _run(self) -> None:
        while not self.part.is_stopping.is_set():
            next_poll_s = min((view.next_poll_s for view in self._views.values()), default=None)
            self._woken.wait(None if next_poll_s is None else max(next_poll_s - time.monotonic(), 0))
            self._woken.clear()
            while self._inbox:
                self._inbox.popleft()()
            self._poll()
            for topic in sorted(self._uninformed):
                if self.part.is_stopping.is_set():
                    return
                self._inform(topic)

    def _post(self, action: Callable[[], None]) -> None:
        self._inbox.append(action)
        self._woken.set()

    # Watches.

    def _replace(self, watch: WatchTopics) -> None:
        for topic in self._groups.replace(watch):
            self._add_or_remove(topic)
            if topic in self._views:
                self._uninformed.add(topic)

    def _set_wanted(self, topic: str, is_wanted: bool) -> None:
        (self._wanted.add if is_wanted else self._wanted.discard)(topic)
        self._add_or_remove(topic)

    def _add_or_remove(self, topic: str) -> None:
        if topic in self._groups.topics() or topic in self._wanted:
            self._views.setdefault(topic, TopicView())
        else:
            self._views.pop(topic, None)
            self._published.pop(topic, None)
            self._uninformed.discard(topic)

    def _fail(self, topic: str, reason: str, silent: frozenset[int] | None = None) -> None:
        view = self._views.get(topic)
        if view is None:
            return
        if view.fail(reason, time.monotonic(), silent):
            _logger.warning(Event("topic_unavailable", topic=topic, reason=reason))
        self._publish(topic, view)

    # Reads.

    def _poll(self) -> None:
        now_s = time.monotonic()
        due = [topic for topic, view in self._views.items() if view.next_poll_s <= now_s]
        if not due or self.part.is_stopping.is_set():
            return
        self._sequence += 1
        sequence = self._sequence
        for topic, seen in self._identify(due).items():
            view = self._views[topic]
            before = view.state
            if isinstance(seen, TopicIdentity):
                self._take(topic, view, seen, sequence)
            elif isinstance(seen, UnknownTopicError):
                view.take_missing(sequence, time.monotonic())
            else:
                self._fail(topic, str(seen))
            if view.state != before:
                self._uninformed.add(topic)
                self._publish(topic, view)
                self._changed(topic)

    def _identify(self, topics: list[str]) -> Mapping[str, TopicIdentity | ShareGroupError]:
        try:
            return self._log.identify(topics, POLL_TIMEOUT_MS)
        except LogCorruptedError:
            raise
        except ShareGroupError as error:
            return dict.fromkeys(topics, error)

    def _take(self, topic: str, view: TopicView, seen: TopicIdentity, sequence: int) -> None:
        leaderless_before = view.identity.leaderless if view.identity else frozenset()
        view.take(seen, sequence, time.monotonic())
        if seen.leaderless != leaderless_before:
            _logger.warning(Event("partitions_leaderless", topic=topic, partitions=_listed(seen.leaderless)))
        if view.silent:
            view.respond(self._offsets(topic, view.silent) or ())
        if view.silent:
            self._fail(topic, _no_response(view.silent), view.silent)

    def _publish(self, topic: str, view: TopicView) -> None:
        published = view.published
        if published is None:
            self._published.pop(topic, None)
        else:
            self._published[topic] = published

    def _offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets] | None:
        """Return the offsets of the partitions that respond in time; None when the topic cannot be read."""
        try:
            return self._log.offsets(topic, partitions, POLL_TIMEOUT_MS)
        except LogCorruptedError:
            raise
        except ShareGroupError as error:
            self._fail_after(topic, error)
            return None

    def _fail_after(self, topic: str, error: ShareGroupError) -> None:
        # A topic that is deleted meanwhile is no failure: the next read detects it.
        if not isinstance(error, UnknownTopicError):
            self._fail(topic, str(error))

    # Groups.

    def _inform(self, topic: str) -> None:
        """Send changes of a topic to the groups that watch it; later, when it cannot be read."""
        view = self._views[topic]
        if view.is_failing:
            return
        groups: defaultdict[tuple[KnownTopic, TimedReset | None], list[str]] = defaultdict(list)
        for group_id, known in self._groups.watchers(topic):
            change = view.change_for(known)
            if change is not None:
                groups[change, self._groups.reset(group_id)].append(group_id)
        offsets = self._offsets_of(topic, view) if groups else {}
        if offsets is None:
            return
        messages: list[RequestEnvelope] = []
        for (change, reset), group_ids in groups.items():
            content = self._content(topic, change, reset, offsets)
            if content is None:
                return
            messages += log_offsets_messages(group_ids, self._leader_epoch, [content])
        self._uninformed.discard(topic)
        if messages:
            self._send(messages)
        for (change, _), group_ids in groups.items():
            for group_id in group_ids:
                self._groups.learn(group_id, topic, change)

    def _offsets_of(self, topic: str, view: TopicView) -> dict[int, PartitionOffsets] | None:
        """Return the offsets of all partitions that can be read; None when the topic cannot."""
        if view.identity is None:
            return {}
        available = frozenset(range(view.identity.partition_count)) - view.unavailable
        offsets = self._offsets(topic, available)
        if offsets is not None and (silent := available - offsets.keys()):
            self._fail(topic, _no_response(silent), silent)
            self._changed(topic)
        # Checked after the read of the offsets, not before it: an id that still holds now held then, too.
        seen = self._identify([topic])[topic]
        is_same = isinstance(seen, TopicIdentity) and seen.topic_id == view.identity.topic_id
        return offsets if is_same else None

    def _content(
        self, topic: str, change: KnownTopic, reset: TimedReset | None, offsets: Mapping[int, PartitionOffsets]
    ) -> TopicLogOffsets | None:
        """Build the message of a group; None when the topic cannot be read."""
        topic_id, partition_count = change
        # Newer than all messages of the same read or an earlier one.
        self._sequence += 1
        try:
            resets = reset_offsets(self._log, topic, offsets if topic_id else (), reset)
        except LogCorruptedError:
            raise
        except ShareGroupError as error:
            self._fail_after(topic, error)
            return None
        return topic_log_offsets(topic, topic_id, partition_count, self._sequence, offsets if topic_id else {}, resets)


def _no_response(partitions: Iterable[int]) -> str:
    return f"no response of partitions {_listed(partitions)}"


def _listed(partitions: Iterable[int]) -> str:
    numbers = sorted(partitions)
    return ",".join(map(str, numbers[:20])) + (f" and {len(numbers) - 20} more" if len(numbers) > 20 else "")
