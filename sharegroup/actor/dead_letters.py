"""The leader's part of the dead-letter queue (KIP-1191; spec 002, "Dead-letter queue").

A record that is given up is first ARCHIVING, which is committed; then the dead-letter writer appends its letter and
says so; then it is ARCHIVED. So nothing is lost between two of these steps, and a letter may come twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import DeadLetterReason, DeadLetters, WriteDeadLetters
from sharegroup.actor.led_partition import LedPartition
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


def given_up(group_id: str, config: GroupConfig, rows: Iterable[StateRow]) -> list[WriteDeadLetters]:
    """The wish for the letters of what became ARCHIVING in a batch, by its rows; none when nothing did."""
    letters = tuple(
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
    return [_wish(group_id, config, letters)] if letters else []


def queue_changed(group_id: str, before: GroupConfig, after: GroupConfig) -> list[WriteDeadLetters]:
    """The wish that what waits goes by a new configuration; none when that has the same dead-letter queue."""
    wish = _wish(group_id, after, ())
    return [wish] if wish != _wish(group_id, before, ()) else []


def all_waiting(group_id: str, partitions: Iterable[NamedSharePartition], config: GroupConfig) -> WriteDeadLetters:
    """Everything that is ARCHIVING in a group, as its state has it, to be written anew."""
    letters = (
        DeadLetters(
            found.topic,
            found.topic_id,
            found.partition,
            run.first_offset,
            run.last_offset,
            run.delivery_count,
            _reason(is_rejected=is_rejected),
            found.share_partition.state_epoch,
        )
        for found in partitions
        for run, is_rejected in found.rejected.split(found.share_partition.runs)
    )
    return _wish(group_id, config, tuple(letters), replaces_waiting=True)


def finish_written(
    message: LoggedRequest, partitions: Mapping[tuple[str, int], LedPartition], limits: SharePartitionLimits
) -> None:
    """Archive the records whose letters are written, where they are ARCHIVING still."""
    for written in parsed(DlqWritten, message.envelope.body).ranges:
        led = partitions.get((written.topic_id, written.partition_index))
        if led is not None:
            finished = led.share_partition.finish_dead_letters(
                written.first_offset, written.last_offset, limits, message.time_ms
            )
            led.record(finished, message.time_ms, message.offset)


def status_row(message: LoggedRequest) -> StateRow:
    """The row that says what a change of the writer's status means for the group."""
    failure = parsed(DlqStatusChanged, message.envelope.body).failure
    payload = GroupStatusPayload(
        role=ActorRole.LEADER,
        status=GroupStatus.DEGRADED if failure else GroupStatus.ACTIVE,
        reason=failure or "dead letters are written again",
    )
    return StateRow(record_type=RecordType.GROUP_STATUS, payload=payload.model_dump(mode="json"))


def _wish(
    group_id: str, config: GroupConfig, letters: tuple[DeadLetters, ...], replaces_waiting: bool = False
) -> WriteDeadLetters:
    return WriteDeadLetters(
        group_id,
        config.errors_deadletterqueue_topic_name,
        config.errors_deadletterqueue_copy_record_enable,
        letters,
        replaces_waiting,
    )


def _reason(*, is_rejected: bool) -> DeadLetterReason:
    return DeadLetterReason.REJECTED if is_rejected else DeadLetterReason.DELIVERY_COUNT_EXCEEDED


def _joined(letters: Iterable[DeadLetters]) -> Iterator[DeadLetters]:
    """Letters in their order; one that is like the one before it, and goes on where that ends, becomes part of it."""
    before: DeadLetters | None = None
    for found in letters:
        if before is not None and found == replace(
            before, first_offset=before.last_offset + 1, last_offset=found.last_offset
        ):
            before = replace(before, last_offset=found.last_offset)
            continue
        if before is not None:
            yield before
        before = found
    if before is not None:
        yield before
