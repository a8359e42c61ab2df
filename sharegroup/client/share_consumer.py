"""ShareConsumer: a share consumer with confluent-kafka's methods, for groups that live on a log of this package."""

from __future__ import annotations

import math
import operator
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from sharegroup.client.acknowledge_arguments import Place, checked_place, checked_said
from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.commit_callback import CommitCallback, CommitCallbackQueue
from sharegroup.client.commit_outcome import commit_outcome
from sharegroup.client.consumer_measurements import ConsumerMeasurements
from sharegroup.client.consumer_settings import consumer_settings
from sharegroup.client.delivered import DeliveredRecords, Said
from sharegroup.client.group_member import GroupMember
from sharegroup.client.kafka_exceptions import as_kafka_exception
from sharegroup.client.kafka_types import (
    ERRONEOUS_STATE,
    IllegalStateException,
    KafkaException,
    TopicPartition,
    WakeupException,
)
from sharegroup.client.measurements import MetricName
from sharegroup.client.message import Message, Messages
from sharegroup.client.record_reader import RecordReader
from sharegroup.client.session_events import Acknowledged
from sharegroup.client.single_thread import SingleThreadGuard
from sharegroup.client.subscription import Subscription
from sharegroup.client.undelivered import UndeliveredRecords
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.logs.open import open_log
from sharegroup.logs.topic_id import new_topic_id

__all__ = ["AcknowledgeType", "ShareConsumer"]


