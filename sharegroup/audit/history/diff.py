"""The difference of two points: moves of start offsets, records by state change, members, configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sharegroup.audit.history.as_of import (
    PARTITION_COLUMNS,
    Selection,
    decides,
    decisive_rows,
    groups_at,
    only_partition,
)
from sharegroup.audit.history.extent import read_extent
from sharegroup.audit.history.group_history import PartitionHistory
from sharegroup.audit.history.points import Point, resolve
from sharegroup.audit.history.row_source import RowSource
from sharegroup.audit.history.state_document import topic_name
from sharegroup.coordinator.group_state import GroupState, Member
from sharegroup.core.offset_ranges import RangeMap, gaps
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError, UnknownTopicError
from sharegroup.logs.log_clock import wall_ms
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import (
    SHARE_PARTITION_TYPES,
    FoldedGroup,
    FoldedPartition,
    FoldedState,
    advance_group,
    without_collections,
)
from sharegroup.state.row_filter import RowFilter


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A share-partition at two points.

    Attributes:
        key: topic id and partition.
        was: True if it had a state at the first point.
        is_now: True if it has one at the last point.
        document: the difference; None if there is none.
    """

    group_id: str
    key: tuple[str, int]
    was: bool
    is_now: bool
    document: dict[str, Any] | None


def diff(source: RowSource, first: str, last: str, selection: Selection, now_ms: int | None = None) -> dict[str, Any]:
    """Return the difference of two points as a JSON object.

    Args:
        first: the earlier point; `parse_point` has its forms.
        last: the later point.
        now_ms: the time now, epoch ms; None is that of this machine's clock.

    Raises:
        ConfigurationError: a text is no point, or the points are not in order.
        PointOutsideHistoryError: the state at a point cannot be folded.
        GroupIdNotFoundError: there was such a group at neither point.
        UnknownTopicError: there was such a share-partition at neither point.
    """
    extent = read_extent(source)
    now_ms = wall_ms() if now_ms is None else now_ms
    start, end = resolve(source, extent, first, now_ms), resolve(source, extent, last, now_ms)
    if start.through_commit_id > end.commit_id and any(_rows_after(source, end, start, selection)):
        raise ConfigurationError(f"The point {first} is after the point {last}.", "Exchange the two points.")
    extent.check_gapless(start.commit_id, end.commit_id)
    before, after = groups_at(source, start, selection), groups_at(source, end, selection)
    partitions: dict[str, list[PartitionChange]] = defaultdict(list)
    with without_collections():
        change = partial(partition_change, start=start, end=end)
        for changed in source.by_partition(_rows_of_both(start, end, selection), change):
            if changed is not None:
                partitions[changed.group_id].append(changed)
    _check_selected(selection, before, after, partitions, first, last)
    changed_groups = (
        _group_diff(group_id, before, after, partitions.get(group_id, ()))
        for group_id in sorted({*before.groups, *after.groups, *partitions})
    )
    return {
        "from": start.document(),
        "to": end.document(),
        "history_start": extent.start,
        "groups": [document for document in changed_groups if document is not None],
    }


def _rows_after(source: RowSource, start: Point, end: Point, selection: Selection) -> Iterator[StateRow]:
    """Yield the rows that are before the end and not before the start, in fold order."""
    between = replace(decisive_rows(end, selection), snapshot_ms=None, after_commit_id=start.commit_id)
    yield from (row for row in source.rows(between) if end.includes(row) and not start.includes(row))


def _rows_of_both(start: Point, end: Point, selection: Selection) -> RowFilter:
    """Return the filter of the rows from the base of the first point on, to the last one."""
    is_open = start.until_ms is None or end.until_ms is None
    return replace(
        decisive_rows(start, selection),
        record_types=SHARE_PARTITION_TYPES,
        through_commit_id=max(start.through_commit_id, end.through_commit_id),
        until_ms=None if is_open else max(start.until_ms or 0, end.until_ms or 0),
        columns=PARTITION_COLUMNS,
    )


def _check_selected(
    selection: Selection,
    before: FoldedState,
    after: FoldedState,
    partitions: Mapping[str, Iterable[PartitionChange]],
    first: str,
    last: str,
) -> None:
    changes = [change for of_group in partitions.values() for change in of_group]
    now = [change.group_id for change in changes if change.is_now]
    try:
        selection.check({*after.groups, *now}, bool(now), last)
    except (GroupIdNotFoundError, UnknownTopicError):
        then = [change.group_id for change in changes if change.was]
        selection.check({*before.groups, *then}, bool(then), first)


def partition_change(rows: Iterable[StateRow], start: Point, end: Point) -> PartitionChange | None:
    """Return a share-partition at two points from its rows; None if none of them is before the last one.

    Raises:
        StateTableError: a row contradicts the rows before it.
    """
    before: FoldedGroup | None = None
    after: FoldedGroup | None = None
    history: PartitionHistory | None = None
    row: StateRow | None = None
    for row in rows:
        is_before = decides(row, start)
        if is_before:
            before = before or FoldedGroup(row.group_id)
            advance_group(before, row)
        if decides(row, end):
            if not is_before and row.record_type is not RecordType.TABLE_SNAPSHOT:
                history = history or _begun_history(row, before)
                history.apply(row)
            after = after or FoldedGroup(row.group_id)
            advance_group(after, row)
    if row is None or (before is None and after is None):
        return None
    key = (row.topic_id, row.partition)
    was = None if before is None else only_partition(before)
    now = None if after is None else only_partition(after)
    document = _partition_diff(key, was, now, history)
    return PartitionChange(row.group_id, key, was is not None, now is not None, document)


