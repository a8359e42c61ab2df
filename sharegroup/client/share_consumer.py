"""ShareConsumer: a share consumer with confluent-kafka's methods, for groups on a log of this package."""

from __future__ import annotations

import operator
import re
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sharegroup.client.application_acknowledgements import (
    CommitCallback,
    CommitCallbackQueue,
    check_acknowledgement,
    check_offset_key,
    commit_outcome,
    message_key,
)
from sharegroup.client.call_guard import CallGuard
from sharegroup.client.client_events import ClientEvents
from sharegroup.client.consumer_settings import consumer_settings, open_consumer_log
from sharegroup.client.delivered import DeliveredRecords
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import ReadRange
from sharegroup.client.joining import Joining, new_reader
from sharegroup.client.kafka_exceptions import (
    ERRONEOUS_STATE,
    IllegalStateException,
    KafkaException,
    TopicPartition,
    as_kafka_exception,
    max_poll_exceeded,
)
from sharegroup.client.measurements import ConsumerMeasurements, MetricName
from sharegroup.client.message import AnyMessage, Messages
from sharegroup.client.pending_acknowledgements import Acknowledged, OffsetKey, RecordAcknowledgement
from sharegroup.client.poll_loop import PollLoop
from sharegroup.client.sink_transaction import SinkTransaction, sink_writer
from sharegroup.client.subscription import Subscription
from sharegroup.client.timeouts import ApiTimeout, Seconds, timeout_ms
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.topic_properties import new_topic_id

__all__ = ["AcknowledgeType", "ShareConsumer"]

if TYPE_CHECKING:
    from sharegroup.client.result_rows import ResultRows

_CLOSE_TIMEOUT_MS = 30_000


