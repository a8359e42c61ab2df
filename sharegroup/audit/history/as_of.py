"""The state of groups at a point: the fold of the last table snapshot before it, and of the rows between the two.

A group's own rows are few, whatever its history is, and are folded here; those of its share-partitions may be any
number. No row changes two share-partitions, so the source folds each by itself, and only its state comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sharegroup.audit.history.extent import read_extent
from sharegroup.audit.history.points import Point, resolve
from sharegroup.audit.history.row_source import RowSource
from sharegroup.audit.history.state_document import group_document
from sharegroup.errors import GroupIdNotFoundError, UnknownTopicError
from sharegroup.logs.log_clock import wall_ms
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import (
    CHANGE_TYPES,
    SHARE_PARTITION_TYPES,
    FoldedGroup,
    FoldedPartition,
    FoldedState,
    advance,
    advance_group,
    fold_order,
    without_collections,
)
from sharegroup.state.row_filter import RowFilter

PARTITION_COLUMNS = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "time_ms",
    "snapshot_epoch",
    "start_offset",
    "transitions",
    "runs",
    "payload",
)
"""The columns that decide the state of share-partitions, besides those of the fold order."""

_OF_NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class Selection:
    """The share-partitions that an audit is about; None is all."""

    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None

    def row_filter(self) -> RowFilter:
        """Return the filter of their rows, and of the rows of their groups."""
        return RowFilter(group_id=self.group_id, topic=self.topic, partition=self.partition)

    def check(self, group_ids: Iterable[str], has_partition: bool, at: str) -> None:
        """Check that the selected group and share-partition are in a state.

        Args:
            has_partition: True if any selected share-partition is in it.
            at: the point, as it was asked for.

        Raises:
            GroupIdNotFoundError: there is no such group.
            UnknownTopicError: it has no such share-partition.
        """
        if self.group_id is not None and self.group_id not in group_ids:
            raise GroupIdNotFoundError(
                f"Group {self.group_id} is not in the state table at {at}.",
                "Check its name, or ask for another point.",
            )
        if (self.topic is not None or self.partition is not None) and not has_partition:
            name = "-".join(str(part) for part in (self.topic, self.partition) if part is not None)
            raise UnknownTopicError(
                f"No group has a share-partition {name} in the state table at {at}.",
                "It gets one when a member subscribes to the topic: check the names, or ask for another point.",
            )


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A share-partition after its rows.

    Attributes:
        order: the place of its last row in the fold order.
        leader_epoch: epoch of the processor that wrote that row.
        folded: its state; None if it has ended.
    """

    group_id: str
    order: tuple[int, ...]
    leader_epoch: int
    folded: FoldedPartition | None


def as_of(source: RowSource, at: str, selection: Selection, now_ms: int | None = None) -> dict[str, Any]:
    """Return the full state of groups at a point, as a JSON object.

    Args:
        at: the point; `parse_point` has its forms.
        now_ms: the time now, epoch ms; None is that of this machine's clock.

    Raises:
        ConfigurationError: the text is no point.
        PointOutsideHistoryError: the state at the point cannot be folded.
        GroupIdNotFoundError: there was no such group then.
        UnknownTopicError: the group had no such share-partition then.
        StateTableError: a row contradicts the rows before it.
    """
    extent = read_extent(source)
    point = resolve(source, extent, at, wall_ms() if now_ms is None else now_ms)
    state = state_at(source, point, selection)
    selection.check(state.groups, any(group.partitions for group in state.groups.values()), at)
    return {
        **point.document(),
        "history_start": extent.start,
        "groups": [group_document(group, point.time_ms) for _, group in sorted(state.groups.items())],
    }


def state_at(source: RowSource, point: Point, selection: Selection) -> FoldedState:
    """Return the state at a point, without the members' last requests, which no document shows.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    state, orders = _groups_at(source, point, selection)
    of_partitions = replace(
        decisive_rows(point, selection), record_types=SHARE_PARTITION_TYPES, columns=PARTITION_COLUMNS
    )
    with without_collections():
        for ended in source.by_partition(of_partitions, partial(partition_state, point=point)):
            if ended is None:
                continue
            group = state.groups.get(ended.group_id)
            if ended.folded is not None:
                group = state.groups.setdefault(ended.group_id, FoldedGroup(ended.group_id))
                group.partitions[ended.folded.topic_id, ended.folded.partition] = ended.folded
            if group is not None and ended.order > orders.get(ended.group_id, ()):
                orders[ended.group_id] = ended.order
                group.leader_epoch = ended.leader_epoch
    return state


def groups_at(source: RowSource, point: Point, selection: Selection) -> FoldedState:
    """Return the groups at a point without their share-partitions.

    A group is in it until it is removed. The coordinator removes a group after its share-partitions have ended, so this
    needs no check.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    return _groups_at(source, point, selection)[0]


def _groups_at(source: RowSource, point: Point, selection: Selection) -> tuple[FoldedState, dict[str, tuple[int, ...]]]:
    state = FoldedState()
    orders: dict[str, tuple[int, ...]] = {}
    of_groups = replace(decisive_rows(point, selection), partition=_OF_NO_PARTITION)
    with without_collections():
        for row in source.rows(of_groups):
            if row.group_id and decides(row, point):
                advance(state, row)
                orders[row.group_id] = fold_order(row)
    return state, orders


def decisive_rows(point: Point, selection: Selection) -> RowFilter:
    """Return the filter of the rows that decide the state at a point; `decides` checks each of them."""
    return replace(
        selection.row_filter(),
        record_types=CHANGE_TYPES,
        snapshot_ms=point.base.snapshot_ms,
        after_commit_id=point.base.commit_id,
        through_commit_id=point.through_commit_id,
        until_ms=point.until_ms,
    )


def decides(row: StateRow, point: Point) -> bool:
    """Return True if a row decides the state at a point; a table snapshot among the rows is the point's base."""
    return row.record_type is RecordType.TABLE_SNAPSHOT or point.includes(row)


def partition_state(rows: Iterable[StateRow], point: Point) -> PartitionState | None:
    """Return the state of a share-partition at a point from its rows; None if none of them is before it.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    group: FoldedGroup | None = None
    last: StateRow | None = None
    for row in rows:
        if decides(row, point):
            group = group or FoldedGroup(row.group_id)
            advance_group(group, row)
            last = row
    if group is None or last is None:
        return None
    return PartitionState(group.group_id, fold_order(last), last.leader_epoch, only_partition(group))


def only_partition(group: FoldedGroup) -> FoldedPartition | None:
    """Return the share-partition of a group into which the rows of no other were folded; None if it has ended."""
    return next(iter(group.partitions.values()), None)
