"""The Kafka log: topics of a Kafka cluster, through the client that needs no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from operator import methodcaller
from types import TracebackType
from typing import Self

from confluent_kafka import Message

from sharegroup.config.kafka import KafkaConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import InvalidTimestampError, LogError, ShareGroupError, TopicExistsError
from sharegroup.logs.client_options import ClientOptions
from sharegroup.logs.client_pool import ClientPool
from sharegroup.logs.helper_process import KafkaMemberHelper
from sharegroup.logs.kafka_appender import Batch, KafkaAppender
from sharegroup.logs.kafka_clients import KafkaClients
from sharegroup.logs.kafka_end_watch import KafkaEndWatch
from sharegroup.logs.kafka_follower import KafkaFollower
from sharegroup.logs.kafka_messages import MessageReader
from sharegroup.logs.kafka_reader import Limits, OffsetsDeletedError, RangeReader, TopicIdPartition
from sharegroup.logs.kafka_topics import KafkaTopics, KnownTopics
from sharegroup.logs.life_signs import LifeSigns
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.port import (
    LogRecord,
    NewRecord,
    OffsetSpan,
    PartitionOffsets,
    TopicDescription,
    TopicIdentity,
)

_TIMESTAMP_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


class KafkaLog:
    """A `Log` on a Kafka cluster (tested with 4.3.1 and 3.9.2).

    Any thread may use it; a forked process must open its own. Opening asks nothing of the cluster. Operations ride out
    an outage that is shorter than the time that they may take.

    Args:
        timeout_ms: how long an operation retries while Kafka cannot be reached (`default.api.timeout.ms` of
            Kafka's own clients); the event log reports waiting operations once a minute.
        options: what the application adds to all clients.

    Raises:
        ConfigurationError: no bootstrap.servers, or the client does not accept a setting.
    """

    def __init__(self, config: KafkaConfig, *, timeout_ms: int = 60_000, options: ClientOptions | None = None) -> None:
        self.config = config
        self._clients = KafkaClients(config, timeout_ms, options)
        self._topics = KafkaTopics(self._clients)
        self._known_topics = KnownTopics(self._topics)
        # The processor's responses do not wait for the appends of its watches.
        self._appenders = {
            may_repeat: ClientPool(self._clients, partial(KafkaAppender, self._clients, may_repeat=may_repeat))
            for may_repeat in (False, True)
        }
        self._clock = LogClock()
        self._readers = {
            level: ClientPool(self._clients, partial(RangeReader, self._clients, level, self._clock))
            for level in IsolationLevel
        }
        self._message_readers = {
            level: ClientPool(self._clients, partial(MessageReader, self._clients, self._topics, level, self._clock))
            for level in IsolationLevel
        }

    def create_topic(
        self,
        name: str,
        partition_count: int,
        config: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> TopicDescription:
        """Create a topic; see `Log.create_topic`."""
        try:
            self._topics.create(name, partition_count, config or {})
        except TopicExistsError:
            if not if_not_exists:
                raise
            return self.describe_topic(name)
        return self._topics.awaited(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises `UnknownTopicError`."""
        self._topics.delete(name)
        self._known_topics.forget([name])

    def describe_topic(self, name: str) -> TopicDescription:
        """Describe one topic; raises `UnknownTopicError`."""
        (description,) = self._topics.describe([name])
        return description

    def topics(self) -> list[TopicDescription]:
        """Describe all topics but Kafka's own, by name."""
        return self._topics.describe(self._topics.names())

    def append(self, topic: str, partition: int, records: Sequence[NewRecord], *, may_repeat: bool = False) -> int:
        """Append records, in one batch of the producer's up to a megabyte; see `Log.append`."""
        return self._append_all([(topic, partition, records)], may_repeat)[0]

    def append_all(self, batches: Sequence[Batch]) -> list[int]:
        """Append several batches, topic by topic; see `Log.append_all`."""
        return self._append_all(batches, may_repeat=False)

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return the topic of each name; see `Log.identify`."""
        return self._topics.identify(names, timeout_ms)

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        """Return start, end and last stable offset by partition; see `Log.offsets`."""
        if partitions is None:
            partitions = range(self._topics.identity(topic).partition_count)
        if timeout_ms is None:
            return self._topics.offsets(topic, partitions)
        return self._topics.reachable_offsets(topic, partitions, timeout_ms)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Return the first offset whose timestamp is at or after a time; see `Log.offset_for_time`."""
        self._identified(topic, partition)
        offset = self._topics.offset_for_time(topic, partition, timestamp_ms)
        if offset is not None:
            return offset
        end_offset = self._end_offset(topic, partition)
        # A record that was appended before the end was known may be as young: the end would pass it over.
        offset = self._topics.offset_for_time(topic, partition, timestamp_ms)
        return end_offset if offset is None else offset

    def group_config(self, group_id: str) -> dict[str, str]:
        """Return the configuration that a share group of the cluster's own brokers has; defaults are left out.

        Raises:
            LogError: the brokers do not respond, or have no configuration of groups (before Kafka 3.8).
        """
        return self._topics.group_config(group_id)

    def read(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        max_records: int | None = None,
        max_bytes: int | None = None,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> list[LogRecord]:
        """Read records of a range of offsets, end exclusive; see `Log.read`."""
        while True:
            identified = self._identified(topic, partition)
            offsets = self._topics.offsets(topic, [partition])[partition]
            start = max(start_offset, offsets.start_offset)
            limits = Limits(min(end_offset, offsets.readable_end(isolation_level)), max_records, max_bytes)
            if start >= limits.end_offset:
                return []
            with self._readers[isolation_level].lent(methodcaller("is_at", identified, start)) as reader:
                try:
                    return reader.read(identified, start, limits)
                except OffsetsDeletedError:
                    continue

    def read_messages(
        self,
        topic: str,
        topic_id: str,
        spans: Mapping[int, OffsetSpan],
        max_bytes: int,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, list[Message]]:
        """Read spans of partitions as messages; see `Log.read_messages`."""
        with self._message_readers[isolation_level].lent(methodcaller("is_at", topic, topic_id)) as reader:
            return reader.read(topic, topic_id, spans, max_bytes)

    def watch_ends(self) -> KafkaEndWatch:
        """Make a watch of the ends of partitions; see `Log.watch_ends`."""
        return KafkaEndWatch(self._clients)

    def follow(self, topic: str, positions: Mapping[int, int]) -> KafkaFollower:
        """Follow the tails of some partitions; see `Log.follow`. Closing the log ends a waiting `take`."""
        return KafkaFollower(self._clients, self._topics, self._clock, topic, positions)

    def lock_member(self, group_id: str, member_id: str) -> None:
        """Return None: Kafka does not report the end of a process."""

    def help_member(self, signs: LifeSigns) -> KafkaMemberHelper | None:
        """Let another process speak for a member, if it can log in; see `Log.help_member`."""
        settings = self._clients.helper_settings()
        return None if settings is None else KafkaMemberHelper(signs, settings)

    def member_locks(self) -> None:
        """Return None: members have no locks in Kafka."""

    def now_ms(self) -> int:
        """Return the log's time, by this machine's clock and the brokers' stamps that were read; see `Log.now_ms`."""
        return self._clock.now_ms()

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below an offset; see `Log.delete_records`."""
        self._identified(topic, partition)
        self._topics.delete_records(topic, partition, before_offset)

    def limited(self, timeout_ms: int) -> AbstractContextManager[None]:
        """Bound all operations of this thread together; see `Log.limited`."""
        return self._clients.limited(timeout_ms)

    def close(self) -> None:
        """Close all clients; followers and watches end. In a process that was forked it does nothing."""
        if self._clients.is_forked:
            return
        self._clients.closed.set()
        for appenders in self._appenders.values():
            appenders.close()
        for level in IsolationLevel:
            self._readers[level].close()
            self._message_readers[level].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _identified(self, topic: str, partition: int) -> TopicIdPartition:
        identity = self._topics.identity(topic)
        self._topics.check_partition(topic, partition, identity)
        return TopicIdPartition(topic, identity.topic_id, partition)

    def _append_all(self, batches: Sequence[Batch], may_repeat: bool) -> list[int]:
        self._known_topics.check_partitions((topic, partition) for topic, partition, _ in batches)
        filled = [batch for batch in batches if batch[2]]
        try:
            firsts = iter(self._appended(filled, may_repeat) if filled else ())
        except LogError as error:
            self._known_topics.forget(topic for topic, _, _ in batches)
            if isinstance(error, InvalidTimestampError):
                raise self._with_bounds(error, {topic for topic, _, _ in filled}) from None
            raise
        return [next(firsts) if records else self._end_offset(topic, p) for topic, p, records in batches]

    def _with_bounds(self, error: InvalidTimestampError, topics: Iterable[str]) -> InvalidTimestampError:
        """Return a broker's refusal of timestamps with the bounds of the topics, where they can be read."""
        bounds: list[str] = []
        for topic in sorted(topics):
            with suppress(LogError):
                config = self.describe_topic(topic).config
                bounds += (f"{key} of topic {topic} is {config[key]}" for key in _TIMESTAMP_BOUNDS if key in config)
        message = f"{error.message} {'; '.join(bounds)}." if bounds else error.message
        return InvalidTimestampError(message, error.remedy)

    def _appended(self, batches: Sequence[Batch], may_repeat: bool) -> list[int]:
        with self._appenders[may_repeat].lent(lambda _: True) as appender:
            return appender.append(batches)

    def _end_offset(self, topic: str, partition: int) -> int:
        return self._topics.offsets(topic, [partition])[partition].end_offset
