"""`sharegroup audit redrive`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sharegroup.audit.history.points import parse_time
from sharegroup.audit.redrive.dead_letters import DeadLetters
from sharegroup.audit.redrive.redrive_plan import Candidate, RedrivePlan, Skipped
from sharegroup.audit.redrive.redrive_run import CopyBatch, copy_batches, read_plan, redrive_archived
from sharegroup.cli.flags import Site, needs_state_table, parse_offsets, timeout_option
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, table
from sharegroup.core.offset_ranges import merge
from sharegroup.errors import InvalidRecordStateError
from sharegroup.logs.port import Log
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter

_SHOWN_RANGES = 5


@dataclass(frozen=True, slots=True)
class _Copied:
    """Copies of touching records, at touching offsets.

    Attributes:
        new_offset: offset of the first copy; None in a dry run.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    new_offset: int | None

    def cut(self, first_offset: int, last_offset: int) -> _Copied:
        moved = None if self.new_offset is None else self.new_offset + first_offset - self.first_offset
        return replace(self, first_offset=first_offset, last_offset=last_offset, new_offset=moved)


@dataclass
class _Result:
    """The effect of a redrive, or of its dry run."""

    plan: RedrivePlan
    is_executed: bool
    copied: list[_Copied] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def copy_count(self) -> int:
        return sum(copied.last_offset - copied.first_offset + 1 for copied in self.copied)


