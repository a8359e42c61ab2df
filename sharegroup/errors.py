"""Errors that this package raises deliberately.

Two families share one base: errors that travel in responses (`ApiError`, with Kafka's code and name), and errors that
end a process before it does harm (configuration, log, state table). All of them survive pickling: Spark sends them.
"""

from __future__ import annotations

from typing import ClassVar


class ShareGroupError(Exception):
    """Base of all errors of this package.

    Args:
        message: the problem: the field or object, its value, the bound.
        remedy: the next step for the reader; empty when there is none.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigurationError(ShareGroupError):
    """A configuration key is unknown, or its value is out of bounds."""


class MissingConfigurationError(ConfigurationError):
    """A required configuration key has no value.

    Attributes:
        key: the key; log.path where bootstrap.servers would do as well.
    """

    def __init__(self, message: str, remedy: str = "", key: str = "") -> None:
        super().__init__(message, remedy)
        self.key = key


class ContradictionError(ConfigurationError):
    """Values of several keys contradict each other, or a file that they name cannot be used."""


class EnvironmentNotReadyError(ShareGroupError):
    """Java, Python, the jars or a folder that is needed is missing, too old, or in use."""


class TemporaryFilesError(ShareGroupError):
    """Temporary files cannot be written or read: their disk is full or failed."""


class LogError(ShareGroupError):
    """A log (request, response or record log) cannot carry out an operation."""


class LogCorruptedError(LogError):
    """A local log file is not readable as a log."""


class LogUnavailableError(LogError):
    """The log did not respond in time; trying again may help."""


class LogLockedError(LogUnavailableError):
    """Another writer of an embedded log kept it locked for too long; nothing was changed."""


class LogAccessDeniedError(LogError):
    """The log denies this client access: an identity, a certificate or a permission is missing.

    Args:
        message: the denied operation, and its object.
        remedy: the next step for the reader.
        code: the log's own error code, Kafka's or librdkafka's; None where it has none.
    """

    def __init__(self, message: str, remedy: str = "", code: int | None = None) -> None:
        super().__init__(message, remedy)
        self.code = code


class RecordTooLargeError(LogError):
    """The record is larger than the log allows."""


class InvalidTimestampError(LogError):
    """The log refuses the timestamp of a record."""


class UnknownTopicError(LogError):
    """The topic, or the partition of it, does not exist in the log."""


class TopicExistsError(LogError):
    """A topic of that name already exists."""


class OffsetOutOfRangeError(LogError):
    """The offset lies outside the partition's log."""


class StateTableError(ShareGroupError):
    """The Delta state table cannot be read or written."""


class FencedProcessorError(StateTableError):
    """A processor with a higher leader epoch owns the state table; this one must stop."""


class ForeignCommitError(StateTableError):
    """Another program has changed files of the state table beside its processor; this one must stop."""


class SparkEndedError(ShareGroupError):
    """The Spark session, or its JVM, is not running any more."""


class ProcessorStoppedError(ShareGroupError):
    """The processor's query is not running, although no stop was requested."""


class HandlerFailedError(ShareGroupError):
    """A worker's handler fails, and accepts no record."""


class OlderStateError(StateTableError):
    """The state table lacks commits: it is an older copy than the request log, or another program removed rows."""


class PointOutsideHistoryError(StateTableError):
    """A point is before the first commit of the state table, after its last one, or pruned."""


class InputLineError(ShareGroupError):
    """A line of input is not a record in the requested format."""


class UnsupportedFormatVersionError(ShareGroupError):
    """Stored bytes carry a format version that this release cannot read."""


class KafkaRecordError(ShareGroupError):
    """Bytes do not follow the schema of Kafka's record, or a value does not fit into it."""


class SinkError(ShareGroupError):
    """The sink of a member is no Delta table, or cannot be read or written; its last commit may be in it."""


class SinkMissingError(SinkError):
    """There is no Delta table at the address of a sink."""


class WriteFencedError(SinkError):
    """The sink refuses a write, and has nothing of it: its records are delivered again."""


class UndecidedWriteError(SinkError):
    """Nobody can tell any more if a write is in its sink; an administrator decides."""


class GroupNotDrainedError(ShareGroupError):
    """Records of a group are still in flight, so that it cannot move without delivering some of them again."""


class IllegalTransitionError(ShareGroupError):
    """An event does not apply to a record in its present state; nothing changed."""


class ApiError(ShareGroupError):
    """An error that is returned to a client, with Kafka's code and name."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    default_message: ClassVar[str] = "The server experienced an unexpected error when processing the request."
    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(message or self.default_message, remedy)


class UnknownServerError(ApiError):
    """The request failed for a reason that has no name of its own."""


class UnknownTopicOrPartitionError(ApiError):
    """The share-partition's topic-partition does not exist."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    default_message = "This server does not host this topic-partition."
    retriable = True


