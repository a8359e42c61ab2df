"""`sharegroup groups reset-offsets`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from sharegroup.cli.flags import Site, needs_groups, timeout_option
from sharegroup.cli.group_view import read_groups
from sharegroup.cli.output import JSON, end_with_failures, output_option, print_json, print_text, table
from sharegroup.client.offset_reset import OffsetPlan, ResetPoint, ResetTo, TopicScope, epoch_ms, planned_offsets
from sharegroup.errors import ApiError
from sharegroup.logs.port import Log


@click.command("reset-offsets")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group, which must be empty.")
@click.option("--topic", "topics", metavar="TOPIC[:P,P]", multiple=True, help="A topic, or some partitions of it.")
@click.option("--all-topics", is_flag=True, help="All topics of the group.")
@click.option("--to-earliest", is_flag=True, help="To the start of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-datetime", metavar="TIME", help="To the first record from then on: YYYY-MM-DDThh:mm:ss.sss, UTC.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To an offset, even past the end.")
@click.option("--dry-run", is_flag=True, help="Only show the offsets.")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@timeout_option
@needs_groups
@output_option
def reset_offsets(
    group_id: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    to_offset: int | None,
    dry_run: bool,
    execute: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Set the start offsets of a group without members; needs a running processor.

    The group loses its records in flight and all delivery counts. The flags are those of kafka-share-groups, and
    --to-offset. As in Kafka, the group need not exist, nor know the topic.

    \b
    Example:
      sharegroup groups reset-offsets --group orders --all-topics \\
        --to-datetime 2026-11-01T00:00:00.000 --dry-run
      sharegroup groups reset-offsets --group orders --topic orders:0,1 \\
        --to-earliest --execute
    """
    if bool(topics) == all_topics:
        raise click.UsageError("Give either --topic or --all-topics.")
    if dry_run == execute:
        raise click.UsageError("Give either --dry-run or --execute.")
    point = _point(to_earliest, to_latest, to_datetime, to_offset)
    with site.open_log() as opened:
        scopes = (
            _scopes_of_group(opened, site, group_id, timeout_ms)
            if all_topics
            else [TopicScope.parsed(t) for t in topics]
        )
        plan = planned_offsets(opened, scopes, point)
        failures: Mapping[tuple[str, int], ApiError | None] = {}
        if execute and plan:
            failures = site.admin_client(opened).alter_share_group_offsets(group_id, plan, timeout_ms / 1000)
    _show(group_id, plan, failures, output)


def _point(to_earliest: bool, to_latest: bool, to_datetime: str | None, to_offset: int | None) -> ResetPoint:
    points = [
        *([ResetPoint(ResetTo.EARLIEST)] if to_earliest else []),
        *([ResetPoint(ResetTo.LATEST)] if to_latest else []),
        *([ResetPoint(ResetTo.DATETIME, epoch_ms(to_datetime))] if to_datetime is not None else []),
        *([ResetPoint(ResetTo.OFFSET, to_offset)] if to_offset is not None else []),
    ]
    if len(points) != 1:
        flags = ", ".join(f"--{to}" for to in ResetTo)
        raise click.UsageError(f"Give exactly one of {flags}.")
    return points[0]


def _scopes_of_group(log: Log, site: Site, group_id: str, timeout_ms: int) -> list[TopicScope]:
    group = read_groups(site, log, timeout_ms, lambda source: source.group(group_id))
    return [TopicScope(topic) for topic in sorted({partition.topic for partition in group.partitions})]


def _show(group_id: str, plan: OffsetPlan, failures: Mapping[tuple[str, int], ApiError | None], output: str) -> None:
    failed = {key: error for key, error in failures.items() if error is not None}
    if output == JSON:
        print_json(
            [
                {
                    "group_id": group_id,
                    "topic": topic,
                    "partition": partition,
                    "new_offset": offset,
                    "error": str(failed[topic, partition]) if (topic, partition) in failed else None,
                }
                for (topic, partition), offset in sorted(plan.items())
            ]
        )
    else:
        titles = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
        rows = [(group_id, *key, offset) for key, offset in sorted(plan.items()) if key not in failed]
        print_text(table(titles, rows, numbers=titles[2:]))
    end_with_failures({f"{topic}-{partition}": error for (topic, partition), error in failed.items()})
