"""Log events of a published commit: one line for the commit, and one for each rare event."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

from sharegroup.actor.effects import Undecodable
from sharegroup.core.record_state import Cause
from sharegroup.event_log import Event
from sharegroup.metrics.group_metrics import transition_counts
from sharegroup.processor.commit import Commit
from sharegroup.protocol.group_records import (
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
    group_record,
)
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow

logger = logging.getLogger("sharegroup.processor")

_STATUS_LINES = {
    GroupStatus.ACTIVE: (logging.INFO, "group_resumed"),
    GroupStatus.DEGRADED: (logging.WARNING, "group_degraded"),
    GroupStatus.FAILED: (logging.ERROR, "group_quarantined"),
}
"""Status → log level and event."""

Line = tuple[int, Event]
"""Log level and event."""


def log_commit(commit: Commit) -> None:
    """Log a published commit; one without rows, such as heartbeats, at level DEBUG."""
    rows = commit.rows()
    line = Event(
        "commit_published",
        commit=commit.commit_id,
        epoch=commit.position.leader_epoch,
        groups=len({output.group_id for output in commit.outputs}),
        messages=commit.message_count,
        rows=len(rows),
        commit_ms=None if commit.commit_id is None else round(commit.commit_ms),
    )
    of_rows = (_lines_of(row, commit.position.leader_epoch) for row in rows)
    for level, event in chain([(logging.INFO if rows else logging.DEBUG, line)], _undecodable(commit), *of_rows):
        logger.log(level, event)


def _undecodable(commit: Commit) -> Iterator[Line]:
    for output in commit.outputs:
        for effect in output.effects:
            if isinstance(effect, Undecodable):
                yield (
                    logging.WARNING,
                    Event(
                        "request_undecodable",
                        epoch=commit.position.leader_epoch,
                        partition=output.request_partition,
                        offset=effect.request_offset,
                        reason=effect.reason,
                    ),
                )


def _lines_of(row: StateRow, leader_epoch: int) -> Iterator[Line]:
    match row.record_type:
        case RecordType.GROUP_STATUS:
            yield _status(row, leader_epoch)
        case RecordType.GROUP_METADATA:
            yield from _members(row, leader_epoch)
        case RecordType.SHARE_SNAPSHOT | RecordType.SHARE_UPDATE | RecordType.SHARE_TRANSITIONS:
            yield from _share_partition(row, leader_epoch)
        case RecordType.SHARE_TOMBSTONE:
            yield logging.INFO, Event("share_partition_deleted", **_share_partition_fields(row, leader_epoch))


def _status(row: StateRow, leader_epoch: int) -> Line:
    payload = GroupStatusPayload.model_validate(row.payload)
    level, name = _STATUS_LINES[payload.status]
    return level, Event(
        name,
        group=row.group_id,
        epoch=leader_epoch,
        actor=payload.role.value,
        reason=payload.reason,
    )


def _members(row: StateRow, leader_epoch: int) -> Iterator[Line]:
    records = [group_record(fields) for fields in row.payload.get("records", [])]
    group_epoch = next((record.epoch for record in records if isinstance(record, ShareGroupMetadata)), None)
    fields = {"group": row.group_id, "epoch": leader_epoch, "group_epoch": group_epoch}
    for record in records:
        match record:
            case ShareGroupMemberMetadata():
                topics = ",".join(record.subscribed_topic_names)
                client_id = record.client_id or None
                yield (
                    logging.INFO,
                    Event("member_subscribed", **fields, member=record.member_id, client=client_id, topics=topics),
                )
            case ShareGroupMemberRemoved():
                yield logging.INFO, Event("member_removed", **fields, member=record.member_id, reason=record.reason)
            case ShareGroupRemoved():
                yield logging.INFO, Event("group_removed", **fields, reason=record.reason)


def _share_partition(row: StateRow, leader_epoch: int) -> Iterator[Line]:
    def line(level: int, name: str, **fields: object) -> Line:
        return level, Event(name, **_share_partition_fields(row, leader_epoch), **fields)

    counts = transition_counts(row)
    # A snapshot that replaces an update is no initialization.
    is_snapshot = row.record_type is RecordType.SHARE_SNAPSHOT
    if is_snapshot and not any(entry.is_persisted_by_kafka for entry in row.transitions):
        yield line(logging.INFO, "share_partition_initialized", start_offset=row.start_offset)
    if timeouts := counts.by_cause[Cause.LOCK_TIMEOUT]:
        yield line(logging.WARNING, "acquisition_lock_timeout", records=timeouts)
    if counts.given_up:
        yield line(logging.WARNING, "delivery_count_limit_reached", records=counts.given_up)
    if redriven := counts.by_cause[Cause.REDRIVE]:
        yield line(logging.INFO, "records_redriven", records=redriven)
    if not logger.isEnabledFor(logging.DEBUG):
        return
    changed = {cause.value: count for cause, count in counts.by_cause.items()}
    yield line(logging.DEBUG, "share_partition_changed", start_offset=row.start_offset, **changed)


def _share_partition_fields(row: StateRow, leader_epoch: int) -> dict[str, object]:
    return {
        "group": row.group_id,
        "share_partition": f"{row.topic}-{row.partition}",
        "epoch": leader_epoch,
        "state_epoch": row.state_epoch,
    }
