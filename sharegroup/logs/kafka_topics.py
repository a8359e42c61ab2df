"""Administration of a Kafka cluster's topics, the offsets of their partitions, and recently read identities."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel as KafkaIsolationLevel
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, OffsetSpec, ResourceType
from confluent_kafka.admin import TopicDescription as ClusterTopic

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import (
    ConfigurationError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    ShareGroupError,
    UnknownTopicError,
)
from sharegroup.logs.kafka_clients import KafkaClients
from sharegroup.logs.port import PartitionOffsets, TopicDescription, TopicIdentity

_CLUSTER_DEFAULT = -1
_NO_RECORD = -1
_PROPAGATION_PAUSE_S = 0.01
_LEADER_TIMEOUT_S = 5.0
"""Time after which leaders are looked up again: the client would wait for one that ended, and not for its successor."""

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ISOLATION_LEVELS = {
    IsolationLevel.READ_UNCOMMITTED: KafkaIsolationLevel.READ_UNCOMMITTED,
    IsolationLevel.READ_COMMITTED: KafkaIsolationLevel.READ_COMMITTED,
}
# Requested in this order, so that changes in between leave start <= last stable <= end.
_START_STABLE_END = (
    (_EARLIEST, IsolationLevel.READ_UNCOMMITTED),
    (_LATEST, IsolationLevel.READ_COMMITTED),
    (_LATEST, IsolationLevel.READ_UNCOMMITTED),
)
_FIRST_ATTEMPT = 0.4
"""Part of the time for all partitions together; the rest is for the leaders that respond."""


class KafkaTopics:
    """The administrator's view of a cluster; any thread may use it."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients

    def create(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication factor; raises `TopicExistsError`."""
        if partition_count < 1:
            # In Kafka, -1 means its own default.
            raise ConfigurationError(
                f"The partition count of topic {name} is {partition_count}.", "It must be at least 1."
            )
        topic = NewTopic(name, partition_count, _CLUSTER_DEFAULT, config=dict(config))
        self._clients.ask(f"create topic {name!r}", lambda admin: admin.create_topics([topic]))

    def awaited(self, name: str) -> TopicDescription:
        """Return the description of a topic that was just created, once the leaders of its partitions know of it.

        Brokers learn of it from the controller, each in its own time.
        """
        deadline = self._clients.deadline()
        while True:
            try:
                (description,) = self.describe([name])
                self.offsets(name, range(description.partition_count))
                return description
            except UnknownTopicError:
                if time.monotonic() > deadline:
                    raise
            self._clients.closed.wait(_PROPAGATION_PAUSE_S)

    def names(self) -> list[str]:
        """Return all topics but Kafka's own, by name."""
        names = sorted(self._clients.topic_names())
        return [name for name, identity in self.identities(names).items() if not identity.is_internal]

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the brokers no longer know it."""
        doomed = self.identity(name).topic_id
        self._clients.ask(f"delete topic {name}", lambda admin: admin.delete_topics([name]))
        deadline = self._clients.deadline()
        while self._topic_id(name) == doomed and time.monotonic() < deadline:
            self._clients.closed.wait(_PROPAGATION_PAUSE_S)

    def describe(self, names: Iterable[str]) -> list[TopicDescription]:
        """Return identity and configuration of topics; raises `UnknownTopicError`."""
        identities = self.identities(names)
        resources = {ConfigResource(ConfigResource.Type.TOPIC, name): name for name in identities}
        action = f"describe the configuration of {_listed(identities)}"
        configs = self._clients.ask(action, lambda admin: admin.describe_configs(list(resources))) if resources else []
        return [
            TopicDescription(
                name,
                identity.topic_id,
                identity.partition_count,
                {entry.name: entry.value for entry in config.values() if entry.value is not None},
            )
            for (name, identity), config in zip(identities.items(), configs, strict=True)
        ]

    def group_config(self, group_id: str) -> dict[str, str]:
        """Return the configuration that a group of the cluster has of its own; defaults are left out."""
        resource = ConfigResource(ResourceType.GROUP, group_id)
        action = f"describe the configuration of group {group_id}"
        (entries,) = self._clients.ask(action, lambda admin: admin.describe_configs([resource]))
        return {
            name: entry.value
            for name, entry in sorted(entries.items())
            if entry.source == ConfigSource.GROUP_CONFIG.value and entry.value is not None
        }

    def identity(self, name: str) -> TopicIdentity:
        """Return the identity of the topic with this name; raises `UnknownTopicError`."""
        return self.identities([name])[name]

    def identities(self, names: Iterable[str]) -> dict[str, TopicIdentity]:
        """Return the identities of the topics with these names; raises `UnknownTopicError`."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        topics, errors = self._clients.ask_each(f"describe {_listed(wanted)}", wanted, _describe_topics)
        for error in errors.values():
            raise error
        return {name: _identity(topics[name]) for name in wanted}

    def identify(self, names: Iterable[str], timeout_ms: int | None) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return the identity of each topic, or its error."""
        topics, errors = self._clients.ask_each(
            "describe topics",
            list(dict.fromkeys(names)),
            _describe_topics,
            timeout_ms,
        )
        return {**{name: _identity(topic) for name, topic in topics.items()}, **errors}

    def check_partition(self, topic: str, partition: int, identity: TopicIdentity) -> None:
        """Raise `UnknownTopicError` when the topic has no such partition."""
        if not 0 <= partition < identity.partition_count:
            raise UnknownTopicError(
                f"{self._clients.name} has no partition {topic}-{partition}.",
                f"The topic has {identity.partition_count} partitions, from 0 on.",
            )

    def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
        """Return start and end offsets of partitions that exist."""
        requested = {partition: TopicPartition(topic, partition) for partition in partitions}
        action = f"list the offsets of topic {topic}"
        deadline = self._clients.deadline()
        while True:
            results = self._clients.ask(
                action,
                lambda admin: {
                    (key, number): future
                    for number, (spec, isolation_level) in enumerate(_START_STABLE_END)
                    for key, future in admin.list_offsets(
                        dict.fromkeys(requested.values(), spec),
                        isolation_level=_ISOLATION_LEVELS[isolation_level],
                        request_timeout=_LEADER_TIMEOUT_S,
                    ).items()
                },
            )
            offsets = [result.offset for result in results]
            # The client returns a negative offset for a leader that it lost meanwhile.
            if all(offset >= 0 for offset in offsets):
                break
            if time.monotonic() > deadline:
                raise self._clients.timed_out(action)
            self._clients.closed.wait(_PROPAGATION_PAUSE_S)
        starts, stable, ends = (
            offsets[at : at + len(requested)] for at in range(0, len(offsets), max(len(requested), 1))
        )
        return {
            partition: PartitionOffsets(start, end, min(last_stable, end))
            for partition, start, last_stable, end in zip(requested, starts, stable, ends, strict=True)
        }

    def reachable_offsets(self, topic: str, partitions: Iterable[int], timeout_ms: int) -> dict[int, PartitionOffsets]:
        """Return start and end offsets of the partitions that can be reached within a time.

        Raises:
            ShareGroupError: the error of a partition, when a retry does not help.
        """
        action = f"list the offsets of topic {topic}"
        keys = [(number, partition) for number in range(len(_START_STABLE_END)) for partition in partitions]
        first_ms = round(timeout_ms * _FIRST_ATTEMPT)
        results, errors = self._clients.ask_each(action, keys, partial(_list_offsets, topic, {}), first_ms)
        if any(isinstance(error, LogUnavailableError) for error in errors.values()):
            # The client returns no result for any partition while the leader of one does not respond.
            leaders = self._leaders(topic, timeout_ms - first_ms)
            waiting = [key for key in errors if key[1] in leaders]
            start = partial(_list_offsets, topic, leaders)
            late, late_errors = self._clients.ask_each(action, waiting, start, timeout_ms - first_ms)
            results |= late
            errors = {key: late_errors.get(key, error) for key, error in errors.items() if key not in late}
        for error in errors.values():
            if not isinstance(error, LogUnavailableError):
                raise error
        # The client returns a negative offset for a leader that it lost meanwhile.
        unreachable = {p for _, p in errors} | {p for (_, p), result in results.items() if result.offset < 0}
        starts, stable, ends = (
            {p: result.offset for (n, p), result in results.items() if n == number} for number in range(3)
        )
        return {
            partition: PartitionOffsets(starts[partition], end, min(stable[partition], end))
            for partition, end in ends.items()
            if partition not in unreachable
        }

    def _leaders(self, topic: str, timeout_ms: int) -> dict[int, int]:
        """Return the leaders of a topic's partitions; partitions without a leader are left out."""
        topics, _ = self._clients.ask_each("describe topics", [topic], _describe_topics, timeout_ms)
        return {p.id: p.leader.id for seen in topics.values() for p in seen.partitions if p.leader is not None}

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset whose timestamp is at or after a time; None when there is no such record."""
        target = TopicPartition(topic, partition)
        spec = OffsetSpec.for_timestamp(max(timestamp_ms, 0))
        action = f"look up a time in partition {topic}-{partition}"
        deadline = self._clients.deadline()
        while True:
            (result,) = self._clients.ask(
                action, lambda admin: admin.list_offsets({target: spec}, request_timeout=_LEADER_TIMEOUT_S)
            )
            if result.offset >= 0 or result.offset == _NO_RECORD:
                return None if result.offset == _NO_RECORD else int(result.offset)
            # The client returns -1001 for a leader that it lost meanwhile; -1 without an error is a broker's response.
            if time.monotonic() > deadline:
                raise self._clients.timed_out(action)
            self._clients.closed.wait(_PROPAGATION_PAUSE_S)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the records below an offset; raises `OffsetOutOfRangeError`."""
        action = f"delete the records of partition {topic}-{partition} below offset {before_offset}"
        target = TopicPartition(topic, partition, before_offset)
        try:
            if before_offset >= 0:  # Kafka takes -1 for the end
                self._clients.ask(action, lambda admin: admin.delete_records([target]))
                return
        except OffsetOutOfRangeError:
            pass
        end = self.offsets(topic, [partition])[partition].end_offset
        raise OffsetOutOfRangeError(
            f"Records of partition {topic}-{partition} cannot be deleted up to offset {before_offset}.",
            f"Give an offset from 0 to the end offset, {end}.",
        )

    def _topic_id(self, name: str) -> str | None:
        try:
            return self.identity(name).topic_id
        except UnknownTopicError:
            return None


def _listed(names: Iterable[str]) -> str:
    return f"topic {', '.join(names)}"


def _identity(topic: ClusterTopic) -> TopicIdentity:
    leaderless = frozenset(partition.id for partition in topic.partitions if partition.leader is None)
    return TopicIdentity(_kafka_form(str(topic.topic_id)), len(topic.partitions), leaderless, topic.is_internal)


def _describe_topics(admin: AdminClient, names: Sequence[str], timeout_s: float) -> dict[str, Future[Any]]:
    futures: dict[str, Future[Any]] = admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
    return futures


def _list_offsets(
    topic: str, leaders: Mapping[int, int], admin: AdminClient, keys: Sequence[tuple[int, int]], timeout_s: float
) -> dict[tuple[int, int], Future[Any]]:
    """Request start, last stable and end offsets; keys are (number in `_START_STABLE_END`, partition).

    Known leaders get requests of their own.
    """
    requests: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)
    for number, partition in keys:
        requests[number, leaders.get(partition)].append(partition)
    futures: dict[tuple[int, int], Future[Any]] = {}
    for (number, _), partitions in requests.items():
        spec, isolation_level = _START_STABLE_END[number]
        results = admin.list_offsets(
            {TopicPartition(topic, partition): spec for partition in partitions},
            isolation_level=_ISOLATION_LEVELS[isolation_level],
            request_timeout=timeout_s,
        )
        futures |= {(number, topic_partition.partition): future for topic_partition, future in results.items()}
    return futures


