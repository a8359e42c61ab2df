"""The small types that applications of confluent-kafka know, with the same names and methods.

A program that changes its import from confluent_kafka to this package keeps its `except` clauses and accessors.
"""

from __future__ import annotations

from typing import ClassVar

from sharegroup.errors import API_ERRORS, ApiError

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

ERRONEOUS_STATE = "Local: Erroneous state"
INVALID_ARGUMENT = "Local: Invalid argument or configuration"


_Text = str  # KafkaError has a method of the name `str`


class IllegalStateException(RuntimeError):  # noqa: N818 - confluent-kafka's name
    """A method was called in a state that does not allow it, such as on a closed consumer."""


class ConcurrentModificationException(RuntimeError):  # noqa: N818 - confluent-kafka's name
    """A share consumer was used by two threads at once."""


class WakeupException(RuntimeError):  # noqa: N818 - the Java client's name
    """`ShareConsumer.wakeup` ended a call early."""


class KafkaError:
    """An error as data; compares equal to its code.

    Args:
        error: Kafka's error code; codes below -1 are the client's own.
        reason: its text; the code's own text when None.
        fatal: whether the consumer cannot go on.
    """

    _FATAL: ClassVar[int] = -150
    _VALUE_DESERIALIZATION: ClassVar[int] = -159
    _KEY_DESERIALIZATION: ClassVar[int] = -160
    _STATE: ClassVar[int] = -172
    _TIMED_OUT: ClassVar[int] = -185
    _INVALID_ARG: ClassVar[int] = -186
    _TRANSPORT: ClassVar[int] = -195

    def __init__(self, error: int, reason: _Text | None = None, fatal: bool = False) -> None:
        self._code = error
        self._reason = reason
        self._fatal = fatal

    @classmethod
    def of(cls, error: ApiError) -> KafkaError:
        """The error that a response carried."""
        return cls(error.code, str(error))

    def code(self) -> int:
        """The error code."""
        return self._code

    def name(self) -> _Text:
        """The code's name, such as INVALID_RECORD_STATE; the client's own begin with an underscore."""
        if self._code in _LOCAL:
            return _LOCAL[self._code][0]
        return API_ERRORS[self._code].name if self._code in API_ERRORS else f"ERR_{self._code}"

    def str(self) -> _Text:
        """The text for people."""
        if self._reason is not None:
            return self._reason
        if self._code in _LOCAL:
            return _LOCAL[self._code][1]
        return API_ERRORS[self._code].default_message if self._code in API_ERRORS else f"Err-{self._code}?"

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self._code in API_ERRORS and API_ERRORS[self._code].retriable

    def fatal(self) -> bool:
        """Whether the consumer cannot go on."""
        return self._fatal

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, KafkaError) else other)

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> _Text:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'


_LOCAL: dict[int, tuple[str, str]] = {
    -150: ("_FATAL", "Local: Fatal error"),
    -159: ("_VALUE_DESERIALIZATION", "Local: Value deserialization error"),
    -160: ("_KEY_DESERIALIZATION", "Local: Key deserialization error"),
    -172: ("_STATE", ERRONEOUS_STATE),
    -185: ("_TIMED_OUT", "Local: Timed out"),
    -186: ("_INVALID_ARG", INVALID_ARGUMENT),
    -195: ("_TRANSPORT", "Local: Broker transport failure"),
}
"""The client's own codes → name and text, as in librdkafka."""


class KafkaException(Exception):  # noqa: N818 - confluent-kafka's name
    """Raised with a `KafkaError` as its first argument."""


class TopicPartition:
    """A partition of a topic; equal and hashed by topic and partition alone, as in confluent-kafka."""

    __slots__ = ("error", "leader_epoch", "offset", "partition", "topic")

    def __init__(self, topic: str, partition: int = -1, offset: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.leader_epoch: int | None = None
        self.error: KafkaError | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPartition) and (self.topic, self.partition) == (other.topic, other.partition)

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )
