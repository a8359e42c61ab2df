"""What the log says of a committed batch: one line for the batch, and one for each thing that is not everyday."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from sharegroup.actor.effects import Persist, Undecodable
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.event_log import Event
from sharegroup.protocol.group_records import (
    ShareGroupMemberMetadata,
    ShareGroupMemberRemoved,
    ShareGroupMetadata,
    ShareGroupRemoved,
    group_record,
)
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.actor_function import ActorOutput

logger = logging.getLogger("sharegroup.spark.processor")

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


def log_batch(commit_id: int, leader_epoch: int, outputs: Sequence[ActorOutput], commit_ms: float | None) -> None:
    """Log a batch after its commit; one that changed nothing, such as heartbeats, only for who wants to see all.

    Args:
        commit_id: the micro-batch.
        leader_epoch: epoch of this processor.
        outputs: what the actors made of it.
        commit_ms: duration of the commit; None when the batch had been committed before.
    """
    effects = [effect for output in outputs for effect in output.effects]
    rows = [effect.row for effect in effects if isinstance(effect, Persist)]
    batch = Event(
        "batch_committed" if commit_ms is not None else "batch_repeated",
        batch=commit_id,
        epoch=leader_epoch,
        groups=len({output.group_id for output in outputs}),
        messages=sum(output.message_count for output in outputs),
        rows=len(rows),
        commit_ms=None if commit_ms is None else round(commit_ms),
    )
    undecodable = (
        (logging.WARNING, Event("request_undecodable", epoch=leader_epoch, offset=e.request_offset, reason=e.reason))
        for e in effects
        if isinstance(e, Undecodable)
    )
    of_rows = (_lines_of(row, leader_epoch) for row in rows)
    for level, event in chain([(logging.INFO if rows else logging.DEBUG, batch)], undecodable, *of_rows):
        logger.log(level, event)


def _lines_of(row: StateRow, leader_epoch: int) -> Iterator[Line]:
    match row.record_type:
        case RecordType.GROUP_STATUS:
            yield _status(row, leader_epoch)
        case RecordType.GROUP_METADATA:
            yield from _members(row, leader_epoch)
        case RecordType.SHARE_SNAPSHOT | RecordType.SHARE_UPDATE | RecordType.SHARE_TRANSITIONS:
            yield from _share_partition(row, leader_epoch)
        case RecordType.SHARE_TOMBSTONE:
            yield logging.INFO, Event("share_partition_deleted", **_place(row, leader_epoch))


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
    place = {"group": row.group_id, "epoch": leader_epoch, "group_epoch": group_epoch}
    for record in records:
        match record:
            case ShareGroupMemberMetadata():
                topics = ",".join(record.subscribed_topic_names)
                about = {"member": record.member_id, "client": record.client_id or None, "topics": topics}
                yield logging.INFO, Event("member_subscribed", **place, **about)
            case ShareGroupMemberRemoved():
                yield logging.INFO, Event("member_removed", **place, member=record.member_id, reason=record.reason)
            case ShareGroupRemoved():
                yield logging.INFO, Event("group_removed", **place, reason=record.reason)


def _share_partition(row: StateRow, leader_epoch: int) -> Iterator[Line]:
    def line(level: int, name: str, **fields: object) -> Line:
        return level, Event(name, **_place(row, leader_epoch), **fields)

    counts: Counter[Cause] = Counter()
    over_limit = 0
    for entry in row.transitions:
        size = entry.last_offset - entry.first_offset + 1
        counts[entry.cause] += size
        if entry.cause in _RETRY_CAUSES and entry.to_state is not RecordState.AVAILABLE:
            over_limit += size
    # A snapshot in place of an update tells of something that an update would have told of.
    is_persisted = any(entry.transition.is_persisted_by_kafka for entry in row.transitions)
    if row.record_type is RecordType.SHARE_SNAPSHOT and not is_persisted:
        yield line(logging.INFO, "share_partition_initialized", start_offset=row.start_offset)
    if counts[Cause.LOCK_TIMEOUT]:
        yield line(logging.WARNING, "acquisition_lock_timeout", records=counts[Cause.LOCK_TIMEOUT])
    if over_limit:
        yield line(logging.WARNING, "delivery_count_limit_reached", records=over_limit)
    changed = {cause.value: count for cause, count in counts.items()}
    yield line(logging.DEBUG, "share_partition_changed", start_offset=row.start_offset, **changed)


def _place(row: StateRow, leader_epoch: int) -> dict[str, object]:
    return {
        "group": row.group_id,
        "share_partition": f"{row.topic}-{row.partition}",
        "epoch": leader_epoch,
        "state_epoch": row.state_epoch,
    }
