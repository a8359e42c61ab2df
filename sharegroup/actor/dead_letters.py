"""The leader's part of the dead-letter queue (KIP-1191; spec 002, "Dead-letter queue").

1. A record that no member is to get again becomes ARCHIVING, which is committed.
2. The dead-letter writer appends its dead-letter record, and reports it.
3. The record becomes ARCHIVED.

So no dead-letter record is lost between two of these steps, but one may be written twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import DeadLetterReason, DeadLetters, DropDeadLetters, WriteDeadLetters
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.config.group import GroupConfig
from sharegroup.core.offset_ranges import merge
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionLimits
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.internal_messages import DlqStatusChanged, DlqWritten
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow


class NamedSharePartition(Protocol):
    """A share-partition with its topic, led or folded."""

    topic: str
    topic_id: str
    partition: int
    share_partition: SharePartition
    rejected: RejectedRecords


def new_dead_letters(group_id: str, config: GroupConfig, rows: Iterable[StateRow]) -> list[WriteDeadLetters]:
    """Return the effect for the records that became ARCHIVING in a cut's rows; none when none did."""
    dead_letters = tuple(
        merge(
            DeadLetters(
                row.topic,
                row.topic_id,
                row.partition,
                entry.first_offset,
                entry.last_offset,
                entry.delivery_count,
                _reason(is_rejected=entry.cause is Cause.REJECT),
                row.state_epoch,
            )
            for row in rows
            for entry in row.transitions
            if entry.to_state is RecordState.ARCHIVING
        )
    )
    return [_effect(group_id, config, dead_letters)] if dead_letters else []


def queue_changed(
    group_id: str, before: GroupConfig, after: GroupConfig, is_removed: bool
) -> list[WriteDeadLetters | DropDeadLetters]:
    """Return the effect of a changed dead-letter queue on waiting records; none when the queue is the same.

    Those of a removed group are dropped: else they would go to the topic of a later group of its name.
    """
    if is_removed:
        return [DropDeadLetters(group_id)]
    effect = _effect(group_id, after, ())
    return [effect] if effect != _effect(group_id, before, ()) else []


def all_waiting(group_id: str, partitions: Iterable[NamedSharePartition], config: GroupConfig) -> WriteDeadLetters:
    """Return the effect that writes dead-letter records of all ARCHIVING records of a group again."""
    dead_letters = (
        DeadLetters(
            named.topic,
            named.topic_id,
            named.partition,
            run.first_offset,
            run.last_offset,
            run.delivery_count,
            _reason(is_rejected=is_rejected),
            named.share_partition.state_epoch,
        )
        for named in partitions
        for run, is_rejected in named.rejected.split(named.share_partition.runs)
    )
    return _effect(group_id, config, tuple(dead_letters), replaces_waiting=True)


def finish_written(message: LoggedRequest, partitions: LedPartitions, limits: SharePartitionLimits) -> None:
    """Archive the records whose dead-letter records are written, if they are still ARCHIVING.

    A newer state of the share-partition does not contain these records.
    """
    for written in parsed(DlqWritten, message.envelope.body).ranges:
        led = partitions.get((written.topic_id, written.partition_index))
        if led is not None and led.share_partition.state_epoch == written.state_epoch:
            finished = led.share_partition.finish_dead_letters(
                written.first_offset, written.last_offset, limits, message.time_ms
            )
            partitions.record(led, finished, message.time_ms, message.offset)


def status_row(message: LoggedRequest) -> StateRow:
    """Return the row of a change of the dead-letter writer's status."""
    failure = parsed(DlqStatusChanged, message.envelope.body).failure
    payload = GroupStatusPayload(
        role=ActorRole.LEADER,
        status=GroupStatus.DEGRADED if failure else GroupStatus.ACTIVE,
        reason=failure or "dead-letter records are written again",
    )
    return StateRow(record_type=RecordType.GROUP_STATUS, payload=payload.model_dump(mode="json"))


def _effect(
    group_id: str, config: GroupConfig, dead_letters: tuple[DeadLetters, ...], replaces_waiting: bool = False
) -> WriteDeadLetters:
    return WriteDeadLetters(
        group_id,
        config.errors_deadletterqueue_topic_name,
        config.errors_deadletterqueue_copy_record_enable,
        dead_letters,
        replaces_waiting,
    )


def _reason(*, is_rejected: bool) -> DeadLetterReason:
    return DeadLetterReason.REJECTED if is_rejected else DeadLetterReason.DELIVERY_COUNT_EXCEEDED
