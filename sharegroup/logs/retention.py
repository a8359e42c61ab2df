"""Retention: deletion of records that are older than a time, as a Kafka broker does by itself."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.logs.port import Log

_OFFSETS_PER_STEP = 10_000
"""Offsets deleted at once: a step blocks all other appends to the embedded log for some tens of milliseconds."""


def delete_older_records(
    log: Log, topic: str, before_ms: int, below: Mapping[int, int] | None = None, *, is_dry_run: bool = False
) -> int:
    """Delete the records of a topic whose timestamps are before a time, and all that precede them.

    Args:
        log: the log.
        topic: the topic.
        before_ms: the oldest timestamp that is kept; epoch ms.
        below: partition → offset from which on all records are kept; of partitions without an offset here nothing is
            deleted. None sets no limit.
        is_dry_run: only return the number of records that would be deleted.

    Returns:
        The number of offsets by which the start offsets of the partitions move.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    deleted = 0
    for partition, offsets in log.offsets(topic).items():
        end = log.offset_for_time(topic, partition, before_ms)
        if below is not None:
            end = min(end, below.get(partition, offsets.start_offset))
        deleted += max(0, end - offsets.start_offset)
        steps = [] if is_dry_run else range(offsets.start_offset + _OFFSETS_PER_STEP, end, _OFFSETS_PER_STEP)
        for step in (*steps, end):
            if step > offsets.start_offset and not is_dry_run:
                log.delete_records(topic, partition, step)
    return deleted
