"""What commands print: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar

import click
from rich.console import Console, RenderableType
from rich.table import Table

TABLE = "table"
JSON = "json"

_UNBOUNDED_WIDTH = 10_000
"""Nothing is wrapped for a program that reads a table from a pipe."""

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(command: Command) -> Command:
    """The flag `--output`."""
    return click.option(
        "--output",
        type=click.Choice([TABLE, JSON]),
        default=TABLE,
        show_default=True,
        help="Tables for people, or JSON for programs.",
    )(command)


def stdout_console() -> Console:
    """Standard output: as wide as the terminal, or without bound where there is none; colours in a terminal only."""
    is_bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_bounded else _UNBOUNDED_WIDTH, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[str] = ()) -> Table:
    """A table in the manner of Kafka's tools; what does not fit is wrapped, never cut.

    Args:
        columns: the titles.
        rows: the cells; None is shown as `-`.
        numbers: titles of the columns that hold numbers.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    right = set(numbers)
    for title in columns:
        if title in right:
            made.add_column(title, justify="right", no_wrap=True)
        else:
            made.add_column(title, overflow="fold")
    for row in rows:
        made.add_row(*("-" if cell is None else str(cell) for cell in row))
    return made


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
    """One JSON document; dataclasses become objects."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=_as_object))


def _as_object(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{value!r} has no form in JSON.")


def counted(count: int, noun: str) -> str:
    """A number of things: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
