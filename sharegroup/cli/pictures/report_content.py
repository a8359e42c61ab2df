"""The content of a report: the history of a group, read from the state table and the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import replace
from typing import Protocol, TypeVar

import pyarrow.compute as pc

from sharegroup.audit.history.extent import read_extent
from sharegroup.audit.history.row_source import TableRows
from sharegroup.audit.timelines.log_ends import LogEnds, log_ends
from sharegroup.audit.timelines.time_axis import TimeAxis
from sharegroup.audit.timelines.timeline import GroupTimeline, group_timeline
from sharegroup.cli.pictures.report_page import Report
from sharegroup.cli.pictures.texts import time_text
from sharegroup.config.group import effective_group_config
from sharegroup.config.loader import Settings
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError, ShareGroupError
from sharegroup.logs.open import open_log
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter
from sharegroup.state.schema import StoredRows

MAX_PARTITIONS = 8
"""Share-partitions with charts of their own: more would make a page that no browser scrolls well."""

Value = TypeVar("Value", covariant=True)
Item = TypeVar("Item")


class Counted(Sized, Iterable[Value], Protocol[Value]):
    """Values whose number is known before they are read."""


class Track(Protocol):
    """Shows the progress of a reading."""

    def __call__(self, items: Counted[Item], action: str) -> Iterable[Item]:
        """Return the items, and show how many were read."""
        ...


def untracked(items: Counted[Item], action: str) -> Iterable[Item]:
    """Return the items, and show nothing."""
    return items


def group_report(
    settings: Settings,
    group_id: str,
    topic: str | None = None,
    partition: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    track: Track = untracked,
) -> Report:
    """Return the report about a group; `report_html` draws it.

    Args:
        topic: only its share-partitions of this topic.
        partition: only this partition of the topic.
        since_ms: from then on; epoch ms. None is the group's first row.
        until_ms: up to then; epoch ms. None is its last row.

    Raises:
        ConfigurationError: there are no rows of these share-partitions in this time.
        GroupIdNotFoundError: the table has no such group.
        StateTableError: there is no state table, or it cannot be read.
    """
    rows, notes = _rows(settings.processor.state_table_path, group_id)
    if not len(rows):
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.", "Check its name.")
    axis, remarks = _axis(rows, since_ms, until_ms)
    notes += remarks
    timeline = group_timeline(group_id, track(rows, "reading the state table"), axis, topic, partition)
    if not timeline.partitions:
        named = f" of {topic}{'' if partition is None else f'-{partition}'}" if topic else ""
        raise ConfigurationError(
            f"Group {group_id} has no share-partition{named} from {time_text(axis.since_ms)} to "
            f"{time_text(axis.until_ms)} UTC.",
            "Name another --topic, --partition, --since or --until.",
        )
    return _report(settings, timeline, notes, track)


def _rows(path: str, group_id: str) -> tuple[StoredRows, list[str]]:
    """Return the rows of a group, and what is left out: where rows are lost, all up to the next known state."""
    reader = StateTableReader(path, stays_open=True)
    of_group = RowFilter(group_id=group_id)
    lost_files = reader.lost_files()
    if not lost_files:
        return reader.stored(of_group), []
    base = read_extent(TableRows(path)).first_base
    kept = replace(of_group, snapshot_ms=base.snapshot_ms, after_commit_id=base.commit_id)
    note = f"Rows are lost, since a data file was deleted: times before {time_text(base.time_ms)} UTC cannot be shown."
    return reader.stored(kept, lost_files), [note]


def _axis(rows: StoredRows, since_ms: int | None, until_ms: int | None) -> tuple[TimeAxis, list[str]]:
    """Return the time axis within the times of the rows, and what was left out."""
    limits = pc.min_max(rows.table["time_ms"]).as_py()
    first_ms, last_ms = limits["min"], limits["max"]
    since_ms = first_ms if since_ms is None else since_ms
    until_ms = last_ms if until_ms is None else until_ms
    if since_ms > last_ms or until_ms < first_ms or since_ms > until_ms:
        raise ConfigurationError(
            f"No rows are from {time_text(since_ms)} to {time_text(until_ms)} UTC.",
            f"The group has rows from {time_text(first_ms)} to {time_text(last_ms)} UTC.",
        )
    notes = []
    if since_ms < first_ms:
        notes.append(f"The group's first row is of {time_text(first_ms)} UTC: earlier times cannot be shown.")
    if until_ms > last_ms:
        notes.append(f"The group's last row is of {time_text(last_ms)} UTC: later times cannot be shown.")
    return TimeAxis(max(since_ms, first_ms), min(until_ms, last_ms)), notes


def _report(settings: Settings, timeline: GroupTimeline, notes: Sequence[str], track: Track) -> Report:
    by_deliveries = sorted(
        timeline.partitions.items(),
        key=lambda item: (-item[1].record_count_by_delivery.total(), item[1].topic, item[1].partition),
    )
    shown = sorted(by_deliveries[:MAX_PARTITIONS], key=lambda item: (item[1].topic, item[1].partition))
    ends = _log_ends(settings, timeline, [key for key, _ in shown], track)
    all_notes = list(notes)
    if len(by_deliveries) > len(shown):
        all_notes.append(
            f"The {len(shown)} share-partitions with most deliveries have charts; {len(by_deliveries) - len(shown):,} "
            "more are in the summary only. Name one by --topic and --partition."
        )
    reasons: dict[str, list[str]] = {}
    for key, log_end in ends.items():
        if log_end.reason:
            reasons.setdefault(log_end.reason, []).append(timeline.partitions[key].name)
    all_notes += [f"Log end and lag are not complete for {', '.join(who)}: {why}" for why, who in reasons.items()]
    effective = effective_group_config(settings.broker, timeline.config_overrides)
    return Report(timeline, ends, all_notes, effective.share_partition_limits.delivery_count_limit)


def _log_ends(
    settings: Settings, timeline: GroupTimeline, keys: Sequence[tuple[str, int]], track: Track
) -> dict[tuple[str, int], LogEnds]:
    """Return the ends of logs over time; without a log, all with the reason."""
    try:
        with open_log(settings.log, must_exist=True) as log:
            return {
                key: log_ends(log, timeline.partitions[key].topic, *key, timeline.axis)
                for key in track(keys, "reading the log")
            }
    except ShareGroupError as error:
        return {key: LogEnds((), f"The log cannot be opened: {error.message}") for key in keys}
