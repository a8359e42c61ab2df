"""Topics of a Kafka cluster: created, described, deleted; where their partitions start and end."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel as KafkaIsolationLevel
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exports
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from confluent_kafka.admin import TopicDescription as ClusterTopic  # type: ignore[attr-defined]

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

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ISOLATION_LEVELS = {
    IsolationLevel.READ_UNCOMMITTED: KafkaIsolationLevel.READ_UNCOMMITTED,
    IsolationLevel.READ_COMMITTED: KafkaIsolationLevel.READ_COMMITTED,
}
# Asked in this order, so that changes in between leave start <= last stable <= end.
_START_STABLE_END = (
    (_EARLIEST, IsolationLevel.READ_UNCOMMITTED),
    (_LATEST, IsolationLevel.READ_COMMITTED),
    (_LATEST, IsolationLevel.READ_UNCOMMITTED),
)
_FIRST_ATTEMPT = 0.4
"""Part of the time for all partitions together; the rest is for those leaders that answer."""


class KafkaTopics:
    """The administrator's view of a cluster; any thread may use it."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients

    def create(self, name: str, partition_count: int, config: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication factor; raises `TopicExistsError`."""
        if partition_count < 1:
            # Kafka takes -1 for its own default.
            raise ConfigurationError(
                f"The partition count of topic {name} is {partition_count}.", "It must be at least 1."
            )
        topic = NewTopic(name, partition_count, _CLUSTER_DEFAULT, config=dict(config))
        self._clients.ask(f"create topic {name!r}", lambda admin: admin.create_topics([topic]))

    def awaited(self, name: str) -> TopicDescription:
        """The description of a topic that was created just now: brokers learn of it from the controller."""
        deadline = self._clients.deadline()
        while True:
            try:
                (found,) = self.describe([name])
                return found
            except UnknownTopicError:
                if time.monotonic() > deadline:
                    raise
            self._clients.closed.wait(_PROPAGATION_PAUSE_S)

    def names(self) -> list[str]:
        """All topics but Kafka's own, by name."""
        names = sorted(self._clients.topic_names())
        return [name for name, identity in self.identities(names).items() if not identity.is_internal]

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the brokers know it no more."""
        doomed = self.identity(name).topic_id
        self._clients.ask(f"delete topic {name}", lambda admin: admin.delete_topics([name]))
        deadline = self._clients.deadline()
        while self._topic_id(name) == doomed and time.monotonic() < deadline:
            self._clients.closed.wait(_PROPAGATION_PAUSE_S)

    def describe(self, names: Iterable[str]) -> list[TopicDescription]:
        """Identity and configuration of topics; raises `UnknownTopicError`."""
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

    def identity(self, name: str) -> TopicIdentity:
        """Which topic has this name; raises `UnknownTopicError`."""
        return self.identities([name])[name]

    def identities(self, names: Iterable[str]) -> dict[str, TopicIdentity]:
        """Which topics have these names; raises `UnknownTopicError`."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        topics = self._clients.ask(
            f"describe {_listed(wanted)}", lambda admin: admin.describe_topics(TopicCollection(wanted))
        )
        return {topic.name: _identity(topic) for topic in topics}

    def identify(self, names: Iterable[str], timeout_ms: int | None) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return which topic has each name, or the error in the way."""
        topics, errors = self._clients.ask_each(
            "look at topics",
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
        """Start and end offsets of partitions that exist."""
        found = {partition: TopicPartition(topic, partition) for partition in partitions}
        answers = self._clients.ask(
            f"tell the offsets of topic {topic}",
            lambda admin: {
                (place, number): future
                for number, (spec, isolation_level) in enumerate(_START_STABLE_END)
                for place, future in admin.list_offsets(
                    dict.fromkeys(found.values(), spec), isolation_level=_ISOLATION_LEVELS[isolation_level]
                ).items()
            },
        )
        offsets = [answer.offset for answer in answers]
        starts, stable, ends = (offsets[at : at + len(found)] for at in range(0, len(offsets), max(len(found), 1)))
        return {
            partition: PartitionOffsets(start, end, min(last_stable, end))
            for partition, start, last_stable, end in zip(found, starts, stable, ends, strict=True)
        }

    def reachable_offsets(self, topic: str, partitions: Iterable[int], timeout_ms: int) -> dict[int, PartitionOffsets]:
        """Start and end offsets of those partitions that can be looked at within a time.

        Raises:
            ShareGroupError: the error of a partition, when trying again does not help.
        """
        action = f"tell the offsets of topic {topic}"
        places = [(number, partition) for number in range(len(_START_STABLE_END)) for partition in partitions]
        first_ms = round(timeout_ms * _FIRST_ATTEMPT)
        answers, errors = self._clients.ask_each(action, places, partial(_list_offsets, topic, {}), first_ms)
        if any(isinstance(error, LogUnavailableError) for error in errors.values()):
            # The client answers for no partition while the leader of one is silent.
            leaders = self._leaders(topic, timeout_ms - first_ms)
            waiting = [place for place in errors if place[1] in leaders]
            start = partial(_list_offsets, topic, leaders)
            late, late_errors = self._clients.ask_each(action, waiting, start, timeout_ms - first_ms)
            answers |= late
            errors = {place: late_errors.get(place, error) for place, error in errors.items() if place not in late}
        for error in errors.values():
            if not isinstance(error, LogUnavailableError):
                raise error
        # The client returns a negative offset of a leader that it lost meanwhile.
        unreachable = {p for _, p in errors} | {p for (_, p), answer in answers.items() if answer.offset < 0}
        starts, stable, ends = (
            {p: answer.offset for (n, p), answer in answers.items() if n == number} for number in range(3)
        )
        return {
            partition: PartitionOffsets(starts[partition], end, min(stable[partition], end))
            for partition, end in ends.items()
            if partition not in unreachable
        }

    def _leaders(self, topic: str, timeout_ms: int) -> dict[int, int]:
        """Return the leaders of a topic's partitions; without those that have none."""
        topics, _ = self._clients.ask_each("look at topics", [topic], _describe_topics, timeout_ms)
        return {p.id: p.leader.id for seen in topics.values() for p in seen.partitions if p.leader is not None}

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset as young as a time; None when there is no such record."""
        place = TopicPartition(topic, partition)
        spec = OffsetSpec.for_timestamp(max(timestamp_ms, 0))
        (answer,) = self._clients.ask(
            f"look up a time in partition {topic}-{partition}", lambda admin: admin.list_offsets({place: spec})
        )
        return None if answer.offset == _NO_RECORD else int(answer.offset)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the records below an offset; raises `OffsetOutOfRangeError`."""
        action = f"delete the records of partition {topic}-{partition} below offset {before_offset}"
        place = TopicPartition(topic, partition, before_offset)
        try:
            if before_offset >= 0:  # Kafka takes -1 for the end
                self._clients.ask(action, lambda admin: admin.delete_records([place]))
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
    topic: str, leaders: Mapping[int, int], admin: AdminClient, places: Sequence[tuple[int, int]], timeout_s: float
) -> dict[tuple[int, int], Future[Any]]:
    """Ask for starts, last stable offsets and ends: (number in `_START_STABLE_END`, partition) each.

    Leaders that are known are asked by requests of their own.
    """
    requests: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)
    for number, partition in places:
        requests[number, leaders.get(partition)].append(partition)
    futures: dict[tuple[int, int], Future[Any]] = {}
    for (number, _), partitions in requests.items():
        spec, isolation_level = _START_STABLE_END[number]
        answers = admin.list_offsets(
            {TopicPartition(topic, partition): spec for partition in partitions},
            isolation_level=_ISOLATION_LEVELS[isolation_level],
            request_timeout=timeout_s,
        )
        futures |= {(number, place.partition): future for place, future in answers.items()}
    return futures


def _kafka_form(topic_id: str) -> str:
    # librdkafka writes standard base64, Kafka the URL-safe alphabet.
    return topic_id.replace("+", "-").replace("/", "_")
