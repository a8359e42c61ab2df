"""Tells groups that logs grew and that topics changed, as their actors watch for it.

Two threads look at the record log, so that nobody's answers wait for a look:

- `TopicWatch` looks at the topics, once for all groups that watch them;
- `GrowthWatch` waits for growth of the watched partitions.

Both send LogOffsets messages. These need no fence: offsets merge by maximum, and a group compares the sequence of looks
and the leader epoch before it learns from one which topic has a name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.logs.port import Log
from sharegroup.processor.growth_watch import GrowthWatch
from sharegroup.processor.topic_watch import TopicWatch
from sharegroup.protocol.messages import RequestEnvelope


class LogWatch:
    """Keeps the groups' watches and answers them.

    Args:
        log: the record log.
        send: appends messages to the request log; called by two threads.
        leader_epoch: epoch of the processor, which the messages carry.
        on_failure: called with the error that ended a thread.
    """

    def __init__(
        self,
        log: Log,
        send: Callable[[list[RequestEnvelope]], None],
        leader_epoch: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._on_failure = on_failure
        self._topics = TopicWatch(log, send, leader_epoch, lambda topic: self._growth.topic_changed(topic))
        self._growth = GrowthWatch(log, send, leader_epoch, self._topics)
        self._threads = [
            threading.Thread(target=self._run, args=(body,), name=f"sharegroup-{name}", daemon=True)
            for name, body in (("topic-watch", self._topics.run), ("growth-watch", self._growth.run))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads and wait for them; nothing is sent afterwards."""
        self._topics.stop()
        self._growth.stop()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def update(self, effects: Iterable[WatchLog | WatchTopics]) -> None:
        """Take in new watches, in order; returns at once, without a look at the log."""
        for effect in effects:
            match effect:
                case WatchTopics():
                    self._topics.update(effect)
                case WatchLog():
                    self._growth.update(effect)

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as failure:
            self._on_failure(failure)
