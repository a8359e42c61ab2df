"""Exceptions of confluent-kafka, which applications already catch: for this package's errors, and for misuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from sharegroup.errors import (
    ApiError,
    ConfigurationError,
    ContradictionError,
    LogAccessDeniedError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    ShareGroupError,
    SinkError,
    UnknownTopicError,
)

__all__ = [
    "ERRONEOUS_STATE",
    "INVALID_ARGUMENT",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConcurrentModificationException",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "TopicPartition",
    "WakeupException",
    "as_kafka_exception",
    "construction_error",
    "kafka_exception",
    "max_poll_exceeded",
]

ERRONEOUS_STATE = "Local: Erroneous state"
INVALID_ARGUMENT = "Local: Invalid argument or configuration"

_CODES: tuple[tuple[type[ShareGroupError], int], ...] = (
    (LogUnavailableError, KafkaError._TRANSPORT),
    (UnknownTopicError, KafkaError.UNKNOWN_TOPIC_OR_PART),
    (OffsetOutOfRangeError, KafkaError.OFFSET_OUT_OF_RANGE),
    (ConfigurationError, KafkaError._INVALID_ARG),
)
"""Error classes without a code of their own, and librdkafka's code for each; `_FATAL` is the code of all others."""


class WakeupException(RuntimeError):  # noqa: N818 - the Java client's name
    """`ShareConsumer.wakeup` ended a call early."""


@contextmanager
def as_kafka_exception(is_ended: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Translate errors of this package into confluent-kafka's, with the original as their cause.

    Errors of a sink stay as they are: Kafka has none.

    Args:
        is_ended: returns True if the consumer cannot continue, which makes the error a fatal one.
    """
    try:
        yield
    except SinkError:
        raise
    except ShareGroupError as error:
        raise kafka_exception(error, is_ended()) from error


def kafka_exception(error: ShareGroupError, is_fatal: bool = False) -> KafkaException:
    """Return confluent-kafka's exception for an error of this package."""
    code = _code(error)
    if isinstance(error, ApiError) and is_fatal:
        return KafkaException(KafkaError(code, f"ShareGroupHeartbeat fatal error: {error}", fatal=True))
    is_retriable = isinstance(error, LogUnavailableError) or (isinstance(error, ApiError) and error.retriable)
    return KafkaException(
        KafkaError(code, str(error), fatal=is_fatal or code == KafkaError._FATAL, retriable=is_retriable)
    )


def construction_error(error: ConfigurationError) -> KafkaException | ValueError:
    """Return confluent-kafka's exception for a configuration that a consumer cannot be made of.

    A wrong key or value is a KafkaException, a contradiction between them a ValueError.
    """
    if isinstance(error, ContradictionError):
        return ValueError(f"Failed to create share consumer: {error}")
    return kafka_exception(error)


def max_poll_exceeded(interval_ms: int, silent_ms: int) -> KafkaException:
    """Return confluent-kafka's exception for an application that polled too late."""
    text = (
        f"Application maximum poll interval ({interval_ms}ms) exceeded by {silent_ms - interval_ms}ms "
        "(adjust max.poll.interval.ms for long-running message processing): left the group, and joins it again"
    )
    return KafkaException(KafkaError(KafkaError._MAX_POLL_EXCEEDED, text))


def _code(error: ShareGroupError) -> int:
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, LogAccessDeniedError) and error.code is not None:
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), KafkaError._FATAL)
