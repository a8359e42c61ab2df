"""Retention: records of a log that are older than a time are deleted, as a Kafka broker does by itself."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.logs.port import Log

_OFFSETS_PER_STEP = 10_000
"""A step keeps everybody else from appending to the embedded log for some tens of milliseconds."""


def delete_older_records(
    log: Log, topic: str, before_ms: int, below: Mapping[int, int] | None = None, *, is_dry_run: bool = False
) -> int:
    """Delete the records of a topic whose timestamps are before a time, and all that precede them.

    Args:
        log: the log.
        topic: the topic.
        before_ms: the oldest timestamp that is kept.
        below: partition → offset from which on everything is kept; nothing is deleted of a partition that it does not
            name. None bounds nothing.
        is_dry_run: only tell what would be deleted.

    Returns:
        How many offsets the start offsets of the partitions move by.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    deleted = 0
    for partition, found in log.offsets(topic).items():
        end = log.offset_for_time(topic, partition, before_ms)
        if below is not None:
            end = min(end, below.get(partition, found.start_offset))
        deleted += max(0, end - found.start_offset)
        steps = [] if is_dry_run else range(found.start_offset + _OFFSETS_PER_STEP, end, _OFFSETS_PER_STEP)
        for step in (*steps, end):
            if step > found.start_offset and not is_dry_run:
                log.delete_records(topic, partition, step)
    return deleted
