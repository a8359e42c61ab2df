"""`sharegroup audit report`: the history of a group as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sharegroup.audit.history.points import parse_time
from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, shown
from sharegroup.cli.pictures.drawing import require_plotly
from sharegroup.cli.pictures.report_content import group_report
from sharegroup.cli.pictures.report_page import Report, report_html
from sharegroup.errors import ConfigurationError


@click.command("report")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@click.option("--topic", metavar="TOPIC", help="Only the share-partitions of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition of the topic.")
@click.option("--since", metavar="TIME", help="From then on: ISO-8601 or epoch ms.")
@click.option("--until", metavar="TIME", help="Up to then, in the same form.")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The HTML file to write; one that is there is replaced.",
)
@needs_state_table
@output_option
def report(
    group_id: str,
    topic: str | None,
    partition: int | None,
    since: str | None,
    until: str | None,
    path: Path,
    site: Site,
    output: str,
) -> None:
    """Write the history of a group as one HTML file, which needs no network.

    Start offset, log end, records in flight and lag over time; delivery counts over offset and time; the locks of each
    member and what ended them; records delivered more than once. The eight share-partitions with most deliveries
    have charts; name others by --topic and --partition. It needs the extra sharegroup[pictures].

    \b
    Example:
      sharegroup audit report --group orders --file report.html
      sharegroup audit report --group orders --topic orders \\
        --partition 0 --since 2026-11-01T00:00:00Z --file report.html
    """
    require_plotly()
    if partition is not None and topic is None:
        raise click.UsageError("A share-partition is named by --topic and --partition together.")
    document = group_report(
        site.settings,
        group_id,
        topic,
        partition,
        since_ms=None if since is None else parse_time(since),
        until_ms=None if until is None else parse_time(until),
        track=shown,
    )
    _write(path, report_html(document))
    _print_result(path, document, output)


def _write(path: Path, text: str) -> None:
    """Write the file at once: a reader sees the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigurationError(
            f"The file {path} cannot be written: {error.strerror}.", "Name another file with --file."
        ) from error


def _print_result(path: Path, report: Report, output: str) -> None:
    size_bytes = path.stat().st_size
    if output == JSON:
        print_json(
            {
                "file": str(path),
                "size_bytes": size_bytes,
                "group_id": report.group.group_id,
                "since_ms": report.group.axis.since_ms,
                "until_ms": report.group.axis.until_ms,
                "row_count": report.group.row_count,
                "charted_partitions": [report.group.partitions[key].name for key in report.ends],
                "notes": list(report.notes),
            }
        )
        return
    print_text(f"Wrote {path}: {counted(report.group.row_count, 'row')}, {size_bytes / 1_000_000:.1f} MB.")
    if report.notes:
        print_text("\n".join(report.notes))
