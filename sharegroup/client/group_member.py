"""A member of a share group: the member protocol over a log, for the application's threads.

It handles offsets, not records: acquired ranges and acknowledgements. Only its own two threads (`member_threads.py`)
wait for the log: calls wait for at most their timeout, also while Kafka is away.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sharegroup.client.held_records import Acquisition, HeldRange, ReadRange
from sharegroup.client.measurements import MetricName
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.client.member_threads import LONGEST_WAIT_MS, MemberThreads
from sharegroup.client.membership import MemberState, Standing
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.settings import MemberSettings
from sharegroup.client.waiting_polls import waited_ms, waiting_poll
from sharegroup.core.records import PartitionKey
from sharegroup.logs.log_clock import monotonic_ms
from sharegroup.logs.port import Log
from sharegroup.logs.topic_properties import new_topic_id
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest


class GroupMember:
    """A member that any thread may use.

    Calls raise the `ShareGroupError` that ended the member's threads, if one did. An `ApiError` that a retry does not
    resolve, such as GroupMaxSizeReachedError, is raised once for each cause, by the next call that takes or waits;
    unless the member `is_ended` then, it continues. Results of acknowledgements are kept until they are taken.

    Args:
        log: the log of the requests and responses; close it after the member.
        woken: while it is set, waits of `wait` and `flush` end at once; `notify` makes running waits check it.

    Raises:
        UnknownTopicError: no processor was ever started on this log.
    """

    def __init__(self, log: Log, settings: MemberSettings, woken: threading.Event | None = None) -> None:
        # Kafka generates member ids in the same way as topic ids.
        self.member_id = settings.member_id or new_topic_id()
        self._process_id = os.getpid()
        self._log = log
        self._protocol = MemberProtocol(settings, monotonic_ms())
        self._woken = woken or threading.Event()
        # A waiting application counts as polling.
        self._longest_poll_ms = min(LONGEST_WAIT_MS, (settings.max_poll_interval_ms or LONGEST_WAIT_MS * 3) // 3 + 1)
        channel = ProcessorChannel(log, settings.group_id, self.member_id, settings.client_id, settings.topics)
        try:
            # Neither its process's end nor its silence ends a member that may return.
            lock = None if settings.may_return else log.lock_member(settings.group_id, self.member_id)
            helper = None if settings.may_return else log.help_member(channel.life_signs)
        except BaseException:
            channel.close()
            raise
        self._threads = MemberThreads(self.member_id, self._protocol, channel, lock, helper)
        self._changed, self._due = self._threads.changed, self._threads.due

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group with these topics, or change the subscription; without topics, leave the group.

        Waiting records of other topics are returned unread; taken ones stay acquired, and can be acknowledged.
        """
        with self._changed:
            self._threads.raise_failure()
            self._protocol.subscribe(topics, monotonic_ms())
            self._due.notify()

    def next_acquisition(self, timeout_ms: int | None) -> Acquisition | None:
        """Take the oldest acquisition, which makes room for the next fetch; return None at the timeout (None: endless).

        An acquisition whose locks have ended is dropped: its records were, or will be, delivered again.
        """
        deadline_ms = None if timeout_ms is None else monotonic_ms() + timeout_ms
        while True:
            with self._changed:
                self._threads.raise_failure()
                self._raise_refusal()
                taken = self._protocol.take(now_ms := self._poll_ms())
                self._due.notify()
                remaining_ms = None if deadline_ms is None else max(deadline_ms - now_ms, 0)
                if taken is not None or remaining_ms == 0:
                    return taken
                self._poll_for(lambda: bool(self._protocol.waiting), remaining_ms)

    def fetch_next(self, max_records: int) -> None:
        """Fetch so many records from now on, and next with the acknowledgements that follow this call."""
        with self._changed:
            self._protocol.fetch_next(max_records)

    def await_acquisition(self, after_number: int) -> Acquisition | None:
        """Block until an acquisition with a higher number waits, and return the first one; None once closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._threads.is_done or self._protocol.waiting.after(after_number) is not None
            )
            return None if self._threads.is_done else self._protocol.waiting.after(after_number)

    def read(self, record_count: int, took_ms: float) -> None:
        """Record that reading acquired records from the log took so long: fetches are bounded by it."""
        with self._changed:
            self._protocol.pace.read(record_count, took_ms)

    def waiting_after(self, number: int) -> Acquisition | None:
        """Return the first waiting acquisition with a higher number."""
        with self._changed:
            return self._protocol.waiting.after(number)

    def ask(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Record that the application wants records; the acknowledgements are sent with the fetch for them."""
        with self._changed:
            now_ms = self._poll_ms()
            self._protocol.acknowledge_later(acknowledgements, now_ms)
            self._threads.raise_failure()
            self._raise_refusal()
            self._protocol.ask(now_ms)
            self._due.notify()

    def deliver(
        self, acknowledgements: Iterable[Acknowledgement], parts: Iterable[tuple[int, ReadRange]]
    ) -> list[bool]:
        """Deliver parts of waiting acquisitions to the application; False for those that no longer wait.

        Args:
            acknowledgements: of records that were delivered before; they are sent with the next fetch.
            parts: number of the acquisition, and the part.
        """
        with self._changed:
            now_ms = self._poll_ms()
            self._protocol.acknowledge_later(acknowledgements, now_ms)
            self._threads.raise_failure()
            delivered = self._protocol.deliver(parts, now_ms)
            self._threads.notify_sender(now_ms)
            return delivered

    @property
    def poll_records(self) -> int:
        """The maximum number of records for the next poll."""
        with self._changed:
            return self._protocol.pace.poll_records

    def polled(self) -> int | None:
        """Record that the application is alive, although it may want no more records now.

        Returns:
            The time since the poll before, in ms, if the member left for it, and joins again now.
        """
        with self._changed:
            now_ms = self._poll_ms()
            silent_ms = self._protocol.polled(now_ms, wants_records=False)
            self._threads.notify_sender(now_ms)
            return silent_ms

    def wait(self, timeout_ms: int | None, is_ready: Callable[[], bool]) -> bool:
        """Block until there is a result, or a condition holds; return False at the timeout (None: endless).

        Args:
            is_ready: the condition; `notify` makes a waiting thread check it.
        """
        with self._changed:
            return self._poll_for(lambda: is_ready() or self._protocol.results.are_there, timeout_ms)

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Send acknowledgements now, or after the outstanding response."""
        with self._changed:
            self._protocol.acknowledge(acknowledgements)
            self._threads.raise_failure()
            self._due.notify()

    def name_sink(self, sink: Sink) -> None:
        """Name the table in fetches from now on as it is by now; the member must have a sink from the start."""
        with self._changed:
            self._protocol.session.sink = sink

    def report(self, resolution: ResolveWriteRequest, settles: Iterable[Acknowledgement] = ()) -> None:
        """Report what the sink says of a write: a commit of this member, or one that it has looked up.

        It is sent until it has a response, needs no session, and may come late or twice.

        Args:
            settles: acknowledgements of the member's records that the sink confirms; they are among the results after
                the response.
        """
        with self._changed:
            self._protocol.writes.report(resolution, settles)
            self._threads.raise_failure()
            self._due.notify()

    @property
    def write_expiry_ms(self) -> int:
        """Time after its acquisition within which a write is looked up; 0 is unknown, or that nobody has a sink."""
        with self._changed:
            return self._protocol.membership.write_expiry_ms

    def waits_with(self, write_version: int) -> bool:
        """Return True if records of a write wait for the application, which has others of the same acquisition."""
        with self._changed:
            return self._protocol.waiting.waits_with(write_version, monotonic_ms())

    def withdraw(self, write_version: int) -> list[HeldRange]:
        """Remove and return the waiting records of a write: no poll returns them."""
        with self._changed:
            return self._protocol.waiting.withdraw(lambda held: held.write_version == write_version)

    def add_lookup(self, write: UnresolvedWrite) -> None:
        """Have a write looked up in the sink, as if the leader had asked for it."""
        with self._changed:
            self._protocol.writes.add_unresolved([write])
            self._changed.notify_all()

    def await_unresolved(self, timeout_ms: int, is_over: Callable[[], bool] = lambda: False) -> list[UnresolvedWrite]:
        """Block until the leader asks this member to look up writes in its sink, and return them; empty at the timeout.

        A write that is not reported within 5 s is handed out again, to this member or to another one.

        Args:
            is_over: ends the wait when it returns True; `notify` makes a waiting thread check it.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._threads.is_done or is_over() or self._protocol.writes.has_unresolved, timeout_ms / 1000
            )
            return self._protocol.writes.take_unresolved()

    def take_results(self) -> list[Acknowledged]:
        """Return the results of acknowledgements since the last call, each once."""
        with self._changed:
            self._protocol.expire(monotonic_ms())
            return self._protocol.results.take()

    def flush(self, timeout_ms: int | None) -> list[Acknowledged]:
        """Block until all acknowledgements have responses or the timeout (None: endless); return the results so far."""
        with self._changed:
            now_ms = self._poll_ms()
            self._protocol.processed(now_ms)
            self._threads.notify_sender(now_ms)
            self._wait_for(lambda: not self._protocol.session.unconfirmed_partitions, timeout_ms)
            return self._protocol.results.take()

    def unconfirmed_partitions(self) -> set[PartitionKey]:
        """Partitions with acknowledgements that wait to be sent, or for the response."""
        with self._changed:
            return self._protocol.session.unconfirmed_partitions

    @property
    def is_ended(self) -> bool:
        """Return True if the group refused the member permanently, or its threads ended."""
        with self._changed:
            return self._threads.failure is not None or self._protocol.membership.state is MemberState.FAILED

    def standing(self) -> Standing:
        """Return the member's membership and fetch counts."""
        with self._changed:
            return self._protocol.standing

    def metrics(self) -> dict[MetricName, float]:
        """Return the number of sent requests, and the latency of their responses."""
        with self._changed:
            return self._threads.measurements.metrics(time.monotonic())

    def notify(self) -> None:
        """Make waiting threads check their conditions."""
        with self._changed:
            self._changed.notify_all()

    def close(
        self, timeout_ms: int, acknowledgements: Iterable[Acknowledgement] = (), keeps_locks: bool = False
    ) -> list[Acknowledged]:
        """Return waiting records unread, send the last acknowledgements, close the share session, and leave the group.

        In a process that was forked it does nothing: the member and its threads are those of the other process. The
        close of the session releases records that were taken but not acknowledged, even without time for responses:
        its requests get a second to be appended, in all.

        Args:
            timeout_ms: time for the responses, and for the last requests if these do not come.
            keeps_locks: leave taken records locked, for a process that continues as this member.

        Returns:
            All results not taken yet; acknowledgements without a response in time have failed.
        """
        if os.getpid() != self._process_id:
            return []
        with self._changed:
            self._protocol.acknowledge(acknowledgements)
            self._threads.leave(timeout_ms, keeps_locks=keeps_locks)
            results = self._protocol.results.take()
        self._threads.join()
        return results

    def _wait_for(self, condition: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Block, without the lock, until the condition holds; return False at the timeout."""
        self._changed.wait_for(
            lambda: condition() or self._threads.failure is not None or self._woken.is_set(),
            None if timeout_ms is None else timeout_ms / 1000,
        )
        self._threads.raise_failure()
        return condition()

    def _poll_for(self, condition: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Wait as `_wait_for`, and count the application as polling meanwhile."""
        deadline_ms = None if timeout_ms is None else monotonic_ms() + timeout_ms

        def is_there() -> bool:
            return condition() or bool(self._protocol.refusals)

        with self._waiting_poll():
            while not self._woken.is_set():
                now_ms = monotonic_ms()
                self._protocol.polled(now_ms)
                self._protocol.expire(now_ms)
                self._threads.notify_sender(now_ms)
                had_acquisition = bool(self._protocol.waiting)
                remaining_ms = self._longest_poll_ms if deadline_ms is None else max(deadline_ms - now_ms, 0)

                def is_changed(had_acquisition: bool = had_acquisition) -> bool:
                    return is_there() or bool(self._protocol.waiting) != had_acquisition

                self._wait_for(is_changed, min(remaining_ms, self._longest_poll_ms))
                if is_there() or (deadline_ms is not None and monotonic_ms() >= deadline_ms):
                    break
        self._raise_refusal()
        return is_there()

    @contextmanager
    def _waiting_poll(self) -> Iterator[None]:
        """Count the application as polling; what this thread waits is no processing time of any member's records."""
        self._poll_ms()
        self._protocol.polls.wait_begins()
        try:
            with waiting_poll():
                yield
        finally:
            self._protocol.polls.wait_ends(self._poll_ms())

    def _poll_ms(self) -> int:
        """Return the time of a poll, which does not count as processing what its thread has waited."""
        self._protocol.waited_ms = waited_ms()
        return monotonic_ms()

    def _raise_refusal(self) -> None:
        error = self._protocol.refusals.take()
        if error is not None:
            raise error
