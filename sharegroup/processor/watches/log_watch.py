"""The threads that watch the logs beside the loop, so that no response waits for a read.

`LogWatch` informs groups of the growth of logs and of changes of topics that their actors watch. It has two threads:
`TopicWatch` reads the topics, once for all groups that watch them; `GrowthWatch` waits for growth of the watched
partitions. Both send LogOffsets messages. These need no fence: offsets merge by maximum, and a group compares the
sequence of the read and the leader epoch before it accepts a topic identity.

`MemberWatch` informs groups of members whose process has ended, where the log knows it: the embedded log has an
operating system lock for each member. Kafka has none: there the helper process of a member informs the group
(`logs/helper_process.py`).

`TopicCheck` ends the processor when its request topic is gone, in several lookups over some seconds, or another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.event_log import Event
from sharegroup.logs.member_life import MemberLocks
from sharegroup.logs.port import Log
from sharegroup.processor.part import Part
from sharegroup.processor.watches.growth_watch import GrowthWatch
from sharegroup.processor.watches.topic_watch import TopicWatch
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import MemberEnded
from sharegroup.protocol.messages import RequestEnvelope, request

logger = logging.getLogger("sharegroup.processor")

_POLL_INTERVAL_MS = 60_000
_CHECK_INTERVAL_S = 0.5


class LogWatch:
    """Keeps the groups' watches and responds to them.

    Args:
        send: appends messages to the request log; called by two threads.
        on_failure: called with the error that ended a thread.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        leader_epoch: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._topics = TopicWatch(log, send, leader_epoch, lambda topic: self._growth.topic_changed(topic), on_failure)
        self._growth = GrowthWatch(log, send, leader_epoch, self._topics, on_failure)
        self._parts = (self._topics.part, self._growth.part)

    def start(self) -> None:
        """Start the threads."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Stop the threads and wait for them; nothing is sent afterwards."""
        for part in self._parts:
            part.request_stop()
        for part in self._parts:
            part.stop()

    def update(self, effects: Iterable[WatchLog | WatchTopics]) -> None:
        """Apply new watches, in order; returns at once, without reading the log."""
        for effect in effects:
            match effect:
                case WatchTopics():
                    self._topics.update(effect)
                case WatchLog():
                    self._growth.update(effect)


class MemberWatch:
    """Waits for ended members in a separate thread, and reports also those that ended while no processor ran.

    Args:
        on_failure: called with the error that ended the thread.
    """

    def __init__(
        self,
        locks: MemberLocks,
        send: Callable[[list[RequestEnvelope]], None],
        leader_epoch: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._locks = locks
        self._send = send
        self._leader_epoch = leader_epoch
        self._part = Part("member-watch", self._run, on_failure, locks.wake)

    def start(self) -> None:
        """Start the thread."""
        self._part.start()

    def stop(self) -> None:
        """Stop the thread; nothing is sent afterwards."""
        self._part.stop()
        self._locks.close()

    def _run(self) -> None:
        while not self._part.is_stopping.is_set():
            ended = self._locks.ended()
            if ended:
                self._send(
                    [
                        request(
                            ApiKey.MEMBER_ENDED,
                            member.group_id,
                            MemberEnded(member_id=member.member_id),
                            leader_epoch=self._leader_epoch,
                        )
                        for member in ended
                    ]
                )
            for member in ended:
                # Only after the message was sent: a later processor may repeat it, which does no harm.
                self._locks.forget(member)
                logger.info(Event("member_ended", group=member.group_id, member=member.member_id))
            self._locks.wait(_POLL_INTERVAL_MS)


class TopicCheck:
    """Checks regularly that the request topic is still the one that the processor follows.

    Args:
        check: raises an error when it is not.
        on_failure: called with that error.
    """

    def __init__(self, check: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        self._check = check
        self._part = Part("topic-check", self._run, on_failure)

    def start(self) -> None:
        """Start the thread."""
        self._part.start()

    def stop(self) -> None:
        """End the thread; a check under way may wait for Kafka, and is not waited for."""
        self._part.request_stop()

    def _run(self) -> None:
        while not self._part.is_stopping.wait(_CHECK_INTERVAL_S):
            self._check()
