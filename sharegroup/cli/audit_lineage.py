"""`sharegroup audit lineage`: every delivery of a record, a range, a member, or a time window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.console import RenderableType

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.extent import HistoryStart, iso_time
from sharegroup.audit.history.lineage import LineageRequest, lineage
from sharegroup.audit.history.points import parse_time
from sharegroup.audit.history.row_source import RowSource
from sharegroup.cli.audit_source import needs_rows, selects_partitions
from sharegroup.cli.flags import parse_offsets
from sharegroup.cli.output import JSON, output_option, print_json, print_text, table


@click.command("lineage")
@click.option("--offset", "offsets", metavar="OFFSET[-LAST]", help="Only this record, or the records of this range.")
@click.option("--member", metavar="ID", help="Only deliveries to the members with this member id or client id.")
@click.option("--since", metavar="TIME", help="Only deliveries that began at this time or later: ISO-8601 or epoch ms.")
@click.option("--until", metavar="TIME", help="Only deliveries that began at this time or earlier.")
@selects_partitions
@needs_rows
@output_option
def lineage_command(
    offsets: str | None,
    member: str | None,
    since: str | None,
    until: str | None,
    selection: Selection,
    source: RowSource,
    output: str,
) -> None:
    """Show every delivery of records: to whom, when, which delivery it was, and its outcome.

    Choose a record or a range (--topic, --partition, --offset), a member, or a time window, or several of them. Changes
    of records that nobody held are listed, too: a dead-letter record was written, or the start offset passed them.

    \b
    Example:
      sharegroup audit lineage --topic orders --partition 0 --offset 17
      sharegroup audit lineage --topic orders --partition 0 --offset 10-20
      sharegroup audit lineage --group orders --member anna
      sharegroup audit lineage --since 2026-11-22T20:15:00Z \\
          --until 2026-11-22T20:20:00Z
    """
    if offsets is not None and (selection.topic is None or selection.partition is None):
        raise click.UsageError("A record is named by --topic, --partition and --offset together.")
    if (selection.topic, member, since, until) == (None, None, None, None):
        raise click.UsageError("Choose records by --topic, --member, --since or --until.")
    request = LineageRequest(
        selection=selection,
        offsets=None if offsets is None else parse_offsets(offsets, "--offset"),
        member=member,
        since_ms=None if since is None else parse_time(since),
        until_ms=None if until is None else parse_time(until),
    )
    document = lineage(source, request)
    if output == JSON:
        print_json(document)
    else:
        print_text(*_parts({**document, "deliveries": [asdict(delivery) for delivery in document["deliveries"]]}))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    deliveries = document["deliveries"]
    titles = ("ACQUIRED", "ENDED", "OUTCOME", "TO", "GROUP", "TOPIC-PARTITION", "OFFSETS", "DELIVERY", "MEMBER")
    if deliveries:
        rows = [
            (
                _time(d["acquired_ms"]),
                _time(d["ended_ms"]),
                d["outcome"],
                d["to_state"],
                d["group_id"],
                f"{d['topic']}-{d['partition']}",
                f"{d['first_offset']}-{d['last_offset']}",
                d["delivery_count"],
                d["client_id"] or d["member_id"],
                d["acquire_request_offset"],
                d["reason"],
            )
            for d in deliveries
        ]
        yield table((*titles, "REQUEST", "REASON"), rows, ("DELIVERY", "REQUEST"))
    else:
        start = document["history_start"]
        yield f"No delivery. The history begins with commit {start.commit_id}, {start.time}."
    others = [asdict(change) for change in document["other_changes"]]
    if others:
        columns = ("TIME", "CAUSE", "FROM", "TO", "GROUP", "TOPIC-PARTITION", "OFFSETS", "REQUEST")
        rows_of_others = [
            (
                _time(c["time_ms"]),
                c["cause"],
                c["from_state"],
                c["to_state"],
                c["group_id"],
                f"{c['topic']}-{c['partition']}",
                f"{c['first_offset']}-{c['last_offset']}",
                c["request_offset"],
            )
            for c in others
        ]
        yield table(columns, rows_of_others, ("REQUEST",))
    yield from completeness_text(document["history_start"])


def completeness_text(start: HistoryStart) -> Iterator[str]:
    """Yield the line about a history that does not have all rows."""
    if not start.is_whole:
        yield f"The history is complete from commit {start.commit_id}, {start.time}, on: earlier rows are gone."


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_time(time_ms)
