"""Events of a published commit: one line for the commit, and one for each thing that does not happen every day."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from sharegroup.actor.effects import Undecodable
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.event_log import Event
from sharegroup.processor.commit import Commit
from sharegroup.protocol.group_records import (
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
    group_record,
)
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow

logger = logging.getLogger("sharegroup.processor")

_RETRY_CAUSES = (Cause.RELEASE, Cause.LOCK_TIMEOUT, Cause.SESSION_CLOSE)
"""Causes after which a record is delivered again, unless it was delivered too often."""

_STATUS_LINES = {
    GroupStatus.ACTIVE: (logging.INFO, "group_resumed"),
    GroupStatus.DEGRADED: (logging.WARNING, "group_degraded"),
    GroupStatus.FAILED: (logging.ERROR, "group_quarantined"),
}
"""Status → level and event."""

Line = tuple[int, Event]
"""Level and event."""


def log_commit(commit: Commit) -> None:
    """Log a published commit; one without rows, such as heartbeats, at level DEBUG."""
    rows = list(commit.rows())
    line = Event(
        "commit_published",
        commit=commit.commit_id,
        epoch=commit.leader_epoch,
        groups=len({group.group_id for group in commit.groups}),
        messages=commit.message_count,
        rows=len(rows),
        commit_ms=None if commit.commit_id is None else round(commit.commit_ms),
    )
    of_rows = (_lines_of(row, commit.leader_epoch) for row in rows)
    for level, event in chain([(logging.INFO if rows else logging.DEBUG, line)], _undecodable(commit), *of_rows):
        logger.log(level, event)


def _undecodable(commit: Commit) -> Iterator[Line]:
    for group in commit.groups:
        for effect in group.effects:
            if isinstance(effect, Undecodable):
                yield (
                    logging.WARNING,
                    Event(
                        "request_undecodable",
                        epoch=commit.leader_epoch,
                        partition=group.request_partition,
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

    counts: Counter[Cause] = Counter()
    over_limit = 0
    for entry in row.transitions:
        size = entry.last_offset - entry.first_offset + 1
        counts[entry.cause] += size
        if entry.cause in _RETRY_CAUSES and entry.to_state is not RecordState.AVAILABLE:
            over_limit += size
    # A snapshot in place of an update is no initialization.
    is_persisted = any(entry.transition.is_persisted_by_kafka for entry in row.transitions)
    if row.record_type is RecordType.SHARE_SNAPSHOT and not is_persisted:
        yield line(logging.INFO, "share_partition_initialized", start_offset=row.start_offset)
    if counts[Cause.LOCK_TIMEOUT]:
        yield line(logging.WARNING, "acquisition_lock_timeout", records=counts[Cause.LOCK_TIMEOUT])
    if over_limit:
        yield line(logging.WARNING, "delivery_count_limit_reached", records=over_limit)
    changed = {cause.value: count for cause, count in counts.items()}
    yield line(logging.DEBUG, "share_partition_changed", start_offset=row.start_offset, **changed)


def _share_partition_fields(row: StateRow, leader_epoch: int) -> dict[str, object]:
    return {
        "group": row.group_id,
        "share_partition": f"{row.topic}-{row.partition}",
        "epoch": leader_epoch,
        "state_epoch": row.state_epoch,
    }
