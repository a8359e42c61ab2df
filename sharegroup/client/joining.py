"""Joining: creates a consumer's member beside the application, and tries again while the log or its topics are away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from sharegroup.client.exchange import Backoff
from sharegroup.client.group_member import GroupMember
from sharegroup.client.read_ahead import ReadAhead
from sharegroup.client.record_reader import RecordReader
from sharegroup.client.settings import MemberSettings
from sharegroup.config.members import ShareConsumerConfig
from sharegroup.errors import LogUnavailableError, ShareGroupError, UnknownTopicError
from sharegroup.event_log import Event
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.port import Log

_EVENT_INTERVAL_S = 60.0

_logger = logging.getLogger(__name__)


class Joining:
    """Creates the member in a thread of its own, and keeps it subscribed to the latest topics.

    Args:
        group_id: the group, for the event log.
        create: creates the member with its reader; it may block for as long as the log is away.
        woken: while it is set, waits end at once.
    """

    def __init__(self, group_id: str, create: Callable[[], ReadAhead], woken: threading.Event) -> None:
        self._group_id = group_id
        self._create = create
        self._woken = woken
        self._changed = threading.Condition()
        self._topics: Sequence[str] = ()
        self._joined: ReadAhead | None = None
        self._failure: ShareGroupError | None = None
        self._is_trying = False
        self._is_closed = False

    @property
    def joined(self) -> ReadAhead | None:
        """The reader of the member; None while there is no member yet."""
        return self._joined

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group with these topics, or leave it without topics; never blocks."""
        with self._changed:
            self._topics = topics
            if self._joined is not None:
                self._joined.member.subscribe(topics)
            elif topics:
                self._start()

    def wait(self, timeout_ms: int | None, is_ready: Callable[[], bool]) -> ReadAhead | None:
        """Wait for the member; return None at the timeout (None: endless) or once a condition holds.

        Args:
            is_ready: the condition; `notify` makes a waiting thread check it.

        Raises:
            ShareGroupError: the log refuses the member; the next call tries again.
        """
        with self._changed:
            if self._joined is None and self._failure is None:
                self._start()
            self._changed.wait_for(
                lambda: self._joined is not None or self._failure is not None or self._woken.is_set() or is_ready(),
                None if timeout_ms is None else timeout_ms / 1000,
            )
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure.with_traceback(None)
            return self._joined

    def notify(self) -> None:
        """Make a waiting thread check its condition."""
        with self._changed:
            self._changed.notify_all()
            joined = self._joined
        if joined is not None:
            joined.member.notify()

    def close(self) -> ReadAhead | None:
        """End the attempts, without waiting for a running one; return the reader of the member, if there is one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            return self._joined

    def _start(self) -> None:
        if not self._is_trying and not self._is_closed:
            self._is_trying = True
            threading.Thread(target=self._try, name=f"share-group-joining-{self._group_id}", daemon=True).start()

    def _try(self) -> None:
        backoff = Backoff()
        next_event_s = 0.0
        while True:
            try:
                created = self._create()
            except (UnknownTopicError, LogUnavailableError) as unavailable:
                if time.monotonic() >= next_event_s and not self._is_closed:
                    next_event_s = time.monotonic() + _EVENT_INTERVAL_S
                    _logger.warning(Event("waiting_for_processor", group=self._group_id, reason=unavailable.message))
            except ShareGroupError as refusal:
                self._end(failure=refusal)
                return
            else:
                self._end(joined=created)
                return
            backoff.failed(now_ms := monotonic_ms())
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, (backoff.until_ms - now_ms) / 1000):
                    return

    def _end(self, joined: ReadAhead | None = None, failure: ShareGroupError | None = None) -> None:
        with self._changed:
            self._is_trying = False
            self._failure = failure
            is_late = self._is_closed
            if not is_late:
                self._joined = joined
                if joined is not None and self._topics:
                    joined.member.subscribe(self._topics)
            self._changed.notify_all()
        if is_late and joined is not None:
            joined.member.close(0)
            joined.close()


def new_reader(log: Log, config: ShareConsumerConfig, settings: MemberSettings, woken: threading.Event) -> ReadAhead:
    """Create the member, and the reader of its records."""
    member = GroupMember(log, settings, woken)
    return ReadAhead(member, RecordReader(log, config.fetch_max_bytes, config.max_partition_fetch_bytes))
