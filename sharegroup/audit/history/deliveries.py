"""Deliveries: each acquisition of records by a member, with its outcome.

A delivery begins with a transition to ACQUIRED and ends with the next one to another state. Where parts of an acquired
range end differently, each part is a delivery of its own; parts that end alike at once are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sharegroup.core.offset_ranges import OffsetRange, RangeMap
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import NO_WRITE
from sharegroup.protocol.rows import RecordType, RunEntry, StateRow, TransitionEntry

STATE_ENDED = "state_ended"
"""Outcome of a delivery whose share-partition lost its state meanwhile."""

ALL_OFFSETS: OffsetRange = (0, (1 << 63) - 1)

ClientIds = Mapping[tuple[str, str], str]
"""Group id and member id → client id."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of a range of records to a member.

    Attributes:
        delivery_count: deliveries of each record, this one included.
        client_id: client id of the member; "" when it is not known.
        acquired_ms: time of the acquisition, epoch ms; None when that row is not in the table any more.
        acquire_request_offset: message in the request log that caused it; None when its row is not there.
        deadline_ms: the end of the lock, as last renewed; epoch ms.
        ended_ms: time of the end; None while the member holds the records. It is before `acquired_ms` if a message that
            ended it was in the log already when the records were acquired: an acquisition has the time of its cut.
        outcome: cause of the end; None while the member holds the records.
        to_state: state after the end; None while the member holds the records.
        reason: reason that the member gave.
        end_request_offset: message in the request log that caused the end; None without one.
        write_version: the write of its results into a sink; None without one. An outcome `in_doubt` is no decision yet:
            the change from RESOLVING that follows is.
        leader_epoch: epoch of the processor that wrote the last row about it.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    member_id: str
    client_id: str
    acquired_ms: int | None
    acquire_request_offset: int | None
    renewed_count: int
    deadline_ms: int
    ended_ms: int | None
    outcome: str | None
    to_state: str | None
    reason: str
    end_request_offset: int | None
    leader_epoch: int
    write_version: int | None


