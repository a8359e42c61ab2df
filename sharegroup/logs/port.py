"""The log port: the interface of a log, which is Kafka or a local file.

A log holds topics, a topic holds partitions, a partition holds records at ascending offsets. An offset is
assigned once and never again; offsets may be missing (compaction, deletion), so readers use `LogRecord.offset`
and never count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import confluent_kafka

from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import ShareGroupError
from sharegroup.logs.life_signs import LifeSigns, MemberHelper
from sharegroup.logs.member_life import MemberLock, MemberLocks

Headers = tuple[tuple[str, bytes | None], ...]
"""Record headers in their order; a key may occur more than once."""

LogMessage = confluent_kafka.Message
"""A record as `Log.read_messages` returns it: in the memory of the C client, with its accessors."""

ENDLESS_MS = 2**31 - 1
"""Timeout of operations for programs that can only wait until the log is back: 24 days."""


class LogRecord(NamedTuple):
    """A record of the log; `timestamp_ms` is milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        """Size of key, value and headers."""
        return _size_bytes(self.key, self.value, self.headers)


class NewRecord(NamedTuple):
    """A record to append; without `timestamp_ms` the log stamps it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """Size of key, value and headers."""
        return _size_bytes(self.key, self.value, self.headers)


def _size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    return len(key or b"") + len(value or b"") + sum(len(name) + len(content or b"") for name, content in headers)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's identity and shape; `topic_id` is Kafka's base64 form and differs after delete and re-create.

    `config` has all values that were set; for Kafka also its defaults.
    """

    name: str
    topic_id: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The topic that has a name now.

    Attributes:
        topic_id: Kafka's base64 form; differs after delete and re-create.
        leaderless: partitions that cannot be read now.
        is_internal: True for Kafka's own topics.
    """

    topic_id: str
    partition_count: int
    leaderless: frozenset[int] = frozenset()
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Start and end of a partition; the end offset is that of the next record to be appended."""

    start_offset: int
    end_offset: int
    last_stable_offset: int

    def readable_end(self, isolation_level: IsolationLevel) -> int:
        """Return the end of a read: the last stable offset when it skips uncommitted transactions."""
        return self.last_stable_offset if isolation_level is IsolationLevel.READ_COMMITTED else self.end_offset


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Offsets of a partition to read.

    Attributes:
        end_offset: end, exclusive.
        known_end_offset: the log is known to have grown up to here: a read that meets an earlier end continues.
    """

    start_offset: int
    end_offset: int
    known_end_offset: int = 0


class Follower(Protocol):
    """Reads the tails of one topic's partitions, for one thread; made by `Log.follow`.

    Raises the errors of the log's methods, and `UnknownTopicError` once the topic was deleted or created again.
    """

    @property
    def positions(self) -> Mapping[int, int]:
        """Return partition → offset of the next record that `take` may return."""
        ...

    def take(self, max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
        """Return records from the positions on, and move these past them; block until there is one, or time is over.

        Records of a partition are in the order of their offsets. One record always fits. A position below the log's
        start moves to the start. After `wake` it returns early, with the records that are there.
        """
        ...

    def wake(self) -> None:
        """End the current or the next `take` early; any thread may call it."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


@dataclass(frozen=True, slots=True)
class Growth:
    """The result of a wait for growth.

    Attributes:
        partitions: topic → partitions that may end past their position; the caller reads their offsets.
        failures: topic → the error that ended the watch of its partitions.
    """

    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    failures: Mapping[str, ShareGroupError] = field(default_factory=dict)


