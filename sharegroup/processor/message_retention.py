"""The messages between members and the processor: kept for as long as an audit may ask for them, then deleted."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.local import LocalLog
from sharegroup.logs.open import open_log
from sharegroup.logs.port import Log
from sharegroup.state.reader import StateTableReader

SHORTEST_RETENTION_MS = 3_600_000
"""However short the audit retention is, messages stay for an hour: a member may not have read its responses yet."""

_OFFSETS_PER_STEP = 10_000
"""Offsets deleted at once: a step blocks all other appends to the embedded log for some tens of milliseconds."""


def delete_old_messages(config: ProcessorConfig, now_ms: int, *, is_dry_run: bool = False) -> int:
    """Delete requests and responses that are older than the audit retention.

    Requests stay from the last table snapshot on, and all of them until a commit follows it.

    Args:
        config: where the log and the state table are, and the audit retention.
        now_ms: present time; epoch ms.

    Returns:
        How many messages; 0 when there is no embedded log, since a broker keeps to the retention of its topics itself.

    Raises:
        StateTableError: there is no state table, or it cannot be read.
        LogUnavailableError, LogCorruptedError: the log cannot be read or written.
    """
    recovery = StateTableReader(config.state_table_path).recovery(group_id="")
    if config.log_path is None or not config.log_path.exists() or recovery.last_marker is None:
        return 0
    is_followed = recovery.snapshot_marker is not None and recovery.snapshot_marker != recovery.last_marker
    applied = recovery.snapshot_marker.end_offsets if recovery.snapshot_marker and is_followed else {}
    before_ms = now_ms - max(config.audit_retention_ms, SHORTEST_RETENTION_MS)
    with open_log(str(config.log_path), must_exist=True) as log:
        requests = delete_older_records(log, config.request_topic_name, before_ms, applied, is_dry_run=is_dry_run)
        responses = delete_older_records(log, config.response_topic_name, before_ms, is_dry_run=is_dry_run)
    return requests + responses


def delete_expired_records(config: ProcessorConfig, *, is_dry_run: bool = False) -> int:
    """Delete the records of the embedded log that are past the retention of their topics.

    Appends do it now and then; this is for topics without appends.

    Returns:
        How many; 0 when there is no embedded log.

    Raises:
        LogUnavailableError, LogCorruptedError: the log cannot be read or written.
    """
    if config.log_path is None or not config.log_path.exists():
        return 0
    with LocalLog(config.log_path, must_exist=True) as log:
        return sum(log.delete_expired(topic.name, is_dry_run=is_dry_run) for topic in log.topics())


def delete_older_records(
    log: Log, topic: str, before_ms: int, below: Mapping[int, int] | None = None, *, is_dry_run: bool = False
) -> int:
    """Delete the records of a topic whose timestamps are before a time, and all that precede them.

    Args:
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
