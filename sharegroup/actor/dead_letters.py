"""The leader's part of the dead-letter queue (KIP-1191; spec 002, "Dead-letter queue").

A record that is given up is first ARCHIVING, which is committed; then the dead-letter writer appends its dead letter
and reports it; then it is ARCHIVED. So nothing is lost between two of these steps, and a dead letter may come twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import DeadLetterReason, DeadLetters, WriteDeadLetters
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.config.group import GroupConfig
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionLimits
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.dead_letters import DlqStatusChanged, DlqWritten
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.rows import RecordType, StateRow


class NamedSharePartition(Protocol):
    """A share-partition with its topic, be it led or folded."""

    topic: str
    topic_id: str
    partition: int
    share_partition: SharePartition
    rejected: RejectedRecords


def new_dead_letters(group_id: str, config: GroupConfig, rows: Iterable[StateRow]) -> list[WriteDeadLetters]:
    """The effect for the records that became ARCHIVING in a cut, by its rows; none when none did."""
    dead_letters = tuple(
        _joined(
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


def queue_changed(group_id: str, before: GroupConfig, after: GroupConfig) -> list[WriteDeadLetters]:
    """The effect that gives waiting dead letters a new configuration; none when the dead-letter queue is the same."""
    effect = _effect(group_id, after, ())
    return [effect] if effect != _effect(group_id, before, ()) else []


def all_waiting(group_id: str, partitions: Iterable[NamedSharePartition], config: GroupConfig) -> WriteDeadLetters:
    """Everything that is ARCHIVING in a group, as its state has it, to be written anew."""
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
    """Archive the records whose dead letters are written, where they are ARCHIVING still.

    A share-partition that has a new state since then does not know these records.
    """
    for written in parsed(DlqWritten, message.envelope.body).ranges:
        led = partitions.get((written.topic_id, written.partition_index))
        if led is not None and led.share_partition.state_epoch == written.state_epoch:
            finished = led.share_partition.finish_dead_letters(
                written.first_offset, written.last_offset, limits, message.time_ms
            )
            partitions.record(led, finished, message.time_ms, message.offset)


def status_row(message: LoggedRequest) -> StateRow:
    """The row of a change of the dead-letter writer's status."""
    failure = parsed(DlqStatusChanged, message.envelope.body).failure
    payload = GroupStatusPayload(
        role=ActorRole.LEADER,
        status=GroupStatus.DEGRADED if failure else GroupStatus.ACTIVE,
        reason=failure or "dead letters are written again",
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


def _joined(dead_letters: Iterable[DeadLetters]) -> Iterator[DeadLetters]:
    """Dead letters in their order; one that continues the one before it, and is like it, becomes part of it."""
    before: DeadLetters | None = None
    for current in dead_letters:
        if before is not None and current == replace(
            before, first_offset=before.last_offset + 1, last_offset=current.last_offset
        ):
            before = replace(before, last_offset=current.last_offset)
            continue
        if before is not None:
            yield before
        before = current
    if before is not None:
        yield before
