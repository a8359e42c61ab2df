"""Statistics of groups, from all of the history that the table has.

Share-partitions are followed one by one, and their figures put together: memory grows with the records in flight and
with the result, not with the history, and Spark follows several share-partitions at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import Any

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.extent import read_extent
from sharegroup.audit.history.group_history import PartitionCounts
from sharegroup.audit.history.known_names import KnownNames, read_known_names
from sharegroup.audit.history.row_source import RowSource
from sharegroup.audit.statistics.durations import Durations
from sharegroup.audit.statistics.gap_check import check_gaps
from sharegroup.audit.statistics.head_of_line import Pin
from sharegroup.audit.statistics.highest import Highest
from sharegroup.audit.statistics.partition_stats import MEASURED_STATES, PartitionStats, partition_stats
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.logs.port import Log
from sharegroup.state.fold import SHARE_PARTITION_TYPES

_COLUMNS = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "time_ms",
    "start_offset",
    "delivery_complete_count",
    "transitions",
    "runs",
)

COUNTED_CAUSES = {
    "acquired_count": Cause.ACQUIRE,
    "accepted_count": Cause.ACCEPT,
    "released_count": Cause.RELEASE,
    "rejected_count": Cause.REJECT,
    "renewed_count": Cause.RENEW,
    "gap_count": Cause.GAP,
    "unread_count": Cause.UNREAD,
    "lock_timeout_count": Cause.LOCK_TIMEOUT,
}
"""Figure of a member → cause of the transitions that it counts."""


def stats(
    source: RowSource, selection: Selection, broker: BrokerConfig, log: Log | None = None, limit: int = 10
) -> dict[str, Any]:
    """Return the statistics of groups as a JSON object.

    Args:
        broker: defaults of the groups' configuration.
        log: read the gaps that members reported again from this log; None checks none.
        limit: most entries of lists that may have any number: poison records and pins.

    Raises:
        PointOutsideHistoryError: the table has no commit.
        GroupIdNotFoundError: there was never such a group.
        UnknownTopicError: no group ever had a state of such a topic.
    """
    extent = read_extent(source)
    names = read_known_names(source, extent, selection.group_id)
    names.check(selection)
    base = extent.first_base
    of_partitions = replace(
        selection.row_filter(),
        record_types=SHARE_PARTITION_TYPES,
        snapshot_ms=base.snapshot_ms,
        after_commit_id=base.commit_id,
        through_commit_id=extent.last_commit_id,
        columns=_COLUMNS,
    )
    partitions: dict[str, list[PartitionStats]] = {group_id: [] for group_id in names.group_ids}
    for partition in source.by_partition(of_partitions, partial(partition_stats, limit=limit)):
        partitions.setdefault(partition.group_id, []).append(partition)
    documents = []
    for group_id, of_group in sorted(partitions.items()):
        document = group_stats(group_id, of_group, names, extent.last_ms, limit)
        if log is not None:
            config = effective_group_config(broker, names.config_overrides.get(group_id, {}))
            _check_gaps(document, log, IsolationLevel(config.share_isolation_level))
        documents.append(document)
    return {"history_start": extent.start, "groups": documents}


def group_stats(
    group_id: str, partitions: Iterable[PartitionStats], names: KnownNames, now_ms: int, limit: int
) -> dict[str, Any]:
    """Return the statistics of a group as a JSON object.

    Args:
        names: client ids of members.
        now_ms: end of the history; epoch ms.
        limit: most entries of lists that may have any number.
    """
    client_ids = {member_id: name for (of_group, member_id), name in names.client_ids.items() if of_group == group_id}
    ordered = sorted(partitions, key=lambda p: (p.counts.topic, p.counts.topic_id, p.counts.partition))
    return {
        "group_id": group_id,
        "partitions": [_partition_document(partition) for partition in ordered],
        "members": _member_documents(ordered, client_ids),
        "time_in_state": {
            state.name: asdict(_merged(p.time_in_state[state] for p in ordered).summary()) for state in MEASURED_STATES
        },
        "deliveries_per_record": _deliveries_per_record(ordered),
        "most_delivered": _most_delivered(ordered, limit),
        "archived_at_limit": _archived_at_limit(ordered, client_ids, limit),
        "head_of_line_pins": _pin_documents(ordered, client_ids, now_ms, limit),
        "gaps": [document for partition in ordered for document in _gap_documents(partition)],
    }


def _gap_documents(partition: PartitionStats) -> Iterator[dict[str, Any]]:
    ranges: dict[str, list[list[int]]] = defaultdict(list)
    for first, last, reason in partition.gaps:
        ranges[reason].append([first, last])
    for reason, of_reason in sorted(ranges.items()):
        yield {
            **_name(partition.counts),
            "reason": reason,
            "record_count": sum(last - first + 1 for first, last in of_reason),
            "ranges": of_reason,
            "check": None,
        }


def _check_gaps(document: Mapping[str, Any], log: Log, level: IsolationLevel) -> None:
    """Add the result of their check to the gaps of a group's document."""
    for gap in document["gaps"]:
        ranges = [(first, last) for first, last in gap["ranges"]]
        checked = check_gaps(log, gap["topic"], gap["topic_id"], gap["partition"], ranges, level)
        gap["check"] = {**asdict(checked), "with_record": [list(offsets) for offsets in checked.with_record]}


