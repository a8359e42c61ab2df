"""`sharegroup top`: all groups, redrawn in the terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import click
from rich.console import Group, RenderableType
from rich.live import Live

from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.group_view import duration_text, problems, relative_time_text, summary
from sharegroup.cli.output import JSON, output_option, print_json, print_text, stdout_console, table
from sharegroup.cli.terminal import interruption, keyboard
from sharegroup.client.described_groups import GroupDescription
from sharegroup.client.group_reader import GroupReader
from sharegroup.errors import ShareGroupError

_RATE_WINDOW_S = 10
"""The time over which accepted records are counted."""


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.2, max=86_400),
    default=2.0,
    show_default=True,
    help="Seconds from one view to the next.",
)
@click.option("--once", is_flag=True, help="Show one view and exit; so without a terminal, too.")
@needs_state_table
@output_option
def top(
    interval_s: float,
    once: bool,
    site: Site,
    output: str,
) -> None:
    """Watch all share groups: state, members, lag, locks, records accepted a second, quarantine. The key q quits.

    It reads the state table and the log, and costs the processor nothing. LOCK-ENDS is the end of the lock that ends
    first; ACCEPTED/S is the mean of the last ten seconds.

    \b
    Example:
      sharegroup top --interval 1
    """
    if math.isnan(interval_s):
        raise click.UsageError("--interval must be a number of seconds.")
    with site.open_log() as opened:
        reader = GroupReader(opened, site.state_table_path, site.settings.broker)
        frame = _frame(reader)
        if output == JSON:
            print_json([{**summary(group), "accepted_per_s": frame.accepted_per_s(group)} for group in frame.groups])
        elif once or not sys.stdout.isatty():
            print_text(*frame.parts())
        else:
            _watch(reader, frame, interval_s)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The content of one view.

    Attributes:
        accepted_counts: group id → records accepted within the window.
        time_s: when it was read.
        error: the reason why it is old; "" when it is not.
    """

    groups: Sequence[GroupDescription]
    accepted_counts: dict[str, int]
    time_s: float
    error: str = ""

    def accepted_per_s(self, group: GroupDescription) -> float:
        """Return the records that members of a group accepted a second."""
        return self.accepted_counts.get(group.group_id, 0) / _RATE_WINDOW_S

    def parts(self) -> list[RenderableType]:
        """Return the table and the problems of groups."""
        has_writes = any(group.open_writes for group in self.groups)
        resolving = ("RESOLVING",) if has_writes else ()
        titles = ("GROUP", "STATE", "#MEM", "LAG", "IN-FLIGHT", "LOCKED", *resolving, "LOCK-ENDS", "ACCEPTED/S")
        rows = [
            (
                group.group_id,
                group.state.value,
                len(group.members),
                group.lag,
                group.in_flight_count,
                group.locked_count,
                *((group.resolving_count,) if has_writes else ()),
                relative_time_text(group.locks[0].remaining_ms) if group.locks else None,
                f"{self.accepted_per_s(group):,.1f}",
            )
            for group in self.groups
        ]
        parts: list[RenderableType] = [table(titles, rows, numbers=titles[2:])]
        parts += [f"{group.group_id}: {problem}" for group in self.groups for problem in problems(group)]
        return [*parts, f"error: {self.error}"] if self.error else parts


def _frame(reader: GroupReader) -> _Frame:
    now_s = time.time()
    groups = reader.groups()
    return _Frame(groups, dict(reader.accepted_counts(round((now_s - _RATE_WINDOW_S) * 1000))), now_s)


def _next_frame(reader: GroupReader, last: _Frame) -> _Frame:
    try:
        return _frame(reader)
    except ShareGroupError as error:
        # A table that is replaced can be read again later.
        return _Frame(last.groups, last.accepted_counts, last.time_s, str(error))


def _watch(reader: GroupReader, frame: _Frame, interval_s: float) -> None:
    with (
        interruption() as interrupted,
        keyboard(interrupted) as keys,
        Live(_screen(frame, interval_s), console=stdout_console(), screen=True, auto_refresh=False) as live,
    ):
        while keys.wait(interval_s) != "q":
            frame = _next_frame(reader, frame)
            live.update(_screen(frame, interval_s), refresh=True)


def _screen(frame: _Frame, interval_s: float) -> RenderableType:
    clock = time.strftime("%H:%M:%S", time.localtime(frame.time_s))
    heading = f"sharegroup top  {clock}  {len(frame.groups)} groups  every {duration_text(interval_s)}  q quits"
    return Group(heading, "", *frame.parts())
