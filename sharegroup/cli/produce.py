"""`sharegroup topics produce`: records from a file or a pipe, one a line."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sharegroup.cli.flags import Site, needs_log, read_properties
from sharegroup.cli.output import JSON, counted, output_option, print_json
from sharegroup.cli.record_text import READER_PROPERTIES, LineReader
from sharegroup.cli.terminal import Interrupted, Interruption, interruption
from sharegroup.errors import ConfigurationError, InputLineError, LogError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, NewRecord

_READ_BYTES = 1 << 20
"""Bytes that one transaction appends at most; the records of a pipe or a terminal are appended as they come."""


@click.command()
@click.option("--topic", required=True, help="The topic to produce to.")
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Read this, not standard input.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition of all records.")
@click.option(
    "--reader-property",
    "reader_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help=f"How a line is read, as by Kafka's console producer; repeatable. Keys: {', '.join(READER_PROPERTIES)}.",
)
@click.option("--reader-config", type=click.Path(dir_okay=False, path_type=Path), help="File with such properties.")
@needs_log
@output_option
def produce(
    topic: str,
    path: Path | None,
    partition: int | None,
    reader_properties: tuple[str, ...],
    reader_config: Path | None,
    site: Site,
    output: str,
) -> None:
    """Produce one record from each line of a file or of standard input.

    A key selects the partition (CRC-32 modulo the number of partitions); records without a key go to the partitions in
    turn. A line that cannot be read ends the command: the lines before it are produced, and the error has its number.

    \b
    Example:
      sharegroup topics produce --topic orders --file orders.txt
      printf 'source:web\\tanna\\t9.5\\n' | sharegroup topics produce \\
        --topic orders --reader-property parse.headers=true \\
        --reader-property parse.key=true
    """
    reader = LineReader(read_properties(reader_config, reader_properties))
    with site.open_log() as opened, _input(path) as input_file:
        partition_count = opened.describe_topic(topic).partition_count
        if partition is not None and partition >= partition_count:
            raise ConfigurationError(
                f"Topic {topic} has no partition {partition}.", f"Give one from 0 to {partition_count - 1}."
            )
        producer = _Producer(opened, topic, partition_count, partition)
        with interruption() as interrupted:
            _produce_all(producer, reader, input_file, interrupted)
    if output == JSON:
        print_json({"topic": topic, "record_count": producer.record_count})
    else:
        click.echo(f"Produced {counted(producer.record_count, 'record')} to {topic}.", err=True)


class _Producer:
    """An appender of many records in one transaction, which counts those that are in the log."""

    def __init__(self, log: Log, topic: str, partition_count: int, partition: int | None) -> None:
        self._log = log
        self._topic = topic
        self._partition_count = partition_count
        self._partition = partition
        self._next_partition = 0
        self._pending: dict[int, list[NewRecord]] = {}
        self.record_count = 0

    def add(self, record: NewRecord) -> None:
        """Add a record; the next `flush` appends it."""
        self._pending.setdefault(self._partition_of(record), []).append(record)

    def flush(self) -> None:
        """Append the added records, all or none."""
        batches = [(self._topic, partition, records) for partition, records in self._pending.items()]
        self._pending = {}
        if batches:
            self._log.append_all(batches)
            self.record_count += sum(len(records) for _, _, records in batches)

    def _partition_of(self, record: NewRecord) -> int:
        if self._partition is not None:
            return self._partition
        if record.key is not None:
            return partition_for(record.key, self._partition_count)
        partition = self._next_partition
        self._next_partition = (partition + 1) % self._partition_count
        return partition


def _produce_all(
    producer: _Producer, reader: LineReader, input_file: BufferedIOBase, interrupted: Interruption
) -> None:
    line_number = 0
    try:
        with _progress(input_file) as progress:
            for lines, byte_count in _chunks(input_file, interrupted):
                try:
                    for line in lines:
                        line_number += 1
                        producer.add(reader.record(line, line_number))
                finally:
                    producer.flush()
                progress.advance(progress.task_ids[0], byte_count)
    except InputLineError as error:
        raise InputLineError(
            f"{error.message} What is in front of it was produced: {counted(producer.record_count, 'record')}.",
            f"Correct the line, and produce from line {line_number} on.",
        ) from None
    except Interrupted:
        click.echo(f"Interrupted; produced {counted(producer.record_count, 'record')}.", err=True)
        raise


def _chunks(input_file: BufferedIOBase, interrupted: Interruption) -> Iterator[tuple[list[bytes], int]]:
    """Yield whole lines as they come, without their ends, and the bytes that were read for them."""
    rest = b""
    while True:
        with interrupted.waiting():
            chunk = input_file.read1(_READ_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines], len(chunk)
    if rest:
        yield [rest.removesuffix(b"\r")], 0


@contextmanager
def _input(path: Path | None) -> Iterator[BufferedIOBase]:
    """Open the file to read from."""
    if path is None:
        if sys.stdin.isatty():
            click.echo("One record a line; Ctrl-D ends.", err=True)
        # Typed without `read1`, which every standard input has.
        yield cast(BufferedIOBase, sys.stdin.buffer)
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise LogError(f"The file {path} cannot be read: {error.strerror}.", "Check the path.") from error
    with file:
        yield file


def _progress(input_file: BufferedIOBase) -> Progress:
    """Return a progress bar for a file on the terminal; a disabled one without a terminal."""
    total = _size_bytes(input_file) if sys.stderr.isatty() else None
    progress = Progress(
        TextColumn("producing"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=total is None,
    )
    progress.add_task("producing", total=total)
    return progress


def _size_bytes(input_file: BufferedIOBase) -> int | None:
    """Return the size of a file; None of a pipe or a terminal."""
    status = os.fstat(input_file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None
