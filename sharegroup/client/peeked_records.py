"""The records of a group that are not finished: available, locked or delayed, in the order of their offsets.

Peeking delivers nothing: it takes no lock and counts no delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.port import Log, LogRecord, PartitionOffsets
from sharegroup.state.fold import FoldedGroup, FoldedPartition

_RECORDS_PER_READ = 1_000


class PeekState(StrEnum):
    """The reason why a record is not finished."""

    AVAILABLE = "available"
    LOCKED = "locked"
    DELAYED = "delayed"
    ARCHIVING = "archiving"


@dataclass(frozen=True, slots=True)
class PeekedRecord:
    """A record that is not finished.

    Attributes:
        state: its state; ARCHIVING waits for its dead-letter record.
        member_id: the holder; "" unless LOCKED.
        client_id: the holder's free name; "" when it is no longer a member.
        until_ms: end of its lock, or of its delay; epoch ms. 0 for others.
    """

    record: LogRecord
    state: PeekState
    delivery_count: int
    member_id: str
    client_id: str
    until_ms: int


def peek(
    log: Log,
    group: FoldedGroup,
    broker: BrokerConfig,
    topic: str,
    partition: int | None = None,
    states: Iterable[PeekState] = tuple(PeekState),
    from_offset: int = 0,
) -> Iterator[PeekedRecord]:
    """Yield the unfinished records of a group's topic, partition by partition; they are read on demand.

    Args:
        partition: the only partition to read; None is all.

    Raises:
        UnknownTopicError: the group has no state of that topic, or the topic is gone.
    """
    level = IsolationLevel(effective_group_config(broker, group.metadata.config_overrides).share_isolation_level)
    topic_id = log.describe_topic(topic).topic_id
    partitions = sorted(
        (
            folded
            for folded in group.partitions.values()
            if folded.topic_id == topic_id and partition in (None, folded.partition)
        ),
        key=lambda folded: folded.partition,
    )
    if not partitions:
        which = topic if partition is None else f"{topic}-{partition}"
        raise UnknownTopicError(
            f"Group {group.group_id} has no start offset in {which}.",
            "It gets one when a member subscribes to the topic: check the names.",
        )
    ends = log.offsets(topic)
    return _peeked(log, group, partitions, ends, level, frozenset(states), from_offset)


def _peeked(
    log: Log,
    group: FoldedGroup,
    partitions: Iterable[FoldedPartition],
    ends: Mapping[int, PartitionOffsets],
    level: IsolationLevel,
    states: frozenset[PeekState],
    from_offset: int,
) -> Iterator[PeekedRecord]:
    now_ms = log.now_ms()
    for folded in partitions:
        offsets = ends[folded.partition]
        first = max(from_offset, offsets.start_offset)
        for run in _unfinished(folded, offsets.readable_end(level)):
            state = _state(run, now_ms)
            if state not in states or run.last_offset < first:
                continue
            holder = group.metadata.members.get(run.member_id)
            client_id = holder.client_id if holder else ""
            until_ms = run.deadline_ms if state in (PeekState.LOCKED, PeekState.DELAYED) else 0
            for record in _read(log, folded, max(run.first_offset, first), run.last_offset + 1, level):
                yield PeekedRecord(record, state, run.delivery_count, run.member_id, client_id, until_ms)


def _unfinished(folded: FoldedPartition, end_offset: int) -> Iterator[Run]:
    """Yield the unfinished runs in flight, and the offsets that were never in flight."""
    engine = folded.share_partition
    yield from (run for run in engine.runs if not run.state.is_terminal)
    if engine.next_offset < end_offset:
        yield Run(engine.next_offset, end_offset - 1, RecordState.AVAILABLE, 0)


def _state(run: Run, now_ms: int) -> PeekState:
    match run.state:
        case RecordState.ACQUIRED:
            return PeekState.LOCKED
        case RecordState.ARCHIVING:
            return PeekState.ARCHIVING
        case _:
            return PeekState.DELAYED if run.deadline_ms > now_ms else PeekState.AVAILABLE


def _read(log: Log, folded: FoldedPartition, start: int, end: int, level: IsolationLevel) -> Iterator[LogRecord]:
    while start < end:
        stop = min(end, start + _RECORDS_PER_READ)
        yield from log.read(folded.topic, folded.partition, start, stop, isolation_level=level)
        start = stop