@click.command("redrive", short_help="Deliver records again that a group gave up.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@click.option("--topic", metavar="TOPIC", help="Topic of the records.")
@click.option("--partition", type=click.IntRange(min=0), help="Partition of the records.")
@click.option("--offset", "offsets", metavar="OFFSET[-LAST]", help="The record, or the records of this range.")
@click.option("--from-dlq", metavar="TOPIC", help="The records to which the dead-letter records in this topic lead.")
@click.option("--since", metavar="TIME", help="Only dead-letter records from then on: ISO-8601 or epoch ms.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many dead-letter records.")
@click.option("--reason", default="", help="Reason, which the history of the records shows.")
@click.option("--execute", is_flag=True, help="Do it; without this flag the command only shows what it would do.")
@timeout_option
@needs_state_table
@output_option
def redrive(
    group_id: str,
    topic: str | None,
    partition: int | None,
    offsets: str | None,
    from_dlq: str | None,
    since: str | None,
    limit: int | None,
    reason: str,
    execute: bool,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Deliver records again that a group gave up; needs a running processor with --execute.

    An archived record that the start offset has not passed becomes available in place, with delivery count 0. Of one
    below the start offset a new copy is appended to its partition, with dead-letter headers; other groups of the topic
    receive the copy, too. Records that were not given up are left out, and so are those whose copy is in the topic.

    \b
    Example:
      sharegroup audit redrive --group orders --topic orders \\
        --partition 0 --offset 17-40
      sharegroup audit redrive --group orders --from-dlq orders-dlq \\
        --since 2026-11-01T00:00:00Z --execute
    """
    is_range = (topic, partition, offsets) != (None, None, None)
    if is_range == (from_dlq is not None):
        raise click.UsageError("Give either --topic, --partition and --offset, or --from-dlq.")
    if is_range and (since is not None or limit is not None):
        raise click.UsageError("--since and --limit belong to --from-dlq.")
    with site.open_log() as log:
        if from_dlq is not None:
            since_ms = None if since is None else parse_time(since)
            dead_letters = DeadLetters(log, from_dlq, group_id, since_ms, limit)
            candidates = list(dead_letters.candidates())
        else:
            dead_letters = None
            candidates = [_selected(topic, partition, offsets)]
        rows = StateTableReader(site.state_table_path).stored(RowFilter(group_id=group_id))
        plan = read_plan(log, rows, group_id, candidates)
        if is_range:
            _check_any(plan)
        if execute and plan.redriven:
            redrive_archived(site.admin_client(log), plan, reason, timeout_ms / 1000)
        result = _with_copies(log, plan, dead_letters, execute)
    _show(result, output)


def _selected(topic: str | None, partition: int | None, offsets: str | None) -> Candidate:
    if topic is None or partition is None or offsets is None:
        raise click.UsageError("--topic, --partition and --offset belong together.")
    first, last = parse_offsets(offsets, "--offset")
    return Candidate(topic, partition, first, last)


def _check_any(plan: RedrivePlan) -> None:
    """Check that a range has a record that can be redriven.

    Raises:
        InvalidRecordStateError: it has none; names the states of its records.
    """
    if plan.redriven or plan.copies:
        return
    skipped = list(merge(plan.skipped, Skipped.is_alike))
    texts = [f"{skip.first_offset}..{skip.last_offset} {skip.reason}" for skip in skipped[:_SHOWN_RANGES]]
    more = ", …" if len(skipped) > _SHOWN_RANGES else ""
    raise InvalidRecordStateError(f"None of the records can be redriven: {', '.join(texts)}{more}.")


def _with_copies(log: Log, plan: RedrivePlan, dead_letters: DeadLetters | None, is_executed: bool) -> _Result:
    """Append the copies, or only count them."""
    result = _Result(plan, is_executed, skipped=list(plan.skipped))
    progress = Progress(
        TextColumn("copying"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task("copying", total=sum(copies.records.size for copies in plan.copies))
        for batch in copy_batches(log, plan, dead_letters):
            result.copied += merge(_appended(log, batch, is_executed))
            result.skipped += merge(batch.skipped, Skipped.is_alike)
            progress.advance(task, len(batch.offsets) + len(batch.skipped))
    result.copied = list(merge(result.copied))
    result.skipped = list(merge(result.skipped, Skipped.is_alike))
    return result


def _appended(log: Log, batch: CopyBatch, is_executed: bool) -> Iterator[_Copied]:
    """Append the copies of a batch, or only count them."""
    is_appended = is_executed and batch.records
    new_offset = log.append(batch.topic, batch.partition, batch.records) if is_appended else None
    for index, offset in enumerate(batch.offsets):
        moved = None if new_offset is None else new_offset + index
        yield _Copied(batch.topic, batch.partition, offset, offset, moved)


def _show(result: _Result, output: str) -> None:
    plan = result.plan
    redriven = [
        {"topic": plan.topics[topic_id], "partition": partition, "first_offset": first, "last_offset": last}
        for (topic_id, partition), ranges in sorted(plan.redriven.items())
        for first, last in ranges
    ]
    copies = [
        {
            "topic": copied.topic,
            "partition": copied.partition,
            "first_offset": copied.first_offset,
            "last_offset": copied.last_offset,
            "new_first_offset": copied.new_offset,
        }
        for copied in result.copied
    ]
    skipped = [
        {
            "topic": skip.records.topic,
            "partition": skip.records.partition,
            "first_offset": skip.first_offset,
            "last_offset": skip.last_offset,
            "reason": skip.reason,
        }
        for skip in result.skipped
    ]
    if output == JSON:
        print_json(
            {
                "group_id": plan.group_id,
                "is_executed": result.is_executed,
                "redriven_count": plan.redriven_count,
                "copy_count": result.copy_count,
                "redriven": redriven,
                "copies": copies,
                "skipped": skipped,
            }
        )
        return
    columns = ("ACTION", "TOPIC", "PARTITION", "FIRST-OFFSET", "LAST-OFFSET", "DETAIL")
    rows = [(*_cells("in place", entry), "available with delivery count 0") for entry in redriven]
    rows += [(*_cells("copy", entry), _copy_text(entry["new_first_offset"])) for entry in copies]
    rows += [(*_cells("skip", entry), str(entry["reason"])) for entry in skipped]
    records, copied = counted(plan.redriven_count, "record"), counted(result.copy_count, "copy", "copies")
    if result.is_executed:
        summary = f"{records} redriven in place, {copied} appended."
    else:
        summary = f"It would redrive {records} in place and append {copied}. Nothing was changed: add --execute."
    print_text(table(columns, rows, columns[2:5]), summary)


def _cells(action: str, entry: Mapping[str, object]) -> tuple[object, ...]:
    return (action, *(entry[name] for name in ("topic", "partition", "first_offset", "last_offset")))


def _copy_text(new_first_offset: object) -> str:
    return "a new record" if new_first_offset is None else f"from offset {new_first_offset} on"
