"""Errors of this package as the exceptions that applications of confluent-kafka know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sharegroup.client.kafka_types import KafkaError, KafkaException
from sharegroup.errors import ApiError, GroupQuarantinedError, LogUnavailableError, ShareGroupError


@contextmanager
def as_kafka_exception() -> Iterator[None]:
    """Let errors of this package leave as confluent-kafka's kind, with the original as their cause."""
    try:
        yield
    except ApiError as error:
        is_fatal = not isinstance(error, GroupQuarantinedError)
        reason = f"ShareGroupHeartbeat {'fatal ' if is_fatal else ''}error: {error}"
        raise KafkaException(KafkaError(error.code, reason, is_fatal)) from error
    except LogUnavailableError as error:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error))) from error
    except ShareGroupError as error:
        raise KafkaException(KafkaError(KafkaError._FATAL, str(error), True)) from error


def exception_of(error: ApiError | None) -> KafkaException | None:
    """The exception for the result of an acknowledgement; None for success."""
    return None if error is None else KafkaException(KafkaError.of(error))
