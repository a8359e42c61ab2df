"""A member of a share group: the member protocol against a log, with a thread that sends and one that receives.

It knows offsets, not records: acquired ranges come out, acknowledgements go in. Only the two threads wait for the log:
whoever calls a method waits as long as it says, also while Kafka is away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.client.acquisition import Acquisition
from sharegroup.client.backoff import LONGEST_PAUSE_MS
from sharegroup.client.measurements import MetricName
from sharegroup.client.member_protocol import Instant, MemberProtocol, Standing
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.request_measurements import RequestMeasurements
from sharegroup.client.session_events import Acknowledged
from sharegroup.client.settings import MemberSettings
from sharegroup.errors import InvalidRequestError, LogUnavailableError, ShareGroupError
from sharegroup.logs.port import Log
from sharegroup.logs.topic_id import new_topic_id
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message

_LONGEST_WAIT_MS = 200
"""How late a thread may notice what another one brought about without a word."""
_LAST_SEND_MS = 5_000
"""How long a close whose time is over waits until its last requests are appended."""

_logger = logging.getLogger(__name__)

Request = tuple[int, ApiKey, Message]
"""Correlation id, kind, body."""


class GroupMember:
    """A member that any thread may use.

    Calls raise the `ShareGroupError` that ended the member's threads, if one did. An error of the membership, such
    as GroupMaxSizeReachedError, is raised once, by the next call that takes or waits. Results of acknowledgements
    are kept until they are taken.

    Args:
        log: where the requests and responses are; to be closed after the member.
        settings: who the member is and how it fetches.
        woken: while it is set, waits of `wait` and `flush` end at once; `notify` has those that go on look.

    Raises:
        UnknownTopicError: no processor was ever started on this log.
    """

    def __init__(self, log: Log, settings: MemberSettings, woken: threading.Event | None = None) -> None:
        # Kafka makes member ids as it makes topic ids.
        self.member_id = settings.member_id or new_topic_id()
        self._log = log
        self._channel = ProcessorChannel(log, settings.group_id, self.member_id, settings.client_id, settings.topics)
        self._protocol = MemberProtocol(settings, self._instant().now_ms)
        self._measurements = RequestMeasurements()
        self._woken = woken or threading.Event()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._due = threading.Condition(lock)
        self._last_requests: list[Request] = []
        self._failure: ShareGroupError | None = None
        self._is_done = False
        self._threads = [
            threading.Thread(target=self._run, args=(step,), name=f"share-group-{name}-{self.member_id}", daemon=True)
            for name, step in (("sender", self._send_step), ("receiver", self._receive_step))
        ]
        for thread in self._threads:
            thread.start()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group with these topics, or change them; no topics is to leave the group.

        What waits of other topics is returned unread; what was taken stays acquired, and can be acknowledged.
        """
        with self._changed:
            self._raise_failure()
            self._protocol.subscribe(topics, self._instant())
            self._due.notify()

    def take_acquisition(
        self, acknowledgements: Iterable[Acknowledgement] = (), max_records: int | None = None
    ) -> Acquisition | None:
        """The acquisition that waits longest, if any; the acknowledgements ride on the fetch that makes up for it.

        An acquisition whose locks have ended is dropped: its records were, or will be, delivered again. With
        `max_records`, ranges are taken until there are so many records; the others go on waiting.
        """
        with self._changed:
            self._protocol.acknowledge(acknowledgements)
            self._raise_failure()
            self._raise_membership_error()
            taken = self._protocol.take(self._instant(), max_records)
            self._due.notify()
            return taken

    def polled(self) -> None:
        """Note that the application is there, though it may want no more records now."""
        with self._changed:
            self._protocol.polled(self._instant().now_ms, wants_records=False)

    def wait(self, timeout_ms: int | None) -> bool:
        """Block until there is an acquisition or a result; false when the time (None: endless) is over first."""
        with self._changed:
            return self._poll_for(lambda: self._protocol.has_acquisition or self._protocol.has_results, timeout_ms)

    def next_acquisition(self, timeout_ms: int | None) -> Acquisition | None:
        """Take an acquisition, blocking until there is one; None when the time (None: endless) is over first."""
        deadline_ms = None if timeout_ms is None else self._instant().now_ms + timeout_ms
        while True:
            taken = self.take_acquisition()
            remaining_ms = None if deadline_ms is None else max(deadline_ms - self._instant().now_ms, 0)
            if taken is not None or remaining_ms == 0:
                return taken
            with self._changed:
                self._poll_for(lambda: self._protocol.has_acquisition, remaining_ms)

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Send acknowledgements now, or, while an answer is awaited, after it."""
        with self._changed:
            self._protocol.acknowledge(acknowledgements)
            self._raise_failure()
            self._due.notify()

    def take_results(self) -> list[Acknowledged]:
        """What became of acknowledgements since the last call; each is told once."""
        with self._changed:
            self._protocol.expire(self._instant())
            return self._protocol.take_results()

    def flush(self, timeout_ms: int | None) -> list[Acknowledged]:
        """Block until every acknowledgement is answered or the time (None: endless) is over; the results so far."""
        with self._changed:
            self._wait_for(lambda: not self._protocol.unanswered_partitions, timeout_ms)
            return self._protocol.take_results()

    def unanswered_partitions(self) -> set[PartitionKey]:
        """Partitions with acknowledgements that are not answered yet."""
        with self._changed:
            return self._protocol.unanswered_partitions

    def standing(self) -> Standing:
        """How the member stands with its group."""
        with self._changed:
            return self._protocol.standing

    def metrics(self) -> dict[MetricName, float]:
        """How many requests were sent, and how long their answers took."""
        with self._changed:
            return self._measurements.metrics(time.monotonic())

    def notify(self) -> None:
        """Have threads that wait look whether they are woken."""
        with self._changed:
            self._changed.notify_all()

    def close(
        self, timeout_ms: int, acknowledgements: Iterable[Acknowledgement] = (), keeps_locks: bool = False
    ) -> list[Acknowledged]:
        """Return what waits unread, send the last acknowledgements, close the share session, leave the group.

        What was taken but not acknowledged is released by the session's close, even when there is no time for answers.

        Args:
            timeout_ms: how long to wait for the answers.
            acknowledgements: the last ones.
            keeps_locks: leave what was taken locked, for a process that goes on being this member.

        Returns:
            All results not taken yet; acknowledgements that were not answered in time have failed.
        """
        with self._changed:
            self._protocol.acknowledge(acknowledgements)
            if not self._is_done:
                self._protocol.close(self._instant(), keeps_locks)
                self._due.notify()
                if not self._changed.wait_for(lambda: self._is_done or self._protocol.is_done, timeout_ms / 1000):
                    self._last_requests = self._protocol.last_requests(self._instant())
                    self._due.notify()
                    self._changed.wait_for(lambda: self._is_done or not self._last_requests, _LAST_SEND_MS / 1000)
            self._end(ShareGroupError(f"The member {self.member_id} is closed.", "Make a new one."))
            results = self._protocol.take_results()
        for thread in self._threads:
            thread.join(2 * _LONGEST_WAIT_MS / 1000)
        return results

    def _run(self, step: Callable[[], None]) -> None:
        try:
            while not self._is_done:
                step()
        except ShareGroupError as error:
            self._end(error)
        except Exception as error:
            _logger.exception("A thread of member %s ended.", self.member_id)
            self._end(ShareGroupError(f"A thread of member {self.member_id} ended: {error!r}."))

    def _send_step(self) -> None:
        """Append what is to be sent next, which may take as long as the log is away; the lock is not held meanwhile."""
        with self._changed:
            is_last = bool(self._last_requests)
            requests = self._last_requests or self._due_requests()
            self._measurements.sent(requests, time.monotonic())
        if not requests:
            return
        try:
            self._channel.send(requests)
        except LogUnavailableError as error:
            _logger.warning("Member %s cannot send its requests, and tries again: %s", self.member_id, error)
            with self._changed:
                self._protocol.send_failed(self._instant().now_ms)
        if is_last:
            with self._changed:
                self._last_requests = []
                self._changed.notify_all()

    def _due_requests(self) -> list[Request]:
        """Wait until something is to be sent, or for a while."""
        requests = self._protocol.next_requests(at := self._instant())
        if self._protocol.is_done:
            self._changed.notify_all()
        if not requests:
            deadline_ms = self._protocol.next_deadline_ms(at)
            wait_ms = _LONGEST_WAIT_MS if deadline_ms is None else max(deadline_ms - at.now_ms, 1)
            self._due.wait(min(wait_ms, _LONGEST_WAIT_MS) / 1000)
        return requests

    def _receive_step(self) -> None:
        try:
            answers = self._channel.receive(_LONGEST_WAIT_MS)
        except LogUnavailableError as error:
            _logger.warning("Member %s cannot read its answers, and tries again: %s", self.member_id, error)
            with self._changed:
                self._changed.wait(LONGEST_PAUSE_MS / 1000)
            return
        with self._changed:
            for answer in answers:
                self._measurements.answered(answer.correlation_id, time.monotonic())
                try:
                    self._protocol.receive(answer, self._instant().now_ms)
                except InvalidRequestError as error:
                    _logger.warning("An answer to member %s is not readable: %s", self.member_id, error)
            self._protocol.expire(self._instant())
            self._is_done = self._is_done or self._protocol.is_done
            if answers or self._protocol.has_results:
                self._due.notify()
                self._changed.notify_all()

    def _instant(self) -> Instant:
        return Instant(time.monotonic_ns() // 1_000_000, self._log.now_ms())

    def _wait_for(self, condition: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Block, with the lock given back meanwhile, until the condition holds; false when time is over first."""
        self._changed.wait_for(
            lambda: condition() or self._failure is not None or self._woken.is_set(),
            None if timeout_ms is None else timeout_ms / 1000,
        )
        self._raise_failure()
        return condition()

    def _poll_for(self, condition: Callable[[], bool], timeout_ms: int | None) -> bool:
        """As `_wait_for`, on behalf of an application that asks for records all the time."""
        deadline_ms = None if timeout_ms is None else self._instant().now_ms + timeout_ms
        is_there = is_over = False
        while not (is_there or is_over or self._woken.is_set()):
            now_ms = self._instant().now_ms
            self._protocol.polled(now_ms)
            self._protocol.expire(self._instant())
            remaining_ms = _LONGEST_WAIT_MS if deadline_ms is None else max(deadline_ms - now_ms, 0)
            is_over = deadline_ms is not None and remaining_ms <= _LONGEST_WAIT_MS
            is_there = self._wait_for(
                lambda: condition() or self._protocol.has_error, min(remaining_ms, _LONGEST_WAIT_MS)
            )
        self._raise_membership_error()
        return is_there

    def _end(self, reason: ShareGroupError) -> None:
        """Be done; calls raise the reason from now on, and acknowledgements without an answer have failed."""
        with self._changed:
            self._failure = self._failure or reason
            self._is_done = True
            self._protocol.give_up()
            self._due.notify()
            self._changed.notify_all()
        self._channel.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _raise_membership_error(self) -> None:
        error = self._protocol.take_error()
        if error is not None:
            raise error
