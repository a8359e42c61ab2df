"""Translation of confluent-kafka's errors into this package's."""

from __future__ import annotations

from confluent_kafka import KafkaError

from sharegroup.errors import (
    ConfigurationError,
    InvalidTimestampError,
    LogAccessDeniedError,
    LogError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    ShareGroupError,
    TopicExistsError,
    UnknownTopicError,
)

_TRANSIENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY,  # the client has ended its connection to a broker, as when a topic is deleted
        KafkaError._DESTROY_BROKER,  # a broker has left the client's metadata, as when it restarts
        KafkaError._MSG_TIMED_OUT,
        KafkaError._NOENT,  # no leader is known for a partition
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
AUTHENTICATION = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
"""Codes of a refused log-in: a retry does not help."""

_SSL_FAILURES = frozenset({KafkaError._SSL, KafkaError._TRANSPORT})

_DENIED = AUTHENTICATION | {
    KafkaError._SSL,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.SECURITY_DISABLED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}

UNKNOWN_TOPIC = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Codes of an unknown topic or partition."""

_NOT_ACCEPTABLE = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)

_KINDS: tuple[tuple[frozenset[int], type[ShareGroupError], str], ...] = (
    (
        _DENIED,
        LogAccessDeniedError,
        "Check security.protocol, the sasl.* and ssl.* settings, and the rights that the brokers grant this user.",
    ),
    (UNKNOWN_TOPIC, UnknownTopicError, "Create it, or check the name and bootstrap.servers."),
    (_NOT_ACCEPTABLE, ConfigurationError, "Change the topic's name, partition count or configuration."),
    (frozenset({KafkaError.TOPIC_ALREADY_EXISTS}), TopicExistsError, "Choose another name or delete it."),
    (frozenset({KafkaError.OFFSET_OUT_OF_RANGE}), OffsetOutOfRangeError, "Give an offset that the partition has."),
    (
        frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}),
        RecordTooLargeError,
        "Send less at once, or raise the topic's max.message.bytes.",
    ),
    (
        frozenset({KafkaError.INVALID_TIMESTAMP}),
        InvalidTimestampError,
        "Set this machine's clock right, or the topic's message.timestamp.type to LogAppendTime.",
    ),
)


def is_transient(error: KafkaError) -> bool:
    """Return True if a retry may help.

    A controller that has not heard from its brokers for a while fences them, and refuses a new topic with the code of
    an invalid replication factor until one registers again: only the text tells that case.
    """
    is_fenced = error.code() == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in error.str()
    return is_fenced or (error.code() in _TRANSIENT and not _is_distrust(error))


def _is_distrust(error: KafkaError) -> bool:
    """Return True if a broker's certificate was refused.

    librdkafka reports that as a failed handshake or, when it sees the alert later, as a lost connection.
    """
    return error.code() in _SSL_FAILURES and "certificate verify failed" in error.str()


def translated(error: KafkaError, what: str) -> ShareGroupError:
    """Return this package's error for one of Kafka's.

    Args:
        error: the error of the client or the broker; must hold no secret.
        what: the failed action, as the beginning of a sentence, such as "Kafka at host:9092 cannot append to
            partition orders-0".
    """
    if is_transient(error):
        return LogUnavailableError(
            f"{what}: {error.str()}.", "Check bootstrap.servers and that the brokers run, and try again."
        )
    code = KafkaError._SSL if _is_distrust(error) else error.code()
    for codes, kind, remedy in _KINDS:
        if code in codes:
            log_error = kind(f"{what}: {error.str()}.", remedy)
            if isinstance(log_error, LogAccessDeniedError):
                log_error.code = code
            return log_error
    return LogError(f"{what}: {error.str()} ({error.name()}).")