class EndWatch(Protocol):
    """Watches the ends of partitions of many topics, for one thread; made by `Log.watch_ends`.

    Topics are known by name: a topic that was deleted or created again has to be forgotten.
    """

    def watch(self, topic: str, end_offsets: Mapping[int, int]) -> None:
        """Watch partitions, or watch them from other offsets on; `wait` returns each once."""
        ...

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Stop watching partitions; those that are not watched are ignored."""
        ...

    def wait(self, timeout_ms: int) -> Growth:
        """Block until watched partitions have grown or failed; return no result at the timeout and after `wake`."""
        ...

    def wake(self) -> None:
        """Let the current or the next `wait` return within some milliseconds; any thread may call it."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class Log(Protocol):
    """A log that many processes append to and read at once; a context manager that closes itself.

    Every method may raise `LogUnavailableError` (a retry may help), `LogAccessDeniedError` and
    `LogCorruptedError` (a retry does not help).
    """

    def create_topic(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None, if_not_exists: bool = False
    ) -> TopicDescription:
        """Create a topic; with `if_not_exists` describe an existing one, whatever its partition count.

        In Kafka it gets the cluster's default replication factor.

        Raises:
            TopicExistsError: a topic of that name exists, and `if_not_exists` is false.
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

    def append(self, topic: str, partition: int, records: Sequence[NewRecord], *, may_repeat: bool = False) -> int:
        """Append records in their order, and return the first one's offset.

        Offsets are contiguous, and all records are appended or none, in the local log always, in Kafka up to a megabyte
        at once. After `LogUnavailableError` a Kafka log may have appended them or not. Without records it returns the
        end offset. Where it does no harm that records are appended twice after a lost connection (`may_repeat`), the
        first append to Kafka is half a second faster.

        Raises:
            RecordTooLargeError: a record is larger than the log accepts.
            UnknownTopicError: there is no such partition.
        """
        ...

    def append_all(self, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> list[int]:
        """Append (topic, partition, records) batches, in one transaction if possible; return the first offset of each.

        A log without transactions (Kafka) appends topic by topic in the order of the batches: before a record of a
        later topic can be read, those of the earlier ones are appended; after an error some may be. Raises as `append`.
        """
        ...

    def identify(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicIdentity | ShareGroupError]:
        """Return the identity of each topic, or its error: `UnknownTopicError` when it does not exist.

        An error of one topic does not affect the others. Errors of the log as a whole are raised.
        """
        ...

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, timeout_ms: int | None = None
    ) -> dict[int, PartitionOffsets]:
        """Return start and end offsets of all partitions, or of some that exist; raises `UnknownTopicError`.

        Args:
            partitions: partitions to read; None for all.
            timeout_ms: how long to retry; partitions that cannot be reached in this time are left out. None for the
                timeout of any operation, and all partitions.
        """
        ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Return the lowest offset whose timestamp is at or after a time; the end offset when there is none.

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

    def read_messages(
        self,
        topic: str,
        topic_id: str,
        spans: Mapping[int, OffsetSpan],
        max_bytes: int,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, list[LogMessage]]:
        """Read the first records of a span of each partition, as messages of confluent-kafka.

        A partition without messages had none at the time of the read, or its first ones were deleted. A partition that
        does not respond is left out: if others do, after a second, otherwise as soon as it is known to have no leader,
        or one that does not respond to this client.
        With a known end, one whose first records were deleted is left out, too.

        Args:
            topic_id: the expected topic; the caller checks that it still has the name.
            spans: partition → offsets.
            max_bytes: bytes of values of one partition after which no more are fetched.
            isolation_level: READ_UNCOMMITTED includes the records of open and aborted transactions.

        Raises:
            UnknownTopicError: there is no such topic or partition.
        """
        ...

    def follow(self, topic: str, positions: Mapping[int, int]) -> Follower:
        """Follow the tails of some partitions of a topic, with one waiting fetch, from these positions on.

        Raises `UnknownTopicError`.
        """
        ...

    def watch_ends(self) -> EndWatch:
        """Create a watch of the ends of partitions, which watches none yet."""
        ...

    def lock_member(self, group_id: str, member_id: str) -> MemberLock | None:
        """Hold a lock that ends with this process, so that the processor detects its end; None without locks.

        Raises:
            LogUnavailableError: the lock cannot be taken.
        """
        ...

    def help_member(self, signs: LifeSigns) -> MemberHelper | None:
        """Let another process speak for a member; None if `lock_member` shows its process's end, or none can log in."""
        ...

    def member_locks(self) -> MemberLocks | None:
        """Return the locks of all members; None without locks."""
        ...

    def now_ms(self) -> int:
        """Return the log's time, milliseconds since the epoch: the stamp of a record appended now.

        It never goes back, and continues while the clock of this machine is set back.
        """
        ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete all records below an offset, which becomes the start offset unless that is higher already.

        Raises:
            OffsetOutOfRangeError: the offset is negative or past the end.
            UnknownTopicError: there is no such partition.
        """
        ...

    def limited(self, timeout_ms: int) -> AbstractContextManager[None]:
        """Bound the time of all operations of this thread together, where they may wait for a network."""
        ...

    def close(self) -> None:
        """Release all resources; a second close does nothing, any other use afterwards raises `LogError`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
