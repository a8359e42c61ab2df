"""The log in memory, with append stamps of a virtual clock that may jump."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import LogUnavailableError, ShareGroupError, UnknownTopicError
from sharegroup.logs.port import (
    LogRecord,
    NewRecord,
    PartitionOffsets,
    TopicDescription,
    TopicIdentity,
)
from tests.simulation.world import START_MS, World

Appended = Callable[[LogRecord], None]
Batch = tuple[str, int, Sequence[NewRecord]]


@dataclass
class StoredTopic:
    """A topic; the record log has offsets only, since no payload passes through a processor."""

    description: TopicDescription
    partitions: list[list[LogRecord]]
    end_offsets: list[int]
    clock_jumps_ms: list[int]
    observers: list[Appended] = field(default_factory=list)


class StoredLog:
    """All topics; what outlives processors and members.

    Args:
        world: time.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.topics: dict[str, StoredTopic] = {}
        self.away_until_ms = 0
        """Until then nobody reaches the log."""
        self.refused_topics: set[str] = set()
        """Topics that take no records."""
        self._created_count = 0

    @property
    def is_away(self) -> bool:
        """Return True while nobody reaches the log."""
        return self._world.now_ms < self.away_until_ms

    def check_reachable(self) -> None:
        """Raise `LogUnavailableError` while the log is away."""
        if self.is_away:
            raise LogUnavailableError("The log is away.")

    def create(self, name: str, partition_count: int, config: Mapping[str, str]) -> TopicDescription:
        """Create a topic, or return the one that is there."""
        if name not in self.topics:
            self._created_count += 1
            description = TopicDescription(name, f"{name}-{self._created_count}", partition_count, dict(config))
            self.topics[name] = StoredTopic(
                description, [[] for _ in range(partition_count)], [0] * partition_count, [0] * partition_count
            )
        return self.topics[name].description

    def delete(self, name: str) -> None:
        """Delete a topic with all records."""
        del self.topics[name]

    def add_partition(self, name: str) -> None:
        """Let a topic have one partition more."""
        topic = self.topic(name)
        topic.description = replace(topic.description, partition_count=topic.description.partition_count + 1)
        topic.partitions.append([])
        topic.end_offsets.append(0)
        topic.clock_jumps_ms.append(0)

    def topic(self, name: str) -> StoredTopic:
        """Return a topic; raises `UnknownTopicError`."""
        if name not in self.topics:
            raise UnknownTopicError(f"There is no topic {name}.")
        return self.topics[name]

    def append(self, name: str, partition: int, records: Iterable[NewRecord]) -> int:
        """Append records, and show each to the observers of the topic."""
        topic = self.topic(name)
        stored = topic.partitions[partition]
        first_offset = topic.end_offsets[partition]
        stamp_ms = START_MS + self._world.now_ms + topic.clock_jumps_ms[partition]
        appended = [
            LogRecord(name, partition, first_offset + index, stamp_ms, new.key, new.value, new.headers)
            for index, new in enumerate(records)
        ]
        stored += appended
        topic.end_offsets[partition] += len(appended)
        for record in appended:
            for observer in topic.observers:
                observer(record)
        return first_offset

    def grow(self, name: str, partition: int, count: int) -> None:
        """Append records of which only the offsets matter."""
        self.topic(name).end_offsets[partition] += count

    def jump(self, name: str, partition: int, jump_ms: int) -> None:
        """Set the clock that stamps a partition's records."""
        self.topic(name).clock_jumps_ms[partition] += jump_ms

    def now_ms(self, name: str, partition: int) -> int:
        """Return the stamp that a record would get now."""
        return START_MS + self._world.now_ms + self.topic(name).clock_jumps_ms[partition]


class SimulatedFollower:
    """The tail of a topic; `take` never waits, since its caller waits in virtual time."""

    def __init__(
        self, stored: StoredLog, topic: str, positions: Mapping[int, int], cut_sizes: Callable[[], int]
    ) -> None:
        self._stored = stored
        self._topic = stored.topic(topic)
        self._positions = dict(positions)
        self._cut_sizes = cut_sizes

    @property
    def positions(self) -> Mapping[int, int]:
        return self._positions

    @property
    def has_records(self) -> bool:
        """Return True if `take` would return something."""
        return not self._stored.is_away and any(
            position < self._topic.end_offsets[p] for p, position in self._positions.items()
        )

    def take(self, max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
        records: list[LogRecord] = []
        if self._stored.is_away:
            return records
        room = min(max_records, self._cut_sizes())
        for partition, position in self._positions.items():
            taken = self._topic.partitions[partition][position : position + room]
            self._positions[partition] = position + len(taken)
            room -= len(taken)
            records += taken
        return records

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is held."""


class SimulatedLog:
    """The log as one processor has it: the part of `Log` that a processor calls.

    A processor deletes no topic and no record, and the simulated watches read `StoredLog` themselves.

    Args:
        stored: all topics.
        before_append: called before each batch of an append, which may not come to pass.
        after_append: called once all batches of an append are in.
        cut_sizes: most records of a take.
    """

    def __init__(
        self,
        stored: StoredLog,
        before_append: Callable[[str], None],
        after_append: Callable[[], None],
        cut_sizes: Callable[[], int],
    ) -> None:
        self._stored = stored
        self._before_append = before_append
        self._after_append = after_append
        self._cut_sizes = cut_sizes

    def create_topic(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None, if_not_exists: bool = False
    ) -> TopicDescription:
        return self._stored.create(name, partition_count, config or {})

    def describe_topic(self, name: str) -> TopicDescription:
        self._stored.check_reachable()
        return self._stored.topic(name).description

    def topics(self) -> list[TopicDescription]:
        return [topic.description for topic in self._stored.topics.values()]

    def append(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        return self.append_all([(topic, partition, records)])[0]

    def append_all(self, batches: Sequence[Batch]) -> list[int]:
        """Append topic by topic, as a log does that is no database: a crash may come between."""
        offsets = []
        for topic, partition, records in batches:
            self._before_append(topic)
            if topic in self._stored.refused_topics:
                raise LogUnavailableError(f"Topic {topic} takes no records.")
            offsets.append(self._stored.append(topic, partition, records))
        self._after_append()
        return offsets

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        identities: dict[str, TopicIdentity | ShareGroupError] = {}
        for name in names:
            topic = self._stored.topics.get(name)
            identities[name] = (
                UnknownTopicError(f"There is no topic {name}.")
                if topic is None
                else TopicIdentity(topic.description.topic_id, topic.description.partition_count)
            )
        return identities

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        self._stored.check_reachable()
        ends = self._stored.topic(topic).end_offsets
        return {
            p: PartitionOffsets(0, ends[p], ends[p]) for p in (range(len(ends)) if partitions is None else partitions)
        }

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        records = self._stored.topic(topic).partitions[partition]
        return next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), len(records))

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
        return self._stored.topic(topic).partitions[partition][start_offset:end_offset][:max_records]

    def wait(self, positions: Mapping[tuple[str, int], int], timeout_ms: int) -> bool:
        return any(self._stored.topic(topic).end_offsets[p] > end for (topic, p), end in positions.items())

    def follow(self, topic: str, positions: Mapping[int, int]) -> SimulatedFollower:
        return SimulatedFollower(self._stored, topic, positions, self._cut_sizes)

    def now_ms(self) -> int:
        return START_MS

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
