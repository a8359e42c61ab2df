"""The two threads of a member: they exchange the messages of its protocol with the log.

Only they wait for the log, also while Kafka is away, and none of them holds the lock meanwhile. What their calls would
raise for ever ends the member.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sharegroup.client.exchange import LONGEST_PAUSE_MS, Request
from sharegroup.client.measurements import RequestMeasurements
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.errors import InvalidRequestError, LogUnavailableError, ShareGroupError
from sharegroup.logs.life_signs import MemberHelper
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.member_life import MemberLock
from sharegroup.protocol.messages import Message

LONGEST_WAIT_MS = 1_000
"""Maximum delay until a thread notices a change by another one without a notification."""
_RECEIVE_MS = 1_000
"""Timeout of one wait of the receiver; a close wakes it."""
_LAST_SEND_MS = 1_000
"""Time for the last requests of a close to be appended: up to half of its timeout, and as much after a shorter one."""
_JOIN_MS = 100
"""Time that a close waits for its threads; one that waits for a log that is away ends when the log is closed."""

_logger = logging.getLogger(__name__)


class MemberThreads:
    """The sender and the receiver of a member; both end with `close`, or with the first error that is permanent.

    Attributes:
        changed: guards the protocol; it is notified of all that a call may wait for.
        due: of the same lock; it wakes the sender.
        failure: the error that ended the member; None while it runs.
        is_done: True if the member has ended.
        measurements: the requests and responses so far.

    Args:
        lock: shows that the member's process lives; None without one.
        helper: speaks for the member while the interpreter is busy; None without one.
    """

    def __init__(
        self,
        member_id: str,
        protocol: MemberProtocol,
        channel: ProcessorChannel,
        lock: MemberLock | None,
        helper: MemberHelper | None,
    ) -> None:
        self._member_id = member_id
        self._protocol = protocol
        self._channel = channel
        self._lock = lock
        self._helper = helper
        self.measurements = RequestMeasurements()
        guard = threading.RLock()
        self.changed = threading.Condition(guard)
        self.due = threading.Condition(guard)
        self.failure: ShareGroupError | None = None
        self.is_done = False
        self._sender_until_ms = 0
        """Time of the sender's next check without a notification, monotonic ms."""
        self._last_requests: list[Request[Message]] = []
        self._threads = [
            threading.Thread(target=self._run, args=(step,), name=f"share-group-{name}-{member_id}", daemon=True)
            for name, step in (("sender", self._send_step), ("receiver", self._receive_step))
        ]
        for thread in self._threads:
            thread.start()

    def notify_sender(self, now_ms: int) -> None:
        """Wake the sender if it may send now, or has to earlier than its next check."""
        deadline_ms = self._protocol.next_deadline_ms(now_ms)
        is_sooner = deadline_ms is not None and deadline_ms < self._sender_until_ms
        if is_sooner or self._protocol.may_send(now_ms):
            self.due.notify()

    def raise_failure(self) -> None:
        """Raise the error that ended the member, if one did."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def leave(self, timeout_ms: int, *, keeps_locks: bool) -> None:
        """Close the protocol's session, leave the group, and end the member; call it with the lock.

        Args:
            timeout_ms: time for the responses, and for the last requests if these do not come.
        """
        last_send_ms = monotonic_ms() + max(timeout_ms, _LAST_SEND_MS)
        response_ms = timeout_ms - min(_LAST_SEND_MS, timeout_ms // 2)
        if not self.is_done:
            self._protocol.close(monotonic_ms(), keeps_locks)
            self.due.notify()
            if not self.changed.wait_for(lambda: self.is_done or self._protocol.is_done, response_ms / 1000):
                self._last_requests = self._protocol.last_requests(now_ms := monotonic_ms())
                self.due.notify()
                remaining_s = max(last_send_ms - now_ms, 0) / 1000
                self.changed.wait_for(lambda: self.is_done or not self._last_requests, remaining_s)
        self._end(ShareGroupError(f"The member {self._member_id} is closed.", "Make a new one."))

    def join(self) -> None:
        """Wait a moment for the threads to end."""
        for thread in self._threads:
            thread.join(_JOIN_MS / 1000)

    def _run(self, step: Callable[[], None]) -> None:
        try:
            while not self.is_done:
                step()
        except ShareGroupError as error:
            self._end(error)
        except Exception as error:
            _logger.exception("A thread of member %s ended.", self._member_id)
            self._end(ShareGroupError(f"A thread of member {self._member_id} ended: {error!r}."))

    def _send_step(self) -> None:
        """Append the next requests, for as long as the log is away; the lock is not held meanwhile."""
        with self.changed:
            is_last = bool(self._last_requests)
            requests = self._last_requests or self._due_requests()
            self.measurements.sent(requests, time.monotonic())
            self._inform_helper(has_sent=bool(requests))
        if not requests:
            return
        try:
            self._channel.send(requests)
        except LogUnavailableError as error:
            _logger.warning("Member %s cannot send its requests, and tries again: %s", self._member_id, error)
            with self.changed:
                self._protocol.send_failed(monotonic_ms())
        if is_last:
            with self.changed:
                self._last_requests = []
                self.changed.notify_all()

    def _due_requests(self) -> list[Request[Message]]:
        """Wait until requests are due, for a limited time, and return them."""
        self._protocol.expire(now_ms := monotonic_ms())
        requests = self._protocol.next_requests(now_ms)
        if self._protocol.is_done or self._protocol.results.are_there:
            self.changed.notify_all()
        if not requests:
            deadline_ms = self._protocol.next_deadline_ms(now_ms)
            wait_ms = LONGEST_WAIT_MS if deadline_ms is None else max(deadline_ms - now_ms, 1)
            wait_ms = min(wait_ms, LONGEST_WAIT_MS)
            self._sender_until_ms = now_ms + wait_ms
            self.due.wait(wait_ms / 1000)
        return requests

    def _inform_helper(self, has_sent: bool) -> None:
        if self._helper is not None:
            self._helper.note(holds_records=self._protocol.results.locks.are_held(monotonic_ms()), has_sent=has_sent)

    def _receive_step(self) -> None:
        try:
            responses = self._channel.receive(_RECEIVE_MS)
        except LogUnavailableError as error:
            _logger.warning("Member %s cannot read its responses, and tries again: %s", self._member_id, error)
            with self.changed:
                self.changed.wait(LONGEST_PAUSE_MS / 1000)
            return
        with self.changed:
            before = self._protocol.membership.assignment
            for response in responses:
                self.measurements.received(response.correlation_id, time.monotonic())
                try:
                    self._protocol.receive(response, monotonic_ms())
                except InvalidRequestError as error:
                    _logger.warning("A response to member %s is not readable: %s", self._member_id, error)
            if (assignment := self._protocol.membership.assignment) is not before and assignment != before:
                self.measurements.rebalanced(time.monotonic())
            # The sender does so more often, unless the log is away.
            self._protocol.expire(monotonic_ms())
            # The application may keep the interpreter busy with the first record that it gets.
            self._inform_helper(has_sent=False)
            self.is_done = self.is_done or self._protocol.is_done
            if responses or self._protocol.results.are_there:
                self.due.notify()
                self.changed.notify_all()

    def _end(self, reason: ShareGroupError) -> None:
        """End the member: calls raise the reason from now on, and acknowledgements without a response have failed."""
        with self.changed:
            self.failure = self.failure or reason
            self.is_done = True
            self._protocol.give_up()
            self.due.notify()
            self.changed.notify_all()
        self._channel.close()
        if self._lock is not None:
            self._lock.close()
        if self._helper is not None:
            self._helper.close()