def _merged(distributions: Iterable[Durations]) -> Durations:
    merged = Durations()
    for distribution in distributions:
        merged.merge(distribution)
    return merged


def _name(counts: PartitionCounts) -> dict[str, Any]:
    return {"topic": counts.topic, "topic_id": counts.topic_id, "partition": counts.partition}


def _partition_document(partition: PartitionStats) -> dict[str, Any]:
    counts, records = partition.counts, partition.record_counts_by_state
    by_state: Counter[RecordState] = Counter()
    for (state, _), record_count in records.items():
        by_state[state] += record_count
    return {
        **_name(counts),
        "start_offset": counts.start_offset,
        "accepted_count": by_state[RecordState.ACKNOWLEDGED],
        "archived_count": by_state[RecordState.ARCHIVED],
        "waiting_count": sum(record_count for state, record_count in by_state.items() if not state.is_terminal),
        "redelivered_count": sum(n for (_, delivery_count), n in records.items() if delivery_count > 1),
        "highest_delivery_count": max((delivery_count for _, delivery_count in records), default=0),
        "archived_at_limit_count": counts.archived_at_limit_count,
        "record_count_by_cause": {c.value: n for c, n in sorted(counts.record_count_by_cause.items())},
    }


def _member_documents(partitions: Iterable[PartitionStats], client_ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the members, those that take longest first."""
    counts: Counter[tuple[str, Cause]] = Counter()
    times: dict[str, Durations] = defaultdict(Durations)
    for partition in partitions:
        counts.update(partition.record_counts)
        for member_id, durations in partition.time_to_acknowledge.items():
            times[member_id].merge(durations)
    documents = [
        {
            "member_id": member_id,
            "client_id": client_ids.get(member_id, ""),
            **{name: counts[member_id, cause] for name, cause in COUNTED_CAUSES.items()},
            "time_to_acknowledge": asdict(times[member_id].summary()),
        }
        for member_id in sorted({member_id for member_id, _ in counts if member_id})
    ]
    return sorted(documents, key=lambda member: -(member["time_to_acknowledge"]["p99_ms"] or 0))


def _deliveries_per_record(partitions: Iterable[PartitionStats]) -> dict[str, int]:
    counts: Counter[int] = Counter()
    for partition in partitions:
        for (_, delivery_count), record_count in partition.record_counts_by_state.items():
            counts[delivery_count] += record_count
    return {str(delivery_count): record_count for delivery_count, record_count in sorted(counts.items())}


def _most_delivered(partitions: Iterable[PartitionStats], limit: int) -> list[dict[str, Any]]:
    """Return the records that were delivered more than once, those with the most deliveries first."""
    highest: Highest[tuple[PartitionCounts, Run]] = Highest(limit)
    for partition in partitions:
        for run in partition.most_delivered:
            highest.add((run.delivery_count, run.size), (partition.counts, run))
    return [
        {
            **_name(counts),
            "first_offset": run.first_offset,
            "last_offset": run.last_offset,
            "delivery_count": run.delivery_count,
            "state": run.state.name,
        }
        for counts, run in highest
    ]


def _archived_at_limit(
    partitions: Iterable[PartitionStats], client_ids: Mapping[str, str], limit: int
) -> list[dict[str, Any]]:
    all_of_them = [
        {**_name(partition.counts), **asdict(records), "client_id": client_ids.get(records.member_id, "")}
        for partition in partitions
        for records in partition.given_up
    ]
    return list(islice(sorted(all_of_them, key=lambda records: -records["delivery_count"]), limit))


def _pin_documents(
    partitions: Iterable[PartitionStats], client_ids: Mapping[str, str], now_ms: int, limit: int
) -> list[dict[str, Any]]:
    """Return the pins, the longest first."""

    def duration_ms(pin: Pin) -> int:
        return max((now_ms if pin.until_ms is None else pin.until_ms) - pin.since_ms, 0)

    documents = [
        {
            **_name(partition.counts),
            **asdict(pin),
            "duration_ms": duration_ms(pin),
            "client_id": client_ids.get(pin.member_id, ""),
        }
        for partition in partitions
        for pin in partition.head_of_line.pins(now_ms)
    ]
    return list(islice(sorted(documents, key=lambda pin: -pin["duration_ms"]), limit))
