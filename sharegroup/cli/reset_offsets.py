"""`sharegroup groups reset-offsets`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from sharegroup.cli.flags import Command, Site, needs_groups, timeout_option
from sharegroup.cli.group_view import read_groups
from sharegroup.cli.output import JSON, end_with_failures, output_option, print_json, print_text, table
from sharegroup.client.described_groups import PartitionDescription
from sharegroup.client.offset_reset import (
    OffsetPlan,
    ResetPoint,
    ResetTo,
    TopicScope,
    epoch_ms,
    exported,
    imported,
    planned_offsets,
    scopes_of,
)
from sharegroup.errors import ApiError, ConfigurationError, GroupIdNotFoundError
from sharegroup.logs.port import Log


class _Targets(NamedTuple):
    """The flags of the new offsets; one of them is set."""

    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_datetime: str | None
    to_offset: int | None
    from_file: Path | None

    def chosen(self) -> ResetTo:
        """Return the way that is set."""
        chosen = [to for to, value in zip(ResetTo, self, strict=True) if value is not None and value is not False]
        if len(chosen) != 1:
            flags = ", ".join(f"--{to}" for to in ResetTo)
            raise click.UsageError(f"Give exactly one of {flags}.")
        return chosen[0]


def _target_options(command: Command) -> Command:
    """Add the flags of the new offsets, and pass them as `targets`."""

    @functools.wraps(command)
    def with_targets(**values: object) -> object:
        targets = _Targets(*(values.pop(name) for name in _Targets._fields))  # type: ignore[arg-type]
        return command(targets=targets, **values)

    options = (
        click.option("--to-earliest", is_flag=True, help="To the start of the log."),
        click.option("--to-latest", is_flag=True, help="To the end of the log."),
        click.option("--to-current", is_flag=True, help="To the group's present offsets, else to the end."),
        click.option(
            "--to-datetime", metavar="TIME", help="To the first record from then on: YYYY-MM-DDThh:mm:ss.sss, UTC."
        ),
        click.option(
            "--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To an offset within the log, or its end."
        ),
        click.option(
            "--from-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="To the offsets of a file that --export wrote, here or in Kafka; it names the partitions.",
        ),
    )
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), with_targets)


@click.command("reset-offsets")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group, which must be empty.")
@click.option("--topic", "topics", metavar="TOPIC[:P,P]", multiple=True, help="A topic, or some partitions of it.")
@click.option("--all-topics", is_flag=True, help="All topics of the group.")
@_target_options
@click.option("--dry-run", is_flag=True, help="Only show the offsets.")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@click.option("--export", "exports", is_flag=True, help="Print them as lines of CSV, for --from-file.")
@timeout_option
@needs_groups
@output_option
def reset_offsets(
    group_id: str,
    topics: tuple[str, ...],
    all_topics: bool,
    targets: _Targets,
    dry_run: bool,
    execute: bool,
    exports: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Set the start offsets of a group without members; needs a running processor.

    The group loses its records in flight and all delivery counts. The flags are those of kafka-share-groups. As in
    Kafka, the group need not exist, nor know the topic.

    \b
    Example:
      sharegroup groups reset-offsets --group orders --all-topics \\
        --to-datetime 2026-11-01T00:00:00.000 --dry-run
      sharegroup groups reset-offsets --group orders --topic orders:0,1 \\
        --to-earliest --execute
      sharegroup groups reset-offsets --group orders --all-topics \\
        --to-current --export --dry-run
    """
    if [bool(topics), all_topics, targets.from_file is not None].count(True) != 1:
        raise click.UsageError("Give either --topic or --all-topics, or --from-file without them.")
    if dry_run == execute:
        raise click.UsageError("Give either --dry-run or --execute.")
    if exports and output == JSON:
        raise click.UsageError("Give either --export or --output json.")
    to = targets.chosen()
    with site.open_log() as opened:
        needs_present = all_topics or to is ResetTo.CURRENT
        present = _present(opened, site, group_id, timeout_ms, must_exist=all_topics) if needs_present else ()
        point = _point(to, targets, group_id, present)
        plan = planned_offsets(opened, _scopes(topics, point, present), point, _warn)
        failures: Mapping[tuple[str, int], ApiError | None] = {}
        if execute and plan:
            failures = site.admin_client(opened).alter_share_group_offsets(group_id, plan, timeout_ms / 1000)
    _show(group_id, plan, failures, output, exports)


def _present(
    log: Log, site: Site, group_id: str, timeout_ms: int, must_exist: bool
) -> tuple[PartitionDescription, ...]:
    """Return the group's share-partitions."""
    try:
        return read_groups(site, log, timeout_ms, lambda source: source.group(group_id)).partitions
    except GroupIdNotFoundError:
        if must_exist:
            raise
        return ()


def _point(to: ResetTo, targets: _Targets, group_id: str, present: tuple[PartitionDescription, ...]) -> ResetPoint:
    if targets.to_datetime is not None:
        return ResetPoint(to, epoch_ms(targets.to_datetime))
    if targets.to_offset is not None:
        return ResetPoint(to, targets.to_offset)
    if targets.from_file is not None:
        return ResetPoint(to, offsets=imported(_text(targets.from_file), group_id))
    starts = {(partition.topic, partition.partition): partition.start_offset for partition in present}
    return ResetPoint(to, offsets={key: offset for key, offset in starts.items() if offset is not None})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The file {path} cannot be read: {error}.") from error


def _scopes(topics: tuple[str, ...], point: ResetPoint, present: tuple[PartitionDescription, ...]) -> list[TopicScope]:
    if point.to is ResetTo.FILE:
        return scopes_of(dict(point.offsets))
    if topics:
        return [TopicScope.parsed(topic) for topic in topics]
    return [TopicScope(topic) for topic in sorted({partition.topic for partition in present})]


def _warn(sentence: str) -> None:
    click.echo(f"warning: {sentence}", err=True)


def _show(
    group_id: str, plan: OffsetPlan, failures: Mapping[tuple[str, int], ApiError | None], output: str, exports: bool
) -> None:
    failed = {key: error for key, error in failures.items() if error is not None}
    done = {key: offset for key, offset in sorted(plan.items()) if key not in failed}
    if exports:
        click.echo(exported(done), nl=False)
    elif output == JSON:
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
        print_text(table(titles, [(group_id, *key, offset) for key, offset in done.items()], numbers=titles[2:]))
    end_with_failures({f"{topic}-{partition}": error for (topic, partition), error in failed.items()})
