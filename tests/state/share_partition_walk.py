"""A random walk of live share-partitions that writes its rows as a leader does, and remembers where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partition import LedPartition
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import FoldedState
from tests.state.state_rows import BATCH_MS

LIMITS = SharePartitionLimits(lock_duration_ms=50, delivery_count_limit=3, max_record_locks=60)
MEMBERS = ("anna", "ben")
GROUPS = ("group-1", "group-2")
UPDATES_PER_SNAPSHOT = 3

Key = tuple[str, int]


_NO_REQUESTS = LastRequests({}, 1)
"""No member of these walks has sent a request."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that happens to a share-partition; `first` and `size` mean what the kind makes of them."""

    kind: str
    key: Key
    member_id: str
    first: int
    size: int
    acknowledge_type: AcknowledgeType


OPERATIONS = st.builds(
    Operation,
    kind=st.sampled_from(["acquire", "acquire", "acknowledge", "acknowledge", "wait", "close", "log_start", "nothing"]),
    key=st.tuples(st.sampled_from(GROUPS), st.integers(0, 1)),
    member_id=st.sampled_from(MEMBERS),
    first=st.integers(0, 30),
    size=st.integers(1, 20),
    acknowledge_type=st.sampled_from(AcknowledgeType),
)
BATCHES = st.lists(st.lists(OPERATIONS, max_size=6), min_size=1, max_size=12)
"""Micro-batches of operations."""


@dataclass(frozen=True, slots=True)
class Position:
    """All that a fold must reproduce of one share-partition."""

    start_offset: int
    runs: tuple[Run, ...]
    delivery_complete_count: int
    state_epoch: int
    epochs: SnapshotEpochs


class Walk:
    """Live share-partitions of two groups; each batch returns its rows."""

    def __init__(self) -> None:
        self._led: dict[Key, LedPartition] = {}
        self._now_ms = BATCH_MS
        self._request_offset = -1
        self._commit_id = -1

    @property
    def end_offset(self) -> int:
        """The end offset of the request partition after the last batch."""
        return self._request_offset + 1

    def batch(self, operations: Sequence[Operation]) -> list[StateRow]:
        """Carry the operations out and return the batch's rows."""
        self._commit_id += 1
        for operation in operations:
            self._request_offset += 1
            self._now_ms += 1
            led = self._led.get(operation.key) or self._initialized(operation.key)
            led.record(self._applied(led.share_partition, operation), self._now_ms, self._request_offset)
        rows = []
        for (group_id, _), led in self._led.items():
            row = led.take_row(UPDATES_PER_SNAPSHOT, _NO_REQUESTS)
            if row is not None:
                rows.append(self._addressed(row, group_id, led))
        return rows

    def positions(self) -> dict[Key, Position]:
        """Where each share-partition is now."""
        return {key: _position(led.share_partition, led.epochs) for key, led in self._led.items()}

    def _initialized(self, key: Key) -> LedPartition:
        _, partition = key
        share_partition = SharePartition(10 * partition, state_epoch=partition)
        return self._led.setdefault(
            key, LedPartition("orders", "topic-id", partition, share_partition, SnapshotEpochs())
        )

    def _applied(self, share_partition: SharePartition, operation: Operation) -> Sequence[SharePartitionRecord]:
        match operation.kind:
            case "acquire":
                mode = AcquireMode.RECORD_LIMIT if operation.first % 2 else AcquireMode.BATCH_OPTIMIZED
                request = AcquireRequest(operation.member_id, operation.size, 10, mode)
                return share_partition.acquire(request, LIMITS, 1_000, self._now_ms)[1]
            case "acknowledge":
                return self._acknowledged(share_partition, operation)
            case "wait":
                self._now_ms += operation.size * 4
                return share_partition.expire_locks(LIMITS, self._now_ms)
            case "close":
                return share_partition.release_member(operation.member_id, LIMITS, self._now_ms)
            case "log_start":
                return share_partition.move_log_start(share_partition.start_offset + operation.first, LIMITS)
        return []

    def _acknowledged(self, share_partition: SharePartition, operation: Operation) -> Sequence[SharePartitionRecord]:
        held = share_partition.runs.held_by(operation.member_id)
        if not held:
            return []
        run = held[operation.first % len(held)]
        first = run.first_offset + operation.first % run.size
        last = min(run.last_offset, first + operation.size - 1)
        batch = AcknowledgementBatch(first, last, (operation.acknowledge_type,))
        return share_partition.acknowledge(operation.member_id, [batch], LIMITS, self._now_ms)

    def _addressed(self, row: StateRow, group_id: str, led: LedPartition) -> StateRow:
        return row.model_copy(
            update={
                "commit_id": self._commit_id,
                "leader_epoch": 1,
                "group_id": group_id,
                "topic_id": led.topic_id,
                "topic": led.topic,
                "partition": led.partition,
                "request_partition": GROUPS.index(group_id),
                "request_offset": self._request_offset,
                "time_ms": self._now_ms,
            }
        )


def folded_positions(state: FoldedState) -> dict[Key, Position]:
    """Where each share-partition is according to a fold."""
    return {
        (group_id, folded.partition): _position(folded.share_partition, folded.epochs)
        for group_id, group in state.groups.items()
        for folded in group.partitions.values()
    }


def _position(share_partition: SharePartition, epochs: SnapshotEpochs) -> Position:
    return Position(
        share_partition.start_offset,
        tuple(share_partition.runs),
        share_partition.delivery_complete_count,
        share_partition.state_epoch,
        epochs,
    )
