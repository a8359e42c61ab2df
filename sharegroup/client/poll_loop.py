"""The wait of a consumer's poll: for the member, then for records, with all that its application hears meanwhile."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from sharegroup.client.client_events import ClientEvents
from sharegroup.client.held_records import ReadRange
from sharegroup.client.joining import Joining
from sharegroup.client.kafka_exceptions import WakeupException
from sharegroup.client.message import Messages
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.read_ahead import ReadAhead
from sharegroup.client.subscription import Subscription
from sharegroup.config.members import ShareConsumerConfig


class PollLoop:
    """Waits on the application's thread.

    Args:
        woken: while it is set, waits end at once; `raise_if_woken` clears it.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        subscription: Subscription,
        joining: Joining,
        events: ClientEvents,
        woken: threading.Event,
    ) -> None:
        self._subscription = subscription
        self._joining = joining
        self._events = events
        self._woken = woken
        # An explicit max.poll.records waits for that number of records; the default takes the records that are read.
        self._wanted_count = config.max_poll_records if "max_poll_records" in config.model_fields_set else 1

    def raise_if_woken(self) -> None:
        """Raise the exception of a wakeup, if there was one."""
        if self._woken.is_set():
            self._woken.clear()
            raise WakeupException("The share consumer was woken up.")

    def refresh_subscription(self) -> None:
        """Follow the topics that a pattern matches by now."""
        if self._subscription.refresh(time.monotonic()):
            self._joining.subscribe(self._subscription.names)

    def await_joined(self, deadline_s: float | None) -> ReadAhead | None:
        """Wait for the member, which may be created only once the log is there; None at the deadline."""
        while True:
            self._events.serve()
            self.refresh_subscription()
            joined = self._joining.wait(self._wait_ms(deadline_s), self._has_events)
            self.raise_if_woken()
            if joined is not None or (deadline_s is not None and time.monotonic() >= deadline_s):
                return joined

    def next_messages(
        self,
        read_ahead: ReadAhead,
        acknowledged: Sequence[Acknowledgement],
        deadline_s: float | None,
        deliver: Callable[[list[ReadRange]], Messages],
        serve_results: Callable[[], None],
    ) -> Messages:
        """Wait for records, and deliver them; there are none at the deadline.

        Args:
            acknowledged: acknowledgements to send with the fetch.
            deliver: makes the messages of records; it may drop all of them.
            serve_results: handles the results of acknowledgements.
        """
        member = read_ahead.member
        wanted_count = self._wanted_count
        while True:
            ranges = read_ahead.poll(acknowledged, wanted_count)
            if ranges and (messages := deliver(ranges)):
                return messages
            acknowledged = []
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return Messages()
            serve_results()
            self._events.serve()
            self.refresh_subscription()
            is_there = member.wait(self._wait_ms(deadline_s), partial(self._has_news, read_ahead, wanted_count))
            self.raise_if_woken()
            if not is_there:
                wanted_count = 1

    def _has_events(self) -> bool:
        return self._subscription.has_listed or self._events.are_waiting

    def _has_news(self, read_ahead: ReadAhead, wanted_count: int) -> bool:
        return read_ahead.is_ready(wanted_count) or self._has_events()

    def _wait_ms(self, deadline_s: float | None) -> int | None:
        """Return the time to wait for records, ms: until a deadline, or the next lookup of the topics."""
        now_s = time.monotonic()
        waits_ms = [self._subscription.next_refresh_ms(now_s)]
        if deadline_s is not None:
            waits_ms.append(max(math.ceil((deadline_s - now_s) * 1000), 0))
        return min((wait_ms for wait_ms in waits_ms if wait_ms is not None), default=None)