@dataclass(frozen=True, slots=True)
class OtherChange:
    """A change of records that no member held.

    Their dead-letter record was written, the start offset passed them, or their sink said what it has of them.

    Attributes:
        time_ms: its time; epoch ms.
        from_state: the state before; None when the records were not in flight.
        delivery_count: deliveries of each record.
        request_offset: message in the request log that caused it.
        leader_epoch: epoch of the processor that wrote it.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    time_ms: int
    cause: str
    from_state: str | None
    to_state: str
    delivery_count: int
    request_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class _Held:
    """Records that a member holds; equal ones that touch are one range."""

    member_id: str
    delivery_count: int
    acquired_ms: int | None
    request_offset: int | None
    deadline_ms: int
    leader_epoch: int
    write_version: int
    renewed_count: int = 0


@dataclass
class _Partition:
    """A share-partition: what members hold of it. None is what nobody holds."""

    row: StateRow
    held: RangeMap[_Held | None] = field(default_factory=RangeMap)
    state_epoch: int = -1


class DeliveryTrace:
    """Follows the rows of share-partitions, and tells deliveries from other changes.

    Memory grows with what members hold, not with the history.

    Args:
        offsets: only records at these offsets; parts outside are cut off.
    """

    def __init__(self, client_ids: ClientIds, offsets: OffsetRange = ALL_OFFSETS) -> None:
        self._client_ids = client_ids
        self._first, self._last = offsets
        self._partitions: dict[tuple[str, str, int], _Partition] = {}

    def follow(self, rows: Iterable[StateRow]) -> Iterator[Delivery | OtherChange]:
        """Yield the deliveries that end with a row and the other changes in it; after the last row, those still held.

        Args:
            rows: in fold order; a table snapshot among them is the beginning.
        """
        for row in rows:
            if row.partition >= 0:
                yield from self._advance(row)
        for partition in self._partitions.values():
            yield from self._ended(partition, *ALL_OFFSETS, None)

    def _advance(self, row: StateRow) -> Iterator[Delivery | OtherChange]:
        key = (row.group_id, row.topic_id, row.partition)
        partition = self._partitions.setdefault(key, _Partition(row))
        partition.row = row
        if row.record_type is RecordType.SHARE_TOMBSTONE:
            yield from self._ended(partition, *ALL_OFFSETS, None)
            del self._partitions[key]
            return
        if partition.state_epoch not in (-1, row.state_epoch):
            yield from self._ended(partition, *ALL_OFFSETS, None)
            partition.held = RangeMap()
        partition.state_epoch = row.state_epoch
        if row.record_type is RecordType.TABLE_SNAPSHOT:
            self._begin(partition, row.runs)
        for entry in row.transitions:
            first, last = max(entry.first_offset, self._first), min(entry.last_offset, self._last)
            if first <= last:
                yield from self._apply(partition, entry, first, last)
        partition.held.drop_below(row.start_offset)

    def _begin(self, partition: _Partition, runs: Iterable[RunEntry]) -> None:
        """Begin with a table snapshot: the acquisitions themselves are not in the table any more."""
        for run in runs:
            first, last = max(run.first_offset, self._first), min(run.last_offset, self._last)
            if run.state is RecordState.ACQUIRED and first <= last:
                held = _Held(
                    run.member_id,
                    run.delivery_count,
                    None,
                    None,
                    run.deadline_ms,
                    partition.row.leader_epoch,
                    run.write_version,
                )
                partition.held.assign(first, last, held)

    def _apply(
        self, partition: _Partition, entry: TransitionEntry, first: int, last: int
    ) -> Iterator[Delivery | OtherChange]:
        if entry.cause is Cause.ACQUIRE:
            held = _Held(
                entry.member_id,
                entry.delivery_count,
                entry.time_ms,
                entry.request_offset,
                entry.deadline_ms,
                partition.row.leader_epoch,
                entry.write_version,
            )
            partition.held.assign(first, last, held)
        elif entry.to_state is RecordState.ACQUIRED:
            for low, high, before in partition.held.overlapping(first, last):
                if before is not None:
                    renewed = replace(before, deadline_ms=entry.deadline_ms, renewed_count=before.renewed_count + 1)
                    partition.held.assign(low, high, renewed)
        elif entry.from_state is RecordState.ACQUIRED:
            yield from self._ended(partition, first, last, entry)
            partition.held.assign(first, last, None)
        else:
            yield self._other(partition.row, entry, first, last)

    def _ended(self, partition: _Partition, first: int, last: int, entry: TransitionEntry | None) -> Iterator[Delivery]:
        """Yield the deliveries of a range; without a transition they end with their state, or have not ended."""
        row = partition.row
        is_held = entry is None and row.record_type is not RecordType.SHARE_TOMBSTONE
        is_held = is_held and partition.state_epoch in (-1, row.state_epoch)
        outcome = STATE_ENDED if entry is None else entry.cause.value
        for low, high, held in partition.held.overlapping(first, last):
            if held is not None:
                yield Delivery(
                    group_id=row.group_id,
                    topic=row.topic,
                    topic_id=row.topic_id,
                    partition=row.partition,
                    first_offset=low,
                    last_offset=high,
                    delivery_count=held.delivery_count,
                    member_id=held.member_id,
                    client_id=self._client_ids.get((row.group_id, held.member_id), ""),
                    acquired_ms=held.acquired_ms,
                    acquire_request_offset=held.request_offset,
                    renewed_count=held.renewed_count,
                    deadline_ms=held.deadline_ms,
                    ended_ms=None if is_held else row.time_ms if entry is None else entry.time_ms,
                    outcome=None if is_held else outcome,
                    to_state=None if entry is None else entry.to_state.name,
                    reason="" if entry is None else entry.reason,
                    end_request_offset=None if entry is None else entry.request_offset,
                    leader_epoch=held.leader_epoch if is_held else row.leader_epoch,
                    write_version=None if held.write_version == NO_WRITE else held.write_version,
                )

    def _other(self, row: StateRow, entry: TransitionEntry, first: int, last: int) -> OtherChange:
        return OtherChange(
            group_id=row.group_id,
            topic=row.topic,
            topic_id=row.topic_id,
            partition=row.partition,
            first_offset=first,
            last_offset=last,
            time_ms=entry.time_ms,
            cause=entry.cause.value,
            from_state=None if entry.from_state is None else entry.from_state.name,
            to_state=entry.to_state.name,
            delivery_count=entry.delivery_count,
            request_offset=entry.request_offset,
            leader_epoch=row.leader_epoch,
        )
