"""The rows that audits read: from the state table by delta-rs here, by Spark in `spark/audit_rows.py`.

Audits are functions of a `RowSource`, so both give the same results by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from sharegroup.protocol.rows import StateRow
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter

Summary = TypeVar("Summary")


class RowSource(Protocol):
    """A reader of the rows of one state table.

    Its methods raise StateTableError where a data file that was there when the source was opened is missing: an answer
    without its rows would be wrong.

    Attributes:
        lost_commits: ranges of commit ids of which rows are lost, since their data file was deleted before.
    """

    lost_commits: Sequence[tuple[int, int]]

    def rows(self, row_filter: RowFilter) -> Iterable[StateRow]:
        """Return the rows that fulfil the conditions, in fold order; they are decoded while they are iterated over."""
        ...

    def by_partition(
        self, row_filter: RowFilter, summarize: Callable[[Iterable[StateRow]], Summary]
    ) -> Iterator[Summary]:
        """Yield the summary of the rows of each share-partition, in any order of the share-partitions.

        Args:
            row_filter: conditions of the rows; rows of no share-partition are left out.
            summarize: returns the summary of a share-partition's rows, in fold order; both may be sent to other
                processes.
        """
        ...


class TableRows:
    """The rows of a state table, by delta-rs and Arrow: no JVM is needed.

    Raises:
        StateTableError: there is no table, or it cannot be read.
        UnsupportedFormatVersionError: the Delta table there is no state table of this release.
    """

    def __init__(self, path: str) -> None:
        self._reader = StateTableReader(path, stays_open=True)
        self._lost_files = self._reader.lost_files()
        self.lost_commits: Sequence[tuple[int, int]] = list(self._lost_files.values())

    def rows(self, row_filter: RowFilter) -> Iterable[StateRow]:
        """Return the rows that fulfil the conditions, in fold order."""
        return self._reader.stored(row_filter, self._lost_files)

    def by_partition(
        self, row_filter: RowFilter, summarize: Callable[[Iterable[StateRow]], Summary]
    ) -> Iterator[Summary]:
        """Yield the summary of the rows of each share-partition."""
        return map(summarize, self._reader.by_partition(row_filter, self._lost_files))