def _begun_history(row: StateRow, before: FoldedGroup | None) -> PartitionHistory:
    """Return the last states of the records that were in flight at the first point; rows since then follow."""
    history = PartitionHistory(row.topic, row.topic_id, row.partition)
    folded = None if before is None else only_partition(before)
    if folded is not None:
        history.records = RunMap(run._replace(deadline_ms=0) for run in folded.share_partition.runs)
    return history


def _group_diff(
    group_id: str, before: FoldedState, after: FoldedState, partitions: Iterable[PartitionChange]
) -> dict[str, Any] | None:
    """Return the difference of a group; None if there is none."""
    old, new = (state.groups.get(group_id, FoldedGroup(group_id)) for state in (before, after))
    members = _member_diff(old.metadata, new.metadata)
    config = _config_diff(old.metadata.config_overrides, new.metadata.config_overrides)
    ordered = sorted(partitions, key=lambda change: change.key)
    documents = [change.document for change in ordered if change.document is not None]
    fields = {
        "state": (old.metadata.name, new.metadata.name),
        "group_epoch": (old.metadata.group_epoch, new.metadata.group_epoch),
        "is_paused": (old.metadata.pause is not None, new.metadata.pause is not None),
        "quarantine": (_quarantine(old), _quarantine(new)),
        "dead_letter_failure": (old.dead_letter_failure, new.dead_letter_failure),
    }
    changes = {name: {"from": was, "to": now} for name, (was, now) in fields.items() if was != now}
    if not (changes or config or documents or any(members.values())):
        return None
    return {"group_id": group_id, "changes": changes, "config": config, **members, "partitions": documents}


def _quarantine(group: FoldedGroup) -> dict[str, str]:
    return {role.value: reason for role, reason in sorted(group.failures.items())}


def _config_diff(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, dict[str, str | None]]:
    return {
        key: {"from": old.get(key), "to": new.get(key)} for key in sorted({*old, *new}) if old.get(key) != new.get(key)
    }


def _member_diff(old: GroupState, new: GroupState) -> dict[str, list[dict[str, Any]]]:
    joined = [_member(new, m) for member_id, m in sorted(new.members.items()) if member_id not in old.members]
    left = [_member(old, m) for member_id, m in sorted(old.members.items()) if member_id not in new.members]
    both = sorted(old.members.keys() & new.members.keys())
    pairs = [(_member(old, old.members[m]), _member(new, new.members[m])) for m in both]
    return {
        "members_joined": joined,
        "members_left": left,
        "members_changed": [{"from": was, "to": now} for was, now in pairs if was != now],
    }


def _member(group: GroupState, member: Member) -> dict[str, Any]:
    assignment = {topic_name(group, topic_id): list(p) for topic_id, p in member.assignment.items() if p}
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "assignment": dict(sorted(assignment.items())),
    }


def _partition_diff(
    key: tuple[str, int],
    was: FoldedPartition | None,
    now: FoldedPartition | None,
    history: PartitionHistory | None,
) -> dict[str, Any] | None:
    """Return the difference of a share-partition; None if there is none."""
    folded = now or was
    if folded is None and history is None:
        return None
    starts = [None if p is None else p.share_partition.start_offset for p in (was, now)]
    epochs = [None if p is None else p.state_epoch for p in (was, now)]
    before = RunMap() if was is None else was.share_partition.runs
    records = [] if history is None else list(_record_changes(before, history.records))
    if not records and starts[0] == starts[1] and epochs[0] == epochs[1]:
        return None
    topic = folded.topic if folded is not None else history.topic if history is not None else ""
    return {
        "topic": topic,
        "topic_id": key[0],
        "partition": key[1],
        "start_offset": {"from": starts[0], "to": starts[1]},
        "state_epoch": {"from": epochs[0], "to": epochs[1]},
        "records": records,
    }


_Change = tuple[str | None, int, str, str, int, str]
"""State, delivery count and member before and after; the state is None before a record was in flight."""


def _record_changes(before: RunMap, after: RunMap) -> Iterator[dict[str, Any]]:
    """Yield the ranges of records whose state, delivery count or member differs; as few as possible."""
    changes: RangeMap[_Change] = RangeMap()
    for now in after:
        parts = before.overlapping(now.first_offset, now.last_offset)
        for was in parts:
            if (was.state, was.delivery_count, was.member_id) != (now.state, now.delivery_count, now.member_id):
                of_part = (was.state.name, was.delivery_count, was.member_id, *_side(now))
                changes.assign(was.first_offset, was.last_offset, of_part)
        known = [(part.first_offset, part.last_offset) for part in parts]
        for low, high in gaps(now.first_offset, now.last_offset, known):
            if now.state is not RecordState.AVAILABLE or now.delivery_count:
                changes.assign(low, high, (None, 0, "", *_side(now)))
    for first, last, (state, count, member_id, to_state, to_count, to_member_id) in changes:
        yield {
            "first_offset": first,
            "last_offset": last,
            "from_state": state,
            "to_state": to_state,
            "from_delivery_count": count,
            "to_delivery_count": to_count,
            "from_member_id": member_id,
            "to_member_id": to_member_id,
        }


def _side(run: Run) -> tuple[str, int, str]:
    return run.state.name, run.delivery_count, run.member_id
