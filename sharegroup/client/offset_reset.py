"""The plan of an offset reset: new start offsets of share-partitions, computed from the log before the request."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.port import Log, PartitionOffsets

OffsetPlan = dict[tuple[str, int], int]
"""(topic, partition) → new start offset."""

_WITHOUT_GROUP, _WITH_GROUP = 3, 4
"""Columns of a file of offsets."""


class ResetTo(StrEnum):
    """The ways to choose a new start offset; the values are the flags of Kafka's tools."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    CURRENT = "to-current"
    DATETIME = "to-datetime"
    OFFSET = "to-offset"
    FILE = "from-file"


@dataclass(frozen=True, slots=True)
class ResetPoint:
    """A position in each partition of a log.

    Attributes:
        value: epoch ms for a datetime, the offset for an offset; 0 otherwise.
        offsets: the group's present start offsets, or those of a file; empty otherwise.
    """

    to: ResetTo
    value: int = 0
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


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


def planned_offsets(
    log: Log, scopes: Iterable[TopicScope], point: ResetPoint, warn: Callable[[str], None]
) -> OffsetPlan:
    """Return the new start offset of each partition in scope.

    An offset of a flag or a file that the log does not have becomes the nearest one that it has, as in Kafka's tools.

    Args:
        warn: called with a sentence for each such offset.

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
            wanted = _offset(log, scope.topic, partition, known[partition], point)
            offset = min(max(wanted, known[partition].start_offset), known[partition].end_offset)
            if point.to is ResetTo.CURRENT:
                # Nothing moves: records below the start of the log are no reason to change the state.
                offset = wanted
            elif offset != wanted:
                bound = "higher than the latest" if wanted > offset else "lower than the earliest"
                warn(f"New offset {wanted} is {bound} offset of {scope.topic}-{partition}. It is set to {offset}.")
            plan[scope.topic, partition] = offset
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
        case ResetTo.CURRENT | ResetTo.FILE:
            return point.offsets.get((topic, partition), known.end_offset)


def exported(plan: OffsetPlan) -> str:
    """Return a plan as Kafka's tools export it: a line `topic,partition,offset` for each partition, sorted."""
    return "".join(f"{topic},{partition},{offset}\n" for (topic, partition), offset in sorted(plan.items()))


def imported(text: str, group_id: str) -> OffsetPlan:
    """Return the plan of a group in a file that Kafka's tools have exported, or `exported` has.

    Args:
        text: lines of `topic,partition,offset`; or of `group,topic,partition,offset`, of which the group's count.

    Raises:
        ConfigurationError: a line has another form, a partition has two offsets, or no line is of the group.
    """
    plan: OffsetPlan = {}
    lines = [line for line in csv.reader(text.splitlines()) if line]
    width = len(lines[0]) if lines else 0
    for number, line in enumerate(lines, start=1):
        fields = line[1:] if width == _WITH_GROUP else line
        if len(line) != width or width not in (_WITHOUT_GROUP, _WITH_GROUP) or not all(map(str.isdecimal, fields[1:])):
            raise ConfigurationError(
                f"Line {number} of the offsets, {','.join(line)!r}, is no topic, partition and offset.",
                "Write it as topic,partition,offset, or all lines with the group before them.",
            )
        topic, partition, offset = fields[0], int(fields[1]), int(fields[2])
        if width == _WITH_GROUP and line[0] != group_id:
            continue
        if plan.setdefault((topic, partition), offset) != offset:
            raise ConfigurationError(
                f"Line {number} of the offsets has a second offset of {topic}-{partition}, {offset}.", "Leave one."
            )
    if not plan:
        raise ConfigurationError(f"The file has no offsets of group {group_id}.", "Name another file, or group.")
    return plan


def scopes_of(plan: OffsetPlan) -> list[TopicScope]:
    """Return the topics of a plan with their partitions, sorted."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(plan):
        partitions.setdefault(topic, []).append(partition)
    return [TopicScope(topic, tuple(of_topic)) for topic, of_topic in partitions.items()]
