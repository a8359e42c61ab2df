"""The plan of an offset reset: new start offsets of share-partitions, computed from the log before the request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets

OffsetPlan = dict[tuple[str, int], int]
"""(topic, partition) → new start offset."""


class ResetTo(StrEnum):
    """The ways to choose a new start offset; the values are the flags of Kafka's tools."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    DATETIME = "to-datetime"
    OFFSET = "to-offset"


@dataclass(frozen=True, slots=True)
class ResetPoint:
    """A position in each partition of a log.

    Attributes:
        value: epoch ms for a datetime, the offset for an offset; 0 otherwise.
    """

    to: ResetTo
    value: int = 0


@dataclass(frozen=True, slots=True)
class TopicScope:
    """Partitions of a topic.

    Attributes:
        partitions: None is all of them.
    """

    topic: str
    partitions: tuple[int, ...] | None = None

    @classmethod
    def parsed(cls, text: str) -> TopicScope:
        """Parse `topic` or `topic:0,1,2`, as Kafka's tools do.

        Raises:
            ConfigurationError: the text has another form.
        """
        topic, colon, numbers = text.partition(":")
        if not colon:
            return cls(topic)
        try:
            return cls(topic, tuple(int(number) for number in numbers.split(",")))
        except ValueError:
            raise ConfigurationError(
                f"The partitions of --topic {text} are no list of numbers.", "Write it as orders, or as orders:0,1,2."
            ) from None


def epoch_ms(text: str) -> int:
    """Parse `YYYY-MM-DDThh:mm:ss.sss`, with or without an offset, to epoch milliseconds; UTC without one.

    Raises:
        ConfigurationError: it is no datetime.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no datetime.", "Write it as YYYY-MM-DDThh:mm:ss.sss, in UTC or with its offset."
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def planned_offsets(log: Log, scopes: Iterable[TopicScope], point: ResetPoint) -> OffsetPlan:
    """Return the new start offset of each partition in scope.

    Raises:
        UnknownTopicError: the log has no such topic or partition.
    """
    plan: OffsetPlan = {}
    for scope in scopes:
        known = log.offsets(scope.topic)
        for partition in known if scope.partitions is None else scope.partitions:
            if partition not in known:
                raise UnknownTopicError(
                    f"Topic {scope.topic} has no partition {partition}; it has {len(known)}, from 0 on."
                )
            plan[scope.topic, partition] = _offset(log, scope.topic, partition, known[partition], point)
    return plan


def _offset(log: Log, topic: str, partition: int, known: PartitionOffsets, point: ResetPoint) -> int:
    match point.to:
        case ResetTo.EARLIEST:
            return known.start_offset
        case ResetTo.LATEST:
            return known.end_offset
        case ResetTo.DATETIME:
            return log.offset_for_time(topic, partition, point.value)
        case ResetTo.OFFSET:
            return point.value