class ShareConsumer:
    """Consumes records of a share group; for use by one thread.

    In implicit mode the next poll or commit accepts the records of the last poll. In explicit mode the application
    acknowledges each record, before it polls again. Both as recorded of confluent-kafka (KIP-932).

    Args:
        config: Kafka's keys (see `ShareConsumerConfig` and `KafkaConfig`), with `log.path` in place of
            `bootstrap.servers` for a log on this machine;
            `request.topic.name` and `response.topic.name` where the processor has other names for them.

    Raises:
        TypeError: config is not a dict.
        ValueError: group.id is missing, or a key is not for share consumers.
        KafkaException: a key is unknown, a value is not acceptable, or the log cannot be opened.
    """

    def __init__(self, config: dict[str, object]) -> None:
        settings = consumer_settings(config)
        self._config = settings.consumer
        # Kafka makes member ids as it makes topic ids.
        self._member_settings = replace(settings.member, member_id=new_topic_id())
        self._is_implicit = settings.consumer.share_acknowledgement_mode == "implicit"
        with as_kafka_exception():
            self._log = open_log(settings.log)
        limits = settings.consumer
        reader = RecordReader(self._log, limits.fetch_max_bytes, limits.max_partition_fetch_bytes)
        is_exact = limits.share_acquire_mode == "record_limit"
        self._undelivered = UndeliveredRecords(self._log, reader, limits.max_poll_records if is_exact else None)
        self._guard = SingleThreadGuard()
        self._woken = threading.Event()
        self._measurements = ConsumerMeasurements()
        self._callback = CommitCallbackQueue()
        self._delivered = DeliveredRecords()
        self._subscription = Subscription(self._log, limits.metadata_max_age_ms)
        self._member: GroupMember | None = None
        self._is_closed = False

    def subscribe(self, topics: list[str] | re.Pattern[str]) -> None:
        """Subscribe to exactly these topics; none is `unsubscribe`.

        Args:
            topics: names; or a compiled pattern, for all topics whose whole name it matches, those that come later
                too, but those of the machinery (`__…`).

        Raises:
            TypeError: neither a list of str nor a pattern.
            ValueError: a name is empty, or there twice.
            KafkaException: no processor was ever started on this log.
        """
        with self._entered():
            self._subscription.change(topics, time.monotonic())
            self._join()

    def unsubscribe(self) -> None:
        """Leave the group; records that were delivered stay acquired, and can be acknowledged."""
        with self._entered():
            self._subscription.change([], time.monotonic())
            self._join()

    def subscription(self) -> list[str]:
        """The topics subscribed to."""
        with self._entered():
            return list(self._subscription.names)

    def poll(self, timeout: float = -1) -> Messages:
        """The next records, blocking until there are some.

        A poll that sends renewals ends without records once they are answered; the next one returns the renewed
        records, alone.

        Args:
            timeout: seconds to block; negative is endless.

        Raises:
            IllegalStateException: not subscribed; or, in explicit mode, records of an earlier poll are unacknowledged.
            KafkaException: the group refused this member (once), or the log failed.
            WakeupException: `wakeup` was called.
        """
        timeout_ms = _milliseconds(timeout)
        with self._entered():
            if self._subscription.is_none:
                raise IllegalStateException("Consumer is not subscribed to any topics")
            count = self._delivered.unacknowledged_count
            if count and not self._is_implicit:
                raise IllegalStateException(f"{count} records from previous poll have not been acknowledged")
            self._accept_if_implicit()
            self._measurements.poll_started(time.monotonic())
            messages = self._next_messages(timeout_ms)
            self._measurements.poll_ended(time.monotonic())
            self._serve_callback(self._running_member)
            return Messages(messages)

    def acknowledge(
        self, message: Message, ack_type: int = AcknowledgeType.ACCEPT, *, redelivery_delay_ms: int | None = None
    ) -> None:
        """Say what is to become of a polled record; of several words before the commit the last one counts.

        Args:
            message: the record.
            ack_type: ACCEPT, RELEASE, REJECT, or RENEW, which makes the lock last anew from when it is sent; once that
                is answered, a poll returns the record again. confluent-kafka's consumer has no RENEW, Java's has.
            redelivery_delay_ms: how long a record that is released stays away from everybody, at most a week; None
                leaves it to the group's `share.redelivery.backoff.ms`. Kafka's consumers have no such argument.

        Raises:
            TypeError: not a Message, or the type is no integer.
            ValueError: the type is none of these, the message names no record, or the delay is out of its bounds or of
                a record that is not released.
            IllegalStateException: implicit mode, or the record is not delivered, acknowledged, or being renewed.
        """
        with self._entered():
            if not isinstance(message, Message):
                given = "None" if message is None else type(message).__name__
                raise TypeError(f"argument 1 must be {Message.__module__}.Message, not {given}")
            said = checked_said("message", ack_type, redelivery_delay_ms)
            place = checked_place("message", message.topic(), message.partition(), message.offset())
            self._acknowledge("message", place, said)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        ack_type: int = AcknowledgeType.ACCEPT,
        *,
        redelivery_delay_ms: int | None = None,
    ) -> None:
        """As `acknowledge`, for a record whose Message is not at hand."""
        with self._entered():
            if not isinstance(topic, str):
                raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
            place = checked_place("offset", topic, operator.index(partition), operator.index(offset))
            self._acknowledge("offset", place, checked_said("offset", ack_type, redelivery_delay_ms))

    def commit_sync(self, timeout: float = 60) -> dict[TopicPartition, KafkaException | None]:
        """Send what is acknowledged, and wait for the answers, also to what was sent before.

        Args:
            timeout: seconds to wait; negative is endless.

        Returns:
            What became of it, for each partition with something to send now; `_TIMED_OUT` where no answer came in
            time: the callback hears of those later.

        Raises:
            WakeupException: `wakeup` was called; what was to be sent is on its way.
        """
        timeout_ms = _milliseconds(timeout)
        with self._entered():
            self._accept_if_implicit()
            sent = self._take_acknowledged()
            if self._member is None:
                return {}
            self._member.acknowledge(sent)
            results = self._member.flush(timeout_ms)
            self._settle(results)
            if sent:
                self._raise_if_woken()
            self._callback.serve()
            return commit_outcome(sent, results, self._member.unanswered_partitions())

    def commit_async(self) -> None:
        """Send what is acknowledged; the callback hears of the answers."""
        with self._entered():
            self._accept_if_implicit()
            sent = self._take_acknowledged()
            if self._member is not None:
                self._member.acknowledge(sent)
                self._serve_callback(self._member)

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Have `callback(offsets, exception)` called for each partition whose acknowledgements were answered.

        It is called on the application's thread, inside poll, commit_sync, commit_async and close; None clears it.
        """
        with self._entered():
            self._callback.set_callback(callback)

    def wakeup(self) -> None:
        """Have the poll or commit_sync that goes on, or else the next one that would wait, raise WakeupException.

        The one method that another thread may call. As the Java client's; confluent-kafka has none.
        """
        self._woken.set()
        if self._member is not None:
            self._member.notify()

    def metrics(self) -> dict[MetricName, float]:
        """Measurements of this consumer, named as the Java client's; averages, maxima and rates of the last minute.

        A value is NaN as long as there is nothing to say. `records-per-request` and `fetch-size` are of a poll, since
        it is polls that read records; acknowledgements count when they are answered.
        """
        with self._entered():
            of_member = self._member.metrics() if self._member is not None else {}
            return self._measurements.metrics(time.monotonic()) | of_member

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the locks of the records last that were fetched last, in ms; None before there are some."""
        with self._entered():
            return self._undelivered.lock_timeout_ms

    def client_instance_id(self, timeout: float = -1) -> str:
        """The id under which the group knows this consumer: its member id, for as long as it lives.

        Args:
            timeout: not used, since nobody has to be asked; the Java client's has one.
        """
        _milliseconds(timeout)
        with self._entered():
            return self._member_settings.member_id

    def close(self, timeout: float | None = None) -> None:
        """Send what is acknowledged, give everything else back, leave the group. A second close does nothing.

        Records that were delivered and not acknowledged are released; those that were not delivered are returned
        as if they had never been acquired.

        Args:
            timeout: seconds to wait for the answers; None is `default.api.timeout.ms`.
        """
        timeout_ms = None if timeout is None else _milliseconds(timeout)
        with self._guard.entered(), as_kafka_exception():
            if self._is_closed:
                return
            self._is_closed = True
            try:
                if self._member is not None:
                    last = [*self._take_acknowledged(), *self._undelivered.take_unread("the consumer closes")]
                    default_ms = self._config.default_api_timeout_ms
                    self._settle(self._member.close(default_ms if timeout_ms is None else timeout_ms, last))
                self._callback.serve()
            finally:
                self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._guard.entered(), as_kafka_exception():
            if self._is_closed:
                raise IllegalStateException("Share consumer closed")
            yield

    @property
    def _running_member(self) -> GroupMember:
        if self._member is None:
            self._member = GroupMember(self._log, self._member_settings, self._woken)
        return self._member

    def _join(self) -> None:
        """Join the group with the topics subscribed to, or leave it when there are none."""
        if self._subscription.names or self._member is not None:
            self._running_member.subscribe(self._subscription.names)
            self._running_member.acknowledge(self._undelivered.take_unread("the subscription changed"))

    def _next_messages(self, timeout_ms: int | None) -> list[Message]:
        deadline_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        member = self._running_member
        self._raise_if_woken()
        member.polled()
        self._settle(member.take_results())
        if renewed := self._delivered.take_renewed():
            member.acknowledge(self._take_acknowledged())
            return renewed
        while True:
            acknowledged = self._take_acknowledged()
            if self._delivered.awaits_renewals:
                member.acknowledge(acknowledged)
                self._settle(member.flush(timeout_ms))
                self._raise_if_woken()
                return []
            if self._undelivered.is_empty:
                self._undelivered.hold(member.take_acquisition(acknowledged, self._config.max_poll_records))
            elif acknowledged:
                member.acknowledge(acknowledged)
            if not self._undelivered.is_empty:
                if messages := self._deliver():
                    return messages
                continue
            self._serve_callback(member)
            if self._subscription.refresh(time.monotonic()):
                self._join()
            is_there = member.wait(self._wait_ms(deadline_s))
            self._raise_if_woken()
            if not is_there and deadline_s is not None and time.monotonic() >= deadline_s:
                return []

    def _wait_ms(self, deadline_s: float | None) -> int | None:
        """How long to wait for records: until a deadline, or the next look at the topics."""
        now_s = time.monotonic()
        waits_ms = [self._subscription.next_look_ms(now_s)]
        if deadline_s is not None:
            waits_ms.append(max(math.ceil((deadline_s - now_s) * 1000), 0))
        return min((wait_ms for wait_ms in waits_ms if wait_ms is not None), default=None)

    def _deliver(self) -> list[Message]:
        """The next messages for the application, which are delivered from now on."""
        messages: list[Message] = []
        ranges, size = self._undelivered.read()
        for held, by_offset in ranges:
            self._delivered.add(held.topic_id, held.topic, held.partition, by_offset)
            messages += by_offset.values()
        if messages:
            self._measurements.delivered(messages, size, time.monotonic())
        return messages

    def _raise_if_woken(self) -> None:
        if self._woken.is_set():
            self._woken.clear()
            raise WakeupException("The share consumer was woken up.")

    def _serve_callback(self, member: GroupMember) -> None:
        self._settle(member.take_results())
        self._callback.serve()

    def _settle(self, results: list[Acknowledged]) -> None:
        self._measurements.settled(results, time.monotonic())
        self._delivered.settle(results)
        self._callback.add(results)

    def _accept_if_implicit(self) -> None:
        if self._is_implicit:
            self._delivered.accept_all()

    def _take_acknowledged(self) -> list[Acknowledgement]:
        return [*self._undelivered.take_missing(), *self._delivered.take_acknowledged()]

    def _acknowledge(self, what: str, place: Place, said: Said) -> None:
        if self._is_implicit or not self._delivered.acknowledge(*place, said):
            raise IllegalStateException(f"Failed to acknowledge {what}: {ERRONEOUS_STATE}")


def _milliseconds(timeout: object) -> int | None:
    """Milliseconds of a timeout in seconds; None is endless."""
    if not isinstance(timeout, int | float):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    return None if timeout < 0 else round(timeout * 1000)
