"""The log port: what this package asks of a log, be it Kafka or a local file.

A log holds topics, a topic holds partitions, a partition holds records at ascending offsets. An offset is
given out once and never again; offsets may be missing (compaction, deletion), so readers go by `LogRecord.offset`
and never by counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import ShareGroupError

Headers = tuple[tuple[str, bytes | None], ...]
"""Record headers in their order; a key may occur more than once."""

TIMESTAMP_TYPE_CONFIG = "message.timestamp.type"
"""Topic configuration key: who stamps records, `CreateTime` (the producer) or `LogAppendTime` (the log)."""

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as it stands in the log; `timestamp_ms` is milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to append; without `timestamp_ms` the log stamps it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's identity and shape; `topic_id` is Kafka's base64 form and differs after delete and re-create.

    `config` has all that was set; Kafka tells its defaults, too.
    """

    name: str
    topic_id: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The topic that a name stands for now.

    Attributes:
        topic_id: Kafka's base64 form; differs after delete and re-create.
        partition_count: partitions that it has.
        leaderless: partitions that cannot be looked at now.
        is_internal: whether it is one of Kafka's own.
    """

    topic_id: str
    partition_count: int
    leaderless: frozenset[int] = frozenset()
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition starts and ends: the end offset is that of the next record to come."""

    start_offset: int
    end_offset: int
    last_stable_offset: int

    def readable_end(self, isolation_level: IsolationLevel) -> int:
        """Where a read ends: at the last stable offset when it skips uncommitted transactions."""
        return self.last_stable_offset if isolation_level is IsolationLevel.READ_COMMITTED else self.end_offset


class Follower(Protocol):
    """Reads the tails of one topic's partitions, for one thread; made by `Log.follow`.

    Raises as the log's methods, and `UnknownTopicError` once the topic was deleted, or created again.
    """

    @property
    def positions(self) -> Mapping[int, int]:
        """Partition → offset of the next record that `take` may return."""
        ...

    def take(self, max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
        """Return records from the positions on, which move past them; block until there is one, or time is over.

        Records of a partition are in the order of their offsets. One record always fits. A position below the log's
        start moves to the start. Returns early, with what is there, after `wake`.
        """
        ...

    def wake(self) -> None:
        """Let the `take` at hand, or the next one, return without waiting; any thread may call it."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


@dataclass(frozen=True, slots=True)
class Growth:
    """The result of a wait for growth.

    Attributes:
        partitions: topic → partitions that may end past their position: look at their offsets.
        failures: topic → the error that ended the watch of its partitions.
    """

    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    failures: Mapping[str, ShareGroupError] = field(default_factory=dict)


class EndWatch(Protocol):
    """Watches where partitions of many topics end, for one thread; made by `Log.watch_ends`.

    It goes by topic names: a topic that was deleted, or created again, has to be forgotten.
    """

    def watch(self, topic: str, end_offsets: Mapping[int, int]) -> None:
        """Watch partitions, or watch them from other offsets on: each until it is returned by `wait`, once."""
        ...

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Watch partitions no more; those that are not watched are ignored."""
        ...

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown or failed; empty when the time is over, and after `wake`."""
        ...

    def wake(self) -> None:
        """Let the `wait` at hand, or the next one, return within some milliseconds; any thread may call it."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Log(Protocol):
    """A log that many processes append to and read at once; a context manager that closes itself.

    Every method may raise `LogUnavailableError` (trying again may help), `LogAccessDeniedError` and
    `LogCorruptedError` (it will not).
    """

    def create_topic(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None, if_not_exists: bool = False
    ) -> TopicDescription:
        """Create a topic; with `if_not_exists` describe the one that is there, whatever its partition count.

        In Kafka it gets the cluster's default replication factor.

        Raises:
            TopicExistsError: a topic of that name is there and `if_not_exists` is false.
            ConfigurationError: the name, the partition count or a configuration value is not acceptable.
        """
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records; raises `UnknownTopicError`."""
        ...

    def describe_topic(self, name: str) -> TopicDescription:
        """Describe one topic; raises `UnknownTopicError`."""
        ...

    def topics(self) -> list[TopicDescription]:
        """Describe all topics, by name."""
        ...

    def append(self, topic: str, partition: int, records: Sequence[NewRecord]) -> int:
        """Append records in their order, and return the first one's offset.

        Offsets are contiguous, and all records are appended or none, in the local log always, in Kafka up to a megabyte
        at once. After `LogUnavailableError` a Kafka log may have appended them or not. Without records it returns the
        end offset.

        Raises:
            RecordTooLargeError: the log takes no record of this size.
            UnknownTopicError: there is no such partition.
        """
        ...

    def append_all(self, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> list[int]:
        """Append (topic, partition, records) batches, in one transaction where the log can; first offset of each.

        A log that cannot (Kafka) appends topic by topic in the order of the batches: before a record of a later topic
        can be read, those of the earlier ones are there, and after an error some may be there. Raises as `append`.
        """
        ...

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return which topic has each name, or the error in the way, `UnknownTopicError` when there is none.

        An error with one topic keeps back no other. It raises what concerns the log as a whole.
        """
        ...

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        """Start and end offsets of all partitions, or of some that exist; raises `UnknownTopicError`.

        Args:
            topic: topic name.
            partitions: those to look at; None for all.
            timeout_ms: how long to go on trying; partitions that cannot be looked at in this time are left out. None
                for as long as any operation takes, and all partitions.
        """
        ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The lowest offset whose record's timestamp is at or after a time; the end offset when there is none.

        Raises `UnknownTopicError`.
        """
        ...

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
        """Read the records with start_offset <= offset < end_offset; offsets that do not exist are absent.

        `max_bytes` bounds keys, values and headers together, but one record always fits (KIP-74).
        Raises `UnknownTopicError`.
        """
        ...

    def follow(self, topic: str, positions: Mapping[int, int]) -> Follower:
        """Follow the tails of some partitions of a topic, with one waiting fetch, from these positions on.

        Raises `UnknownTopicError`.
        """
        ...

    def watch_ends(self) -> EndWatch:
        """Make a watch of the ends of partitions, which watches none yet."""
        ...

    def now_ms(self) -> int:
        """The log's time, milliseconds since the epoch: the stamp of a record appended now.

        It never goes back, and runs on while the clock of this machine is set back.
        """
        ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below an offset, which becomes the start offset unless that is higher already.

        Raises:
            OffsetOutOfRangeError: the offset is negative or past the end.
            UnknownTopicError: there is no such partition.
        """
        ...

    def close(self) -> None:
        """Give everything back; closing twice is fine, any other use afterwards raises `LogError`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