def _kafka_form(topic_id: str) -> str:
    # librdkafka writes standard base64, Kafka the URL-safe alphabet.
    return topic_id.replace("+", "-").replace("/", "_")


_KNOWN_S = 5.0
"""Maximum age of an identity: the topic may have been deleted, or have more partitions."""


class KnownTopics:
    """A cache of topic identities, at most some seconds old; any thread may use it."""

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics
        self._lock = threading.Lock()
        self._known: dict[str, tuple[TopicIdentity, float]] = {}

    def check_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Raise `UnknownTopicError` for an unknown topic or partition; request only identities that are not cached."""
        wanted = list(partitions)
        now_s = time.monotonic()
        with self._lock:
            known = {topic: identity for topic, (identity, until_s) in self._known.items() if now_s < until_s}
        unknown = {topic for topic, partition in wanted if not self._has(known.get(topic), partition)}
        if not unknown:
            return
        identities = self._topics.identities(sorted(unknown))
        with self._lock:
            self._known |= {topic: (identity, now_s + _KNOWN_S) for topic, identity in identities.items()}
        for topic, partition in wanted:
            if topic in identities:
                self._topics.check_partition(topic, partition, identities[topic])

    def forget(self, topics: Iterable[str]) -> None:
        """Remove topics that were deleted, or to which an append failed."""
        with self._lock:
            for topic in topics:
                self._known.pop(topic, None)

    def _has(self, identity: TopicIdentity | None, partition: int) -> bool:
        return identity is not None and 0 <= partition < identity.partition_count
