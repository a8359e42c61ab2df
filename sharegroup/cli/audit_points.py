"""`sharegroup audit as-of` and `audit diff`: the state at a point, and the difference of two points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.console import RenderableType

from sharegroup.audit.history.as_of import Selection, as_of
from sharegroup.audit.history.diff import diff
from sharegroup.audit.history.points import LATEST
from sharegroup.audit.history.row_source import RowSource
from sharegroup.cli.audit_source import needs_rows, selects_partitions
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, table

_SHOWN_RANGES = 20
"""Ranges of a share-partition that are shown as text; JSON has all."""

_POINT_HELP = "ISO-8601 time, epoch ms, commit:ID, or PARTITION:OFFSET of the request log"


@click.command("as-of")
@click.option("--at", metavar="POINT", default=LATEST, show_default=True, help=f"{_POINT_HELP}.")
@selects_partitions
@needs_rows
@output_option
def as_of_command(at: str, selection: Selection, source: RowSource, output: str) -> None:
    """Show the full state of groups at a point: start offsets, runs, locks, members, configuration.

    A point is a time (all cuts of the processor at or before it), a commit, or a position of the request log (the cut
    that applied the message there, and all before it). Times without a zone are in UTC.

    \b
    Example:
      sharegroup audit as-of --at 2026-11-22T20:15:00Z --group orders
      sharegroup audit as-of --at commit:17 --topic orders --partition 0
      sharegroup audit as-of --at 0:342 --output json
    """
    document = as_of(source, at, selection)
    if output == JSON:
        print_json(document)
    else:
        print_text(*_state_parts(document))


def _state_parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield f"State at {_point_text(document)}."
    for group in document["groups"]:
        titles = ("GROUP", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS", "CONFIG")
        config = " ".join(f"{key}={value}" for key, value in group["config"].items()) or None
        cells = (group["group_id"], group["state"], group["group_epoch"], group["assignment_epoch"])
        yield table(titles, [(*cells, len(group["members"]), config)], titles[2:5])
        if group["members"]:
            rows = [(m["member_id"], m["client_id"], m["member_epoch"], _assignment(m)) for m in group["members"]]
            yield table(("MEMBER", "CLIENT-ID", "MEMBER-EPOCH", "ASSIGNMENT"), rows, ("MEMBER-EPOCH",))
        for partition in group["partitions"]:
            yield from _partition_parts(partition)


def _partition_parts(partition: Mapping[str, Any]) -> Iterator[RenderableType]:
    titles = ("TOPIC", "PARTITION", "START-OFFSET", "NEXT-OFFSET", "FINISHED-ABOVE", "STATE-EPOCH")
    names = ("topic", "partition", "start_offset", "next_offset", "delivery_complete_count", "state_epoch")
    yield table(titles, [[partition[name] for name in names]], titles[1:])
    holders = {lock["first_offset"]: lock for lock in partition["locks"]}
    rows = []
    for run in partition["runs"][:_SHOWN_RANGES]:
        lock = holders.get(run["first_offset"])
        holder = (lock["client_id"] or lock["member_id"]) if lock else None
        rest = f"{lock['remaining_ms']:,} ms" if lock else None
        rows.append((_offsets(run), run["state"], run["delivery_count"], holder, rest))
    if rows:
        yield table(("OFFSETS", "STATE", "DELIVERIES", "MEMBER", "LOCK-LEFT"), rows, ("DELIVERIES", "LOCK-LEFT"))
    writes = [
        (write["address"], write["version"], _offsets(write), f"{write['age_ms']:,} ms")
        for write in partition["open_writes"][:_SHOWN_RANGES]
    ]
    if writes:
        yield table(("SINK", "OPEN-WRITE", "WITHIN-OFFSETS", "AGE"), writes, ("OPEN-WRITE", "AGE"))
    yield from _more(len(partition["runs"]), "run")


@click.command("diff")
@click.option("--from", "first", metavar="POINT", required=True, help=f"The earlier point: {_POINT_HELP}.")
@click.option("--to", "last", metavar="POINT", default=LATEST, show_default=True, help="The later point.")
@selects_partitions
@needs_rows
@output_option
def diff_command(first: str, last: str, selection: Selection, source: RowSource, output: str) -> None:
    """Show the changes between two points.

    Moves of start offsets, records by their change of state, members that joined and left, changes of configuration.
    Points have the forms of `audit as-of`.

    \b
    Example:
      sharegroup audit diff --from 2026-11-22T20:15:00Z --group orders
      sharegroup audit diff --from commit:17 --to commit:20
    """
    document = diff(source, first, last, selection)
    if output == JSON:
        print_json(document)
    else:
        print_text(*_diff_parts(document))


def _diff_parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield f"From {_point_text(document['from'])} to {_point_text(document['to'])}."
    if not document["groups"]:
        yield "Nothing changed."
    for group in document["groups"]:
        yield f"Group {group['group_id']}"
        changes = {**group["changes"], **group["config"]}
        rows = [(name, change["from"], change["to"]) for name, change in changes.items()]
        if rows:
            yield table(("CHANGED", "FROM", "TO"), rows)
        members = [
            *(("joined", member) for member in group["members_joined"]),
            *(("left", member) for member in group["members_left"]),
            *(("changed", change["to"]) for change in group["members_changed"]),
        ]
        if members:
            cells = [(what, m["member_id"], m["client_id"], _assigned(m["assignment"])) for what, m in members]
            yield table(("MEMBER", "ID", "CLIENT-ID", "ASSIGNMENT"), cells)
        for partition in group["partitions"]:
            yield from _partition_diff_parts(partition)


def _partition_diff_parts(partition: Mapping[str, Any]) -> Iterator[RenderableType]:
    start, epoch = partition["start_offset"], partition["state_epoch"]
    titles = ("TOPIC", "PARTITION", "START-OFFSET", "TO", "STATE-EPOCH", "TO")
    cells = (partition["topic"], partition["partition"], start["from"], start["to"], epoch["from"], epoch["to"])
    yield table(titles, [cells], titles[1:])
    rows = [
        (
            _offsets(change),
            change["from_state"],
            change["from_delivery_count"],
            change["to_state"],
            change["to_delivery_count"],
            change["to_member_id"] or None,
        )
        for change in partition["records"][:_SHOWN_RANGES]
    ]
    if rows:
        yield table(("OFFSETS", "FROM", "DELIVERIES", "TO", "DELIVERIES", "HELD-BY"), rows, ("DELIVERIES",))
    yield from _more(len(partition["records"]), "range")


def _point_text(point: Mapping[str, Any]) -> str:
    return f"{point['time']} (commit {point['commit_id']})"


def _offsets(entry: Mapping[str, Any]) -> str:
    return f"{entry['first_offset']}-{entry['last_offset']}"


def _assignment(member: Mapping[str, Any]) -> str | None:
    return _assigned({topic["topic"]: topic["partitions"] for topic in member["assignment"]})


def _assigned(assignment: Mapping[str, list[int]]) -> str | None:
    """Return an assignment as Kafka's tool shows it: `orders:0,1;payments:2`."""
    return ";".join(f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in assignment.items()) or None


def _more(count: int, noun: str) -> Iterator[str]:
    if count > _SHOWN_RANGES:
        yield f"{counted(count - _SHOWN_RANGES, f'more {noun}')}: see --output json."
