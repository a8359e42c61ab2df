"""`sharegroup migrate to-kafka`: a share group continues on a Kafka broker."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import click
from rich.console import Console

from sharegroup.cli.flags import Site, needs_groups
from sharegroup.cli.group_view import read_groups
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, table
from sharegroup.client.handover import PartitionHandover, drain, handover, pause
from sharegroup.errors import ConfigurationError
from sharegroup.logs.port import Log
from sharegroup.state.fold import FoldedGroup

_TIMEOUT_MS = 10_000
_PROGRAM = "AlterShareGroupOffsets.java"
_KAFKA_KEYS = (
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
)
"""Keys of a share group in Kafka 4.3.1; the other ones here are not known there."""


@click.command("to-kafka", short_help="Continue a share group on a Kafka broker.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group.")
@click.option("--drain", "drains", is_flag=True, help="Let the members first finish what is in flight.")
@click.option("--dry-run", is_flag=True, help="Only show where Kafka would begin, and what it would deliver again.")
@click.option("--execute", is_flag=True, help="Pause the group, and write the files for Kafka.")
@click.option(
    "--plan",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the files.  [default: GROUP-to-kafka]",
)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="The broker, if not the one that has the log.")
@click.option(
    "--timeout-ms", metavar="MS", type=click.IntRange(min=1), default=600_000, show_default=True, help="To drain."
)
@needs_groups
@output_option
def to_kafka(
    group_id: str,
    drains: bool,
    dry_run: bool,
    execute: bool,
    plan: Path | None,
    bootstrap_server: str | None,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Continue a share group on a Kafka broker; prints the commands for the broker.

    Kafka takes over the start offset of each share-partition, and nothing else: it delivers again what is finished
    above it, and begins all delivery counts at 0. With --drain the group acquires no new records until nothing is
    finished above a start offset, locked, or waiting for its dead letter; then nothing accepted is delivered again. A
    group with open writes is refused until they are resolved. In the end the group is paused here. `sharegroup groups
    resume` takes it back, after share.drain.enable is deleted.

    \b
    Example:
      sharegroup migrate to-kafka --group orders --dry-run
      sharegroup migrate to-kafka --group orders --drain --execute
    """
    if dry_run == execute:
        raise click.UsageError("Give either --dry-run or --execute.")
    folder = plan or Path(f"{group_id}-to-kafka")
    server = bootstrap_server or site.settings.kafka.bootstrap_servers
    if execute:
        _check(site, folder)
    with site.open_log() as opened:
        read = _reader(site, opened, group_id)
        overrides = read().metadata.config_overrides
        if dry_run:
            moved = handover(read())
        elif drains:
            with _status(group_id) as report:
                moved = drain(site.admin_client(opened), group_id, read, timeout_ms / 1000, report)
        else:
            moved = pause(site.admin_client(opened), group_id, read)
    commands: list[str] = []
    if execute:
        _write(folder, moved)
        commands = _commands(group_id, server, folder, overrides)
    _show(group_id, moved, commands, output)


def _check(site: Site, folder: Path) -> None:
    """Check what a move needs before anything is changed."""
    if not site.settings.kafka.bootstrap_servers:
        raise ConfigurationError(
            "The log is no Kafka, and its offsets are not those of a broker.",
            "A group moves to a broker from a log on Kafka: set kafka.bootstrap.servers.",
        )
    if folder.exists():
        raise ConfigurationError(f"{folder} exists already.", "Name another folder with --plan, or remove it.")


def _reader(site: Site, log: Log, group_id: str) -> Callable[[], FoldedGroup]:
    return lambda: read_groups(site, log, _TIMEOUT_MS, lambda source: source.folded(group_id))


@contextmanager
def _status(group_id: str) -> Iterator[Callable[[list[PartitionHandover]], None]]:
    """Show on a terminal what is left to drain."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(f"Draining {group_id}") as status:

        def report(moved: list[PartitionHandover]) -> None:
            finished, locked = _total(moved, "redelivered_count"), _total(moved, "locked_count")
            status.update(f"{counted(finished, 'finished record')} above start offsets, {locked:,} locked")

        yield report


def _write(folder: Path, moved: Iterable[PartitionHandover]) -> None:
    lines = [f"{each.topic},{each.partition},{each.start_offset}\n" for each in moved]
    try:
        folder.mkdir(parents=True)
        (folder / "offsets.csv").write_text("".join(lines), encoding="utf-8")
        program = resources.files("sharegroup.cli").joinpath(_PROGRAM).read_text(encoding="utf-8")
        (folder / _PROGRAM).write_text(program, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The folder {folder} cannot be written: {error}.", "Name another folder.") from error


def _commands(group_id: str, server: str, folder: Path, overrides: Mapping[str, str]) -> list[str]:
    """Return the commands of a shell that continue the group on the broker."""
    group, address = shlex.quote(group_id), shlex.quote(server)
    program, offsets = shlex.quote(str(folder / _PROGRAM)), shlex.quote(str(folder / "offsets.csv"))
    config = ",".join(f"{key}={overrides[key]}" for key in _KAFKA_KEYS if key in overrides)
    configure = (
        f"kafka-configs.sh --bootstrap-server {address} --alter --entity-type groups --entity-name {group} "
        f"--add-config {shlex.quote(config)}"
    )
    return [
        *([configure] if config else []),
        f'java -cp "$KAFKA_HOME/libs/*" {program} {address} {group} {offsets}',
        f"kafka-share-groups.sh --bootstrap-server {address} --describe --offsets --group {group}",
    ]


def _total(moved: Iterable[PartitionHandover], name: str) -> int:
    return sum(getattr(each, name) for each in moved)


def _show(group_id: str, moved: list[PartitionHandover], commands: list[str], output: str) -> None:
    if output == JSON:
        print_json({"group_id": group_id, "partitions": moved, "commands": commands})
        return
    titles = (
        *("TOPIC", "PARTITION", "START-OFFSET", "DELIVERED-AGAIN"),
        *("LOCKED", "DEAD-LETTERS", "OPEN-WRITES", "LOST-COUNTS"),
    )
    rows = [
        (
            each.topic,
            each.partition,
            each.start_offset,
            each.redelivered_count,
            each.locked_count,
            each.waiting_dead_letter_count,
            each.open_write_count,
            sum(each.lost_delivery_counts.values()),
        )
        for each in moved
    ]
    again = _total(moved, "redelivered_count")
    losses = sum(sum(each.lost_delivery_counts.values()) for each in moved)
    print_text(
        table(titles, rows, numbers=titles[1:]),
        f"Kafka delivers {counted(again, 'finished record')} again, and begins the delivery count of "
        f"{counted(losses, 'record')} at 0.",
        *(["The group is paused here. On the broker's machine run:\n\n" + "\n".join(commands)] if commands else []),
    )
