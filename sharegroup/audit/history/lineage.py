"""The lineage of records: every delivery of a record, a range, a member, or a time window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.deliveries import ALL_OFFSETS, ClientIds, Delivery, DeliveryTrace, OtherChange
from sharegroup.audit.history.extent import iso_time, read_extent
from sharegroup.audit.history.known_names import read_known_names
from sharegroup.audit.history.row_source import RowSource
from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.errors import ConfigurationError
from sharegroup.logs.log_clock import wall_ms
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import SHARE_PARTITION_TYPES

_COLUMNS = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "time_ms",
    "start_offset",
    "transitions",
    "runs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRequest:
    """The deliveries that are asked for: those that fulfil all conditions. None is no condition.

    Attributes:
        offsets: first and last offset of the records.
        member: the member id or the client id of the member.
        since_ms: only deliveries that began then or later; epoch ms.
        until_ms: only deliveries that began then or earlier; epoch ms.
    """

    selection: Selection
    offsets: OffsetRange | None = None
    member: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def lineage(source: RowSource, request: LineageRequest, now_ms: int | None = None) -> dict[str, Any]:
    """Return the deliveries, and the changes of records that nobody held, as a JSON object; each list by time.

    Args:
        now_ms: the time now, epoch ms; None is that of this machine's clock.

    Raises:
        ConfigurationError: the window ends before it begins.
        PointOutsideHistoryError: the table has no commit, or the window begins in the future.
        GroupIdNotFoundError: there was never such a group.
        UnknownMemberIdError: there was never such a member.
        UnknownTopicError: no group ever had such a share-partition.
    """
    extent = read_extent(source)
    if request.since_ms is not None:
        extent.check_not_future(request.since_ms, wall_ms() if now_ms is None else now_ms)
        _check_order(request.since_ms, request.until_ms)
    names = read_known_names(source, extent, request.selection.group_id)
    names.check(request.selection)
    member_ids = None if request.member is None else names.member_ids(request.member)
    base = extent.first_base
    # An end may come long after the window, so the window ends nothing here.
    of_partitions = replace(
        request.selection.row_filter(),
        record_types=SHARE_PARTITION_TYPES,
        snapshot_ms=base.snapshot_ms if request.since_ms is None else None,
        since_ms=request.since_ms,
        after_commit_id=base.commit_id,
        through_commit_id=extent.last_commit_id,
        touching=request.offsets,
        columns=_COLUMNS,
    )
    trace = partial(_partition_lineage, request=request, client_ids=names.client_ids, member_ids=member_ids)
    changes = [change for of_partition in source.by_partition(of_partitions, trace) for change in of_partition]
    return {
        "history_start": extent.start,
        "deliveries": sorted((change for change in changes if isinstance(change, Delivery)), key=_delivery_order),
        "other_changes": sorted((change for change in changes if isinstance(change, OtherChange)), key=_other_order),
    }


def _check_order(since_ms: int, until_ms: int | None) -> None:
    if until_ms is not None and since_ms > until_ms:
        raise ConfigurationError(
            f"The window begins at {iso_time(since_ms)} and ends before, at {iso_time(until_ms)}.",
            "Exchange the two times.",
        )


def _partition_lineage(
    rows: Iterable[StateRow],
    *,
    request: LineageRequest,
    client_ids: ClientIds,
    member_ids: frozenset[str] | None,
) -> list[Delivery | OtherChange]:
    """Return the deliveries and changes of a share-partition that are asked for."""
    changes = DeliveryTrace(client_ids, request.offsets or ALL_OFFSETS).follow(rows)
    return [change for change in changes if _is_asked(request, member_ids, change)]


def _is_asked(request: LineageRequest, member_ids: frozenset[str] | None, change: Delivery | OtherChange) -> bool:
    member_id, time_ms = (
        ("", change.time_ms) if isinstance(change, OtherChange) else (change.member_id, change.acquired_ms)
    )
    if member_ids is not None and member_id not in member_ids:
        return False
    if request.since_ms is not None and (time_ms is None or time_ms < request.since_ms):
        return False
    return request.until_ms is None or time_ms is None or time_ms <= request.until_ms


def _delivery_order(delivery: Delivery) -> tuple[int, str, str, str, int, int, int]:
    return (
        delivery.acquired_ms or 0,
        delivery.group_id,
        delivery.topic,
        delivery.topic_id,
        delivery.partition,
        delivery.first_offset,
        delivery.delivery_count,
    )


def _other_order(change: OtherChange) -> tuple[int, str, str, str, int, int]:
    return (
        change.time_ms,
        change.group_id,
        change.topic,
        change.topic_id,
        change.partition,
        change.first_offset,
    )
