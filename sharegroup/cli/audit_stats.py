"""`sharegroup audit stats`: the figures of groups over their whole history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import click
from rich.console import RenderableType

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.extent import iso_time
from sharegroup.audit.statistics.stats import stats
from sharegroup.cli.audit_lineage import completeness_text
from sharegroup.cli.audit_source import rows_of, selects_partitions
from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.output import JSON, output_option, print_json, print_text, table

_DURATIONS = {"MEAN-MS": "mean_ms", "P50-MS": "p50_ms", "P99-MS": "p99_ms", "MAX-MS": "max_ms"}
_SHOWN_RANGES = 5


@click.command("stats")
@click.option("--check-gaps", is_flag=True, help="Read the gaps that members reported again from the log.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Length of the lists.")
@selects_partitions
@needs_state_table
@output_option
def stats_command(check_gaps: bool, top: int, selection: Selection, site: Site, output: str) -> None:
    """Show the figures of groups over their history.

    Records by state, time in each state, deliveries of a record, members by the time that they take, records that were
    delivered most often or archived at the limit, records that held the start offset and for how long, and the gaps
    that members reported. With --check-gaps the log is read at those offsets: a gap that has a record is shown.

    \b
    Example:
      sharegroup audit stats --group orders
      sharegroup audit stats --group orders --check-gaps --output json
    """
    with site.open_log() if check_gaps else nullcontext() as log:
        document = stats(rows_of(site), selection, site.settings.broker, log, top)
    if output == JSON:
        print_json(document)
    else:
        print_text(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    for group in document["groups"]:
        yield f"Group {group['group_id']}"
        yield from _records(group)
        yield from _members(group)
        yield from _poison(group)
        yield from _pins(group)
        yield from _gaps(group)
    if not document["groups"]:
        yield "No group."
    yield from completeness_text(document["history_start"])


def _records(group: Mapping[str, Any]) -> Iterator[RenderableType]:
    columns = {
        "START-OFFSET": "start_offset",
        "ACCEPTED": "accepted_count",
        "ARCHIVED": "archived_count",
        "WAITING": "waiting_count",
        "REDELIVERED": "redelivered_count",
        "MOST-DELIVERIES": "highest_delivery_count",
    }
    rows = [(p["topic"], p["partition"], *(p[name] for name in columns.values())) for p in group["partitions"]]
    if rows:
        yield table(("TOPIC", "PARTITION", *columns), rows, ("PARTITION", *columns))
    times = group["time_in_state"].items()
    rows_of_times = [(state, t["record_count"], *(t[name] for name in _DURATIONS.values())) for state, t in times]
    yield table(("TIME-IN-STATE", "RECORDS", *_DURATIONS), rows_of_times, ("RECORDS", *_DURATIONS))
    if group["deliveries_per_record"]:
        rows_of_counts = list(group["deliveries_per_record"].items())
        yield table(("DELIVERIES", "RECORDS"), rows_of_counts, ("DELIVERIES", "RECORDS"))


def _members(group: Mapping[str, Any]) -> Iterator[RenderableType]:
    counts = {
        "ACQUIRED": "acquired_count",
        "ACCEPTED": "accepted_count",
        "RELEASED": "released_count",
        "REJECTED": "rejected_count",
        "TIMED-OUT": "lock_timeout_count",
    }
    rows = [
        (
            member["member_id"],
            member["client_id"],
            *(member[name] for name in counts.values()),
            *(member["time_to_acknowledge"][name] for name in _DURATIONS.values()),
        )
        for member in group["members"]
    ]
    if rows:
        yield table(("MEMBER", "CLIENT-ID", *counts, *_DURATIONS), rows, (*counts, *_DURATIONS))


def _poison(group: Mapping[str, Any]) -> Iterator[RenderableType]:
    most = [(_partition(r), _range(r), r["delivery_count"], r["state"]) for r in group["most_delivered"]]
    if most:
        yield table(("MOST-DELIVERED", "OFFSETS", "DELIVERIES", "STATE"), most, ("DELIVERIES",))
    given_up = [
        (
            _partition(r),
            _range(r),
            r["delivery_count"],
            r["cause"],
            r["client_id"] or r["member_id"],
            iso_time(r["time_ms"]),
        )
        for r in group["archived_at_limit"]
    ]
    if given_up:
        titles = ("ARCHIVED-AT-LIMIT", "OFFSETS", "DELIVERIES", "CAUSE", "MEMBER", "TIME")
        yield table(titles, given_up, ("DELIVERIES",))


def _pins(group: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [
        (
            _partition(pin),
            pin["offset"],
            iso_time(pin["since_ms"]),
            pin["duration_ms"],
            pin["finished_behind_count"],
            pin["state"],
            pin["delivery_count"],
            pin["client_id"] or pin["member_id"] or None,
            pin["ended_by"] or ("still" if pin["until_ms"] is None else None),
        )
        for pin in group["head_of_line_pins"]
    ]
    if rows:
        numbers = ("OFFSET", "MS", "FINISHED-BEHIND", "DELIVERIES")
        titles = (
            "HEAD-OF-LINE",
            "OFFSET",
            "SINCE",
            "MS",
            "FINISHED-BEHIND",
            "STATE",
            "DELIVERIES",
            "MEMBER",
            "ENDED-BY",
        )
        yield table(titles, rows, numbers)


def _gaps(group: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [
        (_partition(gap), gap["record_count"], _ranges(gap["ranges"]), gap["reason"], *_checked(gap["check"]))
        for gap in group["gaps"]
    ]
    if rows:
        titles = ("GAPS", "RECORDS", "OFFSETS", "REASON", "CHECKED", "NOT-CHECKED", "HAVE-A-RECORD")
        yield table(titles, rows, ("RECORDS", "CHECKED", "NOT-CHECKED"))


def _checked(check: Mapping[str, Any] | None) -> tuple[object, ...]:
    if check is None:
        return None, None, None
    return check["checked_count"], check["unchecked_count"], _ranges(check["with_record"]) or "none"


def _partition(entry: Mapping[str, Any]) -> str:
    return f"{entry['topic']}-{entry['partition']}"


def _range(entry: Mapping[str, Any]) -> str:
    return f"{entry['first_offset']}-{entry['last_offset']}"


def _ranges(ranges: list[list[int]]) -> str:
    shown = [f"{first}-{last}" for first, last in ranges[:_SHOWN_RANGES]]
    more = [f"{len(ranges) - _SHOWN_RANGES} more"] if len(ranges) > _SHOWN_RANGES else []
    return ", ".join([*shown, *more])
