"""The access of the audits to a state table: by delta-rs, or by what the program around them passes in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import click

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.row_source import RowSource, Summary, TableRows
from sharegroup.audit.verification.findings import Verification
from sharegroup.audit.verification.verify_table import Progress, verify_table
from sharegroup.cli.flags import Command, Site, needs_state_table
from sharegroup.cli.output import shown
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.rows import StateRow
from sharegroup.state.row_filter import RowFilter


@dataclass(frozen=True, slots=True)
class TableAccess:
    """The means by which the audits read a state table; a program passes its own as the object of click's context.

    Attributes:
        verify: checks the table at a path, as `verify_table`.
    """

    open_rows: Callable[[str], RowSource] = TableRows
    verify: Callable[[str, BrokerConfig, str | None, Progress], Verification] = verify_table


def table_access() -> TableAccess:
    """Return the means of the program that runs this command, by default delta-rs."""
    access: TableAccess | None = click.get_current_context().obj
    return access or TableAccess()


def needs_rows(command: Command) -> Command:
    """Add the flags of the state table to a command, and pass its rows as `source`."""

    @functools.wraps(command)
    def with_rows(*, site: Site, **others: object) -> object:
        return command(source=rows_of(site), **others)

    return needs_state_table(with_rows)


def rows_of(site: Site) -> RowSource:
    """Return the rows of a state table, which show on a terminal how far their reading is."""
    return _Watched(table_access().open_rows(site.state_table_path))


def selects_partitions(command: Command) -> Command:
    """Add the flags of groups and share-partitions to a command, and pass them as `selection`."""

    @functools.wraps(command)
    def with_selection(*, group_id: str | None, topic: str | None, partition: int | None, **others: object) -> object:
        return command(selection=Selection(group_id, topic, partition), **others)

    of_partition = click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
    of_topic = click.option("--topic", metavar="TOPIC", help="Only share-partitions of this topic.")
    of_group = click.option("--group", "group_id", metavar="GROUP", help="Only this share group; all without it.")
    return of_group(of_topic(of_partition(with_selection)))


class _Watched:
    """Shows on a terminal how far the reading of rows is."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.lost_commits = source.lost_commits

    def rows(self, row_filter: RowFilter) -> Iterable[StateRow]:
        """Return the rows of the source."""
        return shown(self._source.rows(row_filter), "reading rows")

    def by_partition(
        self, row_filter: RowFilter, summarize: Callable[[Iterable[StateRow]], Summary]
    ) -> Iterator[Summary]:
        """Return the summaries of the source."""
        yield from shown(self._source.by_partition(row_filter, summarize), "reading share-partitions")
