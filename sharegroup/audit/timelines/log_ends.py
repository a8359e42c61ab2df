"""The end of a share-partition's log over time, which the state table does not have."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from sharegroup.audit.timelines.time_axis import TimeAxis
from sharegroup.errors import LogError, UnknownTopicError
from sharegroup.logs.port import Log

MAX_SAMPLES = 120
"""Reads of the log for each share-partition: the embedded log reads up to each time."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The end of a log over time.

    Attributes:
        samples: time in epoch ms and end offset at that time, ascending.
        reason: why there are none, or not from the beginning; "" when all are there.
    """

    samples: tuple[tuple[int, int], ...]
    reason: str = ""

    def at(self, time_ms: int) -> int | None:
        """Return the end at the last sample up to a time; None before the first one."""
        index = bisect_right(self.samples, time_ms, key=lambda sample: sample[0])
        return self.samples[index - 1][1] if index else None


def log_ends(log: Log, topic: str, topic_id: str, partition: int, axis: TimeAxis) -> LogEnds:
    """Return the end of a log at times of the axis, by the timestamps of its records.

    A record's timestamp is its producer's, unless the topic is `LogAppendTime`. Ends below the present start of the log
    are left out: the records that show them are deleted.
    """
    try:
        if log.describe_topic(topic).topic_id != topic_id:
            return LogEnds((), f"Topic {topic} was deleted and created again: its log is another one.")
        log_start_offset = log.offsets(topic, [partition])[partition].start_offset
        step_ms = max(axis.until_ms - axis.since_ms, 0) // MAX_SAMPLES + 1
        # After the last time come those that are within its ms.
        times_ms = [*range(axis.since_ms, axis.until_ms, step_ms), axis.until_ms]
        samples = [(time_ms, log.offset_for_time(topic, partition, time_ms + 1)) for time_ms in times_ms]
    except (UnknownTopicError, KeyError):
        return LogEnds((), f"Partition {topic}-{partition} is no longer in the log.")
    except LogError as error:
        return LogEnds((), f"The log cannot be read: {error.message}")
    known = tuple(sample for sample in samples if sample[1] > log_start_offset or not log_start_offset)
    reason = "" if len(known) == len(samples) else "Records of earlier times were deleted from the log."
    return LogEnds(known, reason)