class RequestTimedOutError(ApiError):
    """No response came before the deadline."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    default_message = "The request timed out."
    retriable = True


class MessageTooLargeError(ApiError):
    """The request or its response exceeds the maximum message size."""

    code = 10
    name = "MESSAGE_TOO_LARGE"
    default_message = "The request included a message larger than the max message size the server will accept."


class CoordinatorLoadInProgressError(ApiError):
    """The share-partition is still being initialised."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"
    default_message = "The coordinator is loading and hence can't process requests."
    retriable = True


class InvalidTopicError(ApiError):
    """A topic name that no topic can have."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"
    default_message = "The request attempted to perform an operation on an invalid topic."


class InvalidGroupIdError(ApiError):
    """The group id is empty."""

    code = 24
    name = "INVALID_GROUP_ID"
    default_message = "The group id is invalid."


class UnknownMemberIdError(ApiError):
    """The member is not in the group."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"
    default_message = "The coordinator is not aware of this member."


class GroupAuthorizationFailedError(ApiError):
    """The processor does not serve the group: it belongs to another domain."""

    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"
    default_message = "Not authorized to access group: Group authorization failed."


class UnsupportedVersionError(ApiError):
    """The API key or its version is not supported."""

    code = 35
    name = "UNSUPPORTED_VERSION"
    default_message = "The version of API is not supported."


class InvalidConfigError(ApiError):
    """A group configuration key or value is not acceptable."""

    code = 40
    name = "INVALID_CONFIG"
    default_message = "Configuration is invalid."


class InvalidRequestError(ApiError):
    """The request violates the protocol or contradicts the current state."""

    code = 42
    name = "INVALID_REQUEST"
    default_message = (
        "This most likely occurs because of a request being malformed by the client library or the message "
        "was sent to an incompatible broker."
    )


class NonEmptyGroupError(ApiError):
    """The operation needs a group without members."""

    code = 68
    name = "NON_EMPTY_GROUP"
    default_message = "The group is not empty."


class GroupIdNotFoundError(ApiError):
    """No share group of that id exists."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"
    default_message = "The group id does not exist."


class FencedLeaderEpochError(ApiError):
    """The request carries an older leader epoch than the one in force."""

    code = 74
    name = "FENCED_LEADER_EPOCH"
    default_message = "The leader epoch in the request is older than the epoch on the broker."
    retriable = True


class GroupMaxSizeReachedError(ApiError):
    """The group has as many members as `group.share.max.size` allows."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"
    default_message = "The group has reached its maximum size."


class UnknownTopicIdError(ApiError):
    """The group leads no share-partition of a topic with that id."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"
    default_message = "This server does not host this topic ID."
    retriable = True


class FencedMemberEpochError(ApiError):
    """The member epoch in the request is not the one in force."""

    code = 110
    name = "FENCED_MEMBER_EPOCH"
    default_message = (
        "The member epoch is fenced by the group coordinator. The member must abandon all its partitions and rejoin."
    )


class InvalidRecordStateError(ApiError):
    """A record is not acquired by the member that acknowledges it (KIP-932)."""

    code = 121
    name = "INVALID_RECORD_STATE"
    default_message = "The record state is invalid. The acknowledgement of delivery could not be completed."


class ShareSessionNotFoundError(ApiError):
    """The member has no open share session."""

    code = 122
    name = "SHARE_SESSION_NOT_FOUND"
    default_message = "The share session was not found."
    retriable = True


class InvalidShareSessionEpochError(ApiError):
    """The share-session epoch is not the next one."""

    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"
    default_message = "The share session epoch is invalid."
    retriable = True


class FencedStateEpochError(ApiError):
    """The request carries an older state epoch than the one stored."""

    code = 124
    name = "FENCED_STATE_EPOCH"
    default_message = "The share coordinator rejected the request because the share-group state epoch did not match."


class ShareSessionLimitReachedError(ApiError):
    """As many share sessions are open as `group.share.max.share.sessions` allows."""

    code = 133
    name = "SHARE_SESSION_LIMIT_REACHED"
    default_message = "The limit of share sessions has been reached."
    retriable = True


class GroupQuarantinedError(ApiError):
    """The group failed unexpectedly and waits for an administrator (an error of this package, without a Kafka code)."""

    code = 10000
    name = "GROUP_QUARANTINED"
    default_message = "The group is quarantined after an unexpected failure."


def _subclasses(cls: type[ApiError]) -> list[type[ApiError]]:
    return [cls, *(subclass for child in cls.__subclasses__() for subclass in _subclasses(child))]


API_ERRORS: dict[int, type[ApiError]] = {error.code: error for error in _subclasses(ApiError)}
"""Error code → error class: the catalogue of all errors a response can carry."""

API_ERRORS[-1] = UnknownServerError


def api_error(code: int, message: str = "") -> ApiError:
    """Return the error for a response's code; unknown codes become `UnknownServerError`."""
    return API_ERRORS.get(code, UnknownServerError)(message)