class ShareConsumer:
    """Consumes records of a share group; for use by one thread.

    In implicit mode the next poll or commit accepts the records of the last poll. In explicit mode the application
    acknowledges each record before it polls again. Both were verified with confluent-kafka (KIP-932).

    Args:
        config: Kafka's keys (see `ShareConsumerConfig` and `KafkaConfig`), with `log.path` in place of
            `bootstrap.servers` for a log on this machine; `request.topic.name` and `response.topic.name` if the
            processor uses other names; keys and callbacks for librdkafka (see `sharegroup.config.connections`).
        further: more keys, such as `logger=…`, which replace the dict's; with them the dict may be left out.

    Raises:
        TypeError: config is not a dict, or a callback cannot be called.
        ValueError: group.id is missing, a key is not for share consumers, or values contradict each other.
        KafkaException: a key is unknown, a value is not acceptable, or the log cannot be opened.
        SinkError: `sink` is no Delta table, cannot be read, or cannot be written exactly once from here.
        RuntimeError: the consumer is initialized a second time.
    """

    def __init__(self, config: dict[str, object] | None = None, /, **further: object) -> None:
        if hasattr(self, "_guard"):
            raise RuntimeError("ShareConsumer already initialized")
        settings = consumer_settings(config, further)
        self._config = settings.config
        self._events = ClientEvents(settings.connection.callbacks)
        self._log = open_consumer_log(settings, self._events)
        try:
            writer = sink_writer(settings.sink)
        except BaseException:
            self._log.close()
            raise
        # Kafka generates member ids in the same way as topic ids.
        sink = None if writer is None else writer.sink
        self._member_settings = replace(settings.member, member_id=new_topic_id(), sink=sink)
        self._is_implicit = self._config.share_acknowledgement_mode == "implicit"
        self._woken = threading.Event()
        create = partial(new_reader, self._log, self._config, self._member_settings, self._woken)
        self._joining = Joining(self._config.group_id, create, self._woken)
        self._events.attach(self._joining.notify)
        self._guard = CallGuard(self._member_settings.member_id)
        self._measurements = ConsumerMeasurements()
        self._callback = CommitCallbackQueue()
        self._delivered = DeliveredRecords()
        self._transaction = SinkTransaction(writer, self._delivered, is_implicit=self._is_implicit)
        self._subscription = Subscription(self._log, self._config.metadata_max_age_ms, self._joining.notify)
        self._polls = PollLoop(self._config, self._subscription, self._joining, self._events, self._woken)

    def subscribe(self, topics: list[str] | re.Pattern[str]) -> None:
        """Subscribe to exactly these topics; an empty list unsubscribes.

        It does not wait for the log: the consumer joins the group beside the application, and tries again for as long
        as the log cannot be reached, or no processor was ever started on it.

        Args:
            topics: names; or a compiled pattern for all topics whose whole name it matches, later topics included,
                internal ones (`__…`) excluded. Of more than 1,000 it takes the first 1,000 by name.

        Raises:
            TypeError: neither a list of str nor a pattern.
            ValueError: a name is empty, or repeated.
        """
        with self._entered():
            self._subscription.change(topics, time.monotonic())
            self._joining.subscribe(self._subscription.names)

    def unsubscribe(self) -> None:
        """Leave the group; delivered records stay acquired, and can be acknowledged."""
        with self._entered():
            self._subscription.change([], time.monotonic())
            self._joining.subscribe([])

    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        with self._entered():
            self._polls.refresh_subscription()
            return list(self._subscription.names)

    def poll(self, timeout: Seconds = -1) -> Messages:
        """Return the next records; block until there are some.

        A poll that sends renewals ends without records once they have their responses; the next one returns only the
        renewed records.

        Args:
            timeout: seconds to block, also while the log is away; negative is endless.

        Raises:
            IllegalStateException: not subscribed; or, in explicit mode, records of an earlier poll are unacknowledged.
            KafkaException: the group or the log refuses a request of this consumer permanently: raised once
                for each cause, with its code. If the error is fatal, the consumer cannot continue; otherwise
                the next poll continues. `_MAX_POLL_EXCEEDED` if the consumer left the group since no poll came
                for `max.poll.interval.ms`: it joins again. `TOPIC_EXCEPTION` if a subscribed name is no topic name,
                once for each subscription.
            WakeupException: `wakeup` was called.
        """
        wait_ms = timeout_ms(timeout)
        with self._entered():
            if self._subscription.is_none:
                raise IllegalStateException("Consumer is not subscribed to any topics")
            if not self._is_implicit and (count := self._delivered.unacknowledged_count):
                raise IllegalStateException(f"{count} records from previous poll have not been acknowledged")
            self._subscription.check_names()
            self._measurements.poll_started(time.monotonic())
            messages = self._next_messages(wait_ms)
            self._measurements.poll_ended(time.monotonic())
            return messages

    def acknowledge(
        self, message: AnyMessage, ack_type: int = AcknowledgeType.ACCEPT, *, redelivery_delay_ms: int | None = None
    ) -> None:
        """Acknowledge a polled record; of several acknowledgements before the commit the last one counts.

        Args:
            message: of this package or of confluent-kafka; its topic, partition and offset count.
            ack_type: ACCEPT, RELEASE, REJECT, or RENEW, which restarts the lock when it is sent; after the response a
                poll returns the record again. confluent-kafka's consumer has no RENEW, Java's has.
            redelivery_delay_ms: how long a released record stays unavailable to all members, at most a week; None
                uses the group's `share.redelivery.backoff.ms`. Kafka's consumers have no such argument.

        Raises:
            TypeError: not a Message, or the type is no integer.
            ValueError: the type is unknown, the message has no offset, or the delay is out of its bounds or of
                a record that is not released.
            IllegalStateException: implicit mode, or the record is not delivered, acknowledged, or being renewed.
        """
        with self._entered():
            key = message_key(message)
            self._acknowledge("message", key, check_acknowledgement("message", ack_type, redelivery_delay_ms))

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        ack_type: int = AcknowledgeType.ACCEPT,
        *,
        redelivery_delay_ms: int | None = None,
    ) -> None:
        """Acknowledge a record by its offset; see `acknowledge`."""
        with self._entered():
            if not isinstance(topic, str):
                raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
            key = check_offset_key("offset", topic, operator.index(partition), operator.index(offset))
            self._acknowledge("offset", key, check_acknowledgement("offset", ack_type, redelivery_delay_ms))

    def commit_sync(
        self, timeout: Seconds | ApiTimeout = ApiTimeout.DEFAULT
    ) -> dict[TopicPartition, KafkaException | None]:
        """Send the acknowledgements, and wait for the responses, also to earlier ones.

        Args:
            timeout: seconds to wait; negative is endless. The default is `default.api.timeout.ms`, a minute.

        Returns:
            The result for each partition with acknowledgements to send now; `_TIMED_OUT` without a response in
            time: the callback receives those later.

        Raises:
            WakeupException: `wakeup` was called; the acknowledgements are being sent.
            IllegalStateException: the consumer has a sink: `transaction` commits.
        """
        wait_ms = self._config.default_api_timeout_ms if isinstance(timeout, ApiTimeout) else timeout_ms(timeout)
        with self._entered():
            self._transaction.refuse_other_commits("commit_sync")
            self._events.serve()
            sent = self._delivered.take_acknowledged(self._is_implicit)
            if self._member is None:
                return {}
            self._member.acknowledge(sent)
            results = self._member.flush(wait_ms)
            # In this order no response is missed: one that comes now, or while the callback runs, is no success yet.
            unconfirmed = self._member.unconfirmed_partitions()
            results += self._member.take_results()
            self._settle(results)
            if sent:
                self._polls.raise_if_woken()
            self._callback.serve()
            return commit_outcome(sent, results, unconfirmed)

    def commit_async(self) -> None:
        """Send the acknowledgements; the callback receives the results.

        Raises:
            IllegalStateException: the consumer has a sink: `transaction` commits.
        """
        with self._entered():
            self._transaction.refuse_other_commits("commit_async")
            self._events.serve()
            sent = self._delivered.take_acknowledged(self._is_implicit)
            if self._member is not None:
                self._member.acknowledge(sent)
                self._serve_callback(self._member)

    def transaction(self) -> AbstractContextManager[ResultRows]:
        """Write the results of the records that polls returned since the last transaction, and acknowledge them.

        At the end of the block, its rows and the acknowledgements get into the sink in one commit: each record is
        accepted if, and only if, its result is there. In implicit mode all records are accepted; in explicit mode as
        the application has acknowledged them, and records to be renewed stay with it. An exception in the block writes
        nothing, and releases the records. A table takes tens of commits a second: put many records into one.

        Returns:
            A context manager with the rows, to append to.

        Raises:
            IllegalStateException: the consumer has no `sink`; a transaction is open; in explicit mode, records are
                unacknowledged; or there are rows, and no records.
            WriteFencedError: the locks had ended, or the sink is another table by now. Nothing is written, and the
                records come again.
            SinkError: the commit failed, and may be in the sink: the records are looked up there, and come again if it
                is not. Their delivery does not count unless the table refuses the rows.
        """
        return self._transaction.opened(self._entered)

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Set `callback(offsets, exception)`, called for each partition with responses to acknowledgements.

        It is called on the application's thread, inside poll, commit_sync, commit_async and close; None clears it.
        """
        with self._entered():
            self._callback.set_callback(callback)

    def wakeup(self) -> None:
        """Make the waiting poll or commit_sync, or else the next one that would wait, raise WakeupException.

        The only method that another thread may call. The Java client has it, too; confluent-kafka does not.
        """
        self._woken.set()
        self._joining.notify()

    def metrics(self) -> dict[MetricName, float]:
        """Return measurements of this consumer, named as the Java client's, over the last minute.

        A value is NaN without data. `records-per-request` and `fetch-size` are of a poll, since polls read
        records; acknowledgements count when the response comes.
        """
        with self._entered():
            of_member = self._member.metrics() if self._member is not None else {}
            return self._measurements.metrics(time.monotonic()) | of_member

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Duration of the locks of the latest acquisition, in ms; None before there is one."""
        with self._entered():
            return self._joining.joined.lock_timeout_ms if self._joining.joined is not None else None

    def client_instance_id(self, timeout: Seconds = -1) -> str:
        """Return the member id of this consumer, which never changes.

        Args:
            timeout: not used, since no request is sent; the Java client has this argument.
        """
        timeout_ms(timeout)
        with self._entered():
            return self._member_settings.member_id

    def close(self, timeout: Seconds | None = None) -> None:
        """Send the acknowledgements, return all other records, and leave the group. A second close does nothing.

        Delivered records that were not acknowledged are released; undelivered ones are returned as if they had never
        been acquired. With a sink, delivered records without a transaction are released, and a transaction whose
        outcome is unknown is looked up, for half of the time. In a process that was forked it does nothing but log a
        warning, since the consumer and its threads are those of the other process.

        Args:
            timeout: seconds to wait for the responses; None is 30, as in the Java client.
        """
        wait_ms = None if timeout is None else timeout_ms(timeout)
        with self._guard.closing() as is_open, as_kafka_exception():
            if not is_open:
                return
            joined = self._joining.close()
            try:
                self._transaction.close((_CLOSE_TIMEOUT_MS if wait_ms is None else wait_ms) / 2_000)
                if joined is not None:
                    last = self._delivered.take_acknowledged()
                    self._settle(joined.member.close(_CLOSE_TIMEOUT_MS if wait_ms is None else wait_ms, last))
                self._callback.serve()
                self._events.serve()
            finally:
                if joined is not None:
                    joined.close()
                self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._guard.entered(), as_kafka_exception(lambda: self._member is not None and self._member.is_ended):
            yield

    @property
    def _member(self) -> GroupMember | None:
        return self._joining.joined.member if self._joining.joined is not None else None

    def _next_messages(self, limit_ms: int | None) -> Messages:
        deadline_s = None if limit_ms is None else time.monotonic() + limit_ms / 1000
        if (read_ahead := self._polls.await_joined(deadline_s)) is None:
            return Messages()
        member = read_ahead.member
        if (silent_ms := member.polled()) is not None:
            raise max_poll_exceeded(self._config.max_poll_interval_ms, silent_ms)
        # Nothing is taken yet that an exception of the callback would lose.
        self._serve_callback(member)
        acknowledged = self._transaction.take_to_send(member)
        if renewed := self._delivered.take_renewed():
            member.acknowledge(acknowledged)
            return Messages.of_ranges(renewed)
        if self._delivered.renewals.are_awaited:
            member.acknowledge(acknowledged)
            self._settle(member.flush(limit_ms))
            self._polls.raise_if_woken()
            self._callback.serve()
            return Messages()
        serve = partial(self._serve_callback, member)
        return self._polls.next_messages(read_ahead, acknowledged, deadline_s, self._deliver, serve)

    def _deliver(self, ranges: list[ReadRange]) -> Messages:
        """Return messages for the application, and count them as delivered."""
        self._transaction.deliver(ranges)
        self._measurements.delivered(ranges, time.monotonic())
        return Messages.of_ranges(ranges)

    def _serve_callback(self, member: GroupMember) -> None:
        self._settle(member.take_results())
        self._callback.serve()

    def _settle(self, results: list[Acknowledged]) -> None:
        self._measurements.settled(results, time.monotonic())
        self._transaction.settle(results)
        self._callback.add(results)

    def _acknowledge(self, what: str, key: OffsetKey, acknowledgement: RecordAcknowledgement) -> None:
        if self._is_implicit or not self._delivered.acknowledge(key, acknowledgement):
            raise IllegalStateException(f"Failed to acknowledge {what}: {ERRONEOUS_STATE}")
