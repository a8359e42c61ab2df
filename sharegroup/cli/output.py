"""Output of commands: tables for people, one JSON document for programs, and partial failures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console, RenderableType
from rich.table import Table

from sharegroup.errors import (
    CoordinatorLoadInProgressError,
    LogUnavailableError,
    RequestTimedOutError,
    ShareGroupError,
)
from sharegroup.exit_code import ExitCode

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

TABLE = "table"
JSON = "json"

_UNBOUNDED_WIDTH = 10_000
"""Nothing is wrapped for a program that reads a table from a pipe."""

Command = TypeVar("Command", bound=Callable[..., Any])
Item = TypeVar("Item")


def output_option(command: Command) -> Command:
    """Add the flag `--output` to a command."""
    return click.option(
        "--output",
        type=click.Choice([TABLE, JSON]),
        default=TABLE,
        show_default=True,
        help="Tables for people, or JSON for programs.",
    )(command)


def stdout_console() -> Console:
    """Return a console on standard output: as wide as the terminal, or unbounded without one; colours in a terminal."""
    is_bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_bounded else _UNBOUNDED_WIDTH, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[str] = ()) -> Table:
    """Return a table in the manner of Kafka's tools; long text is wrapped, never cut.

    Args:
        rows: the cells; None is shown as `-`.
        numbers: titles of the columns that hold numbers.
    """
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    right = set(numbers)
    for title in columns:
        if title in right:
            result.add_column(title, justify="right", no_wrap=True)
        else:
            result.add_column(title, overflow="fold")
    for row in rows:
        result.add_row(*("-" if cell is None else str(cell) for cell in row))
    return result


def print_text(*parts: RenderableType) -> None:
    """Print tables and lines, with a blank line between them."""
    console = stdout_console()
    with console.capture() as captured:
        for index, part in enumerate(parts):
            if index:
                console.print()
            console.print(part)
    # Not by rich: it ends the program by itself when nobody reads the output any more.
    click.echo(captured.get(), nl=False)


def print_json(document: object) -> None:
    """Print one JSON document; dataclasses become objects."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=_as_object))


def _as_object(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{value!r} has no form in JSON.")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 record`, `2,000 records`; the plural is for nouns without an `s`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def shown(items: Iterable[Item], action: str, total: int | None = None) -> Iterable[Item]:
    """Return items; a terminal shows how many of them were read.

    Args:
        action: the name of the reading.
        total: their number, if it is known and `items` has no length.
    """
    if not sys.stderr.isatty():
        return items
    return _with_progress(items, action, len(items) if isinstance(items, Sized) else total)


def _with_progress(items: Iterable[Item], action: str, total: int | None) -> Iterator[Item]:
    # Imported here because most commands show no progress.
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    with transient_progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()) as progress:
        task = progress.add_task(action, total=total)
        for item in items:
            yield item
            progress.advance(task)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[float], None]]:
    """Show how far a command is, on standard error, and only in a terminal.

    Yields:
        A function that takes the share of the work that is done, from 0 to 1.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with transient_progress(*columns) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def transient_progress(*columns: ProgressColumn) -> Progress:
    """Return a display on standard error that leaves nothing behind."""
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def end_with_failures(failures: Mapping[str, ShareGroupError | None]) -> None:
    """Print one line on standard error for each failure, and end with an exit code; do nothing without failures.

    Args:
        failures: name → error; None for success.
    """
    failed = {name: error for name, error in failures.items() if error is not None}
    for name, error in failed.items():
        click.echo(f"error: {name}: {error}", err=True)
    if failed:
        # Clients of Kafka also try an unknown topic again; here its name is wrong.
        passing = RequestTimedOutError | LogUnavailableError | CoordinatorLoadInProgressError
        may_end = any(isinstance(error, passing) for error in failed.values())
        click.get_current_context().exit(ExitCode.TRY_AGAIN if may_end else ExitCode.FAILED)
