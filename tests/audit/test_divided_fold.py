"""The state at a point is folded share-partition by share-partition, and is that of a takeover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from sharegroup.audit.history.as_of import Selection, as_of
from sharegroup.audit.history.diff import diff
from sharegroup.audit.history.row_source import RowSource, Summary, TableRows
from sharegroup.audit.history.state_document import group_document
from sharegroup.protocol.rows import StateRow
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter
from tests.audit.recorded_table import RecordedTable
from tests.support.site import Site

ALL = Selection()


class Passed:
    """A source that counts the rows of share-partitions that leave it, be they a summary or not."""

    def __init__(self, path: str) -> None:
        self._source = TableRows(path)
        self.lost_commits = self._source.lost_commits
        self.row_count = self.summary_count = 0

    def rows(self, row_filter: RowFilter) -> Iterable[StateRow]:
        for row in self._source.rows(row_filter):
            self.row_count += row.partition >= 0
            yield row

    def by_partition(
        self, row_filter: RowFilter, summarize: Callable[[Iterable[StateRow]], Summary]
    ) -> Iterator[Summary]:
        for summary in self._source.by_partition(row_filter, summarize):
            self.summary_count += 1
            yield summary


@pytest.mark.parametrize(
    "ask",
    [lambda source: as_of(source, "latest", ALL), lambda source: diff(source, "commit:2", "latest", ALL)],
    ids=["as_of", "diff"],
)
def test_only_the_results_of_share_partitions_leave_the_source(
    with_snapshots: RecordedTable, ask: Callable[[RowSource], object]
) -> None:
    source = Passed(with_snapshots.path)
    ask(source)
    assert (source.row_count, source.summary_count) == (0, 1)


@pytest.mark.parametrize("name", ["recorded", "configured", "with_snapshots", "pruned_table"])
def test_the_last_state_is_that_of_a_takeover(name: str, request: pytest.FixtureRequest) -> None:
    table: RecordedTable = request.getfixturevalue(name)
    assert_is_that_of_a_takeover(table.path)


@pytest.mark.slow
def test_the_last_state_of_several_groups_is_that_of_a_takeover(worked: Site) -> None:
    assert_is_that_of_a_takeover(str(worked.state_path))


def assert_is_that_of_a_takeover(path: str) -> None:
    document = as_of(TableRows(path), "latest", ALL)
    groups = fold(StateTableReader(path).recovery().rows).groups
    assert document["groups"] == [group_document(group, document["time_ms"]) for _, group in sorted(groups.items())]
