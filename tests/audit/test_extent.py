"""The points that a table can answer about: from a base on, as long as no commit is missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sharegroup.audit.history.as_of import Selection, as_of
from sharegroup.audit.history.diff import diff
from sharegroup.audit.history.extent import BEFORE_ALL_COMMITS, Base, HistoryExtent
from sharegroup.audit.history.lineage import LineageRequest, lineage
from sharegroup.audit.history.row_source import TableRows
from sharegroup.audit.statistics.stats import stats
from sharegroup.config.broker import BrokerConfig
from sharegroup.errors import PointOutsideHistoryError
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.writer import StateTableWriter
from tests.actor.group_harness import group_with
from tests.audit.conftest import work
from tests.audit.recorded_table import recorded_table
from tests.audit.test_points import assert_is

ALL = Selection()


def extent(commit_ids: list[int], snapshots: list[int]) -> HistoryExtent:
    """Commits a second apart, and table snapshots of some of them."""
    return HistoryExtent(
        ((commit_id, commit_id * 1_000) for commit_id in commit_ids),
        [Base(commit_id, commit_id * 1_000, snapshot_ms=99) for commit_id in snapshots],
    )


@pytest.mark.parametrize(
    ("commit_ids", "snapshots", "answerable", "start"),
    [
        pytest.param([0, 1, 2], [], [(0, 2)], BEFORE_ALL_COMMITS, id="a whole table"),
        pytest.param([0, 1, 2, 3], [1, 2], [(0, 3)], BEFORE_ALL_COMMITS, id="a whole table with snapshots"),
        pytest.param([5, 6], [4], [(4, 6)], 4, id="pruned"),
        pytest.param([3, 4, 5, 6], [4, 5], [(4, 6)], 4, id="pruned, with rows of before"),
        pytest.param([], [4], [(4, 4)], 4, id="pruned to its last commit"),
        pytest.param([0, 1, 4, 5, 6], [5], [(0, 1), (5, 6)], 5, id="a hole, and a snapshot after it"),
        pytest.param([0, 1, 4, 5], [1], [(0, 1)], 3, id="a hole, and no snapshot after it"),
        pytest.param([3, 4], [], [], 2, id="no base at all"),
        pytest.param([0, 2, 3, 5, 6], [2, 4], [(0, 0), (2, 6)], 4, id="a hole just before a snapshot"),
    ],
)
def test_commits_that_are_answerable(
    commit_ids: list[int], snapshots: list[int], answerable: list[tuple[int, int]], start: int
) -> None:
    of_table = extent(commit_ids, snapshots)
    assert of_table.answerable == answerable
    assert of_table.first_base.commit_id == start
    for commit_id in range(10):
        is_answerable = any(first <= commit_id <= last for first, last in answerable)
        assert (of_table.base_of(commit_id) is not None) == is_answerable, commit_id


def test_the_last_commit_until_a_time_has_no_later_one_before_it() -> None:
    # The clocks of two request partitions differ by ten seconds.
    of_table = HistoryExtent([(0, 10_000), (1, 30_000), (2, 20_000), (3, 40_000)], [])
    assert [of_table.last_commit_until(s * 1_000) for s in (9, 10, 20, 29, 30, 39, 40)] == [-1, 0, 0, 0, 2, 2, 3]


def group_row(group_id: str, partition: int, offset: int, time_ms: int, epoch: int) -> StateRow:
    return StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id=group_id,
        request_partition=partition,
        request_offset=offset,
        time_ms=time_ms,
        payload={"records": [{"type": "ShareGroupMetadata", "epoch": epoch}]},
    )


def committed(writer: StateTableWriter, commit_id: int, ends: dict[int, int], cuts: list[Cut], row: StateRow) -> None:
    payload = CommitMarkerPayload(row_count=2, end_offsets=ends, cuts=cuts)
    time_ms = max(cut.time_ms for cut in cuts)
    marker = StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=time_ms, payload=payload.model_dump(mode="json"))
    writer.append([marker, row], commit_id)


def test_request_partitions_have_clocks_of_their_own(tmp_path: Path) -> None:
    """Cuts at or before the time count, also those of a commit after one that does not."""
    writer = StateTableWriter.open(str(tmp_path / "state"), {})
    fast, slow = [Cut(partition=0, end_offset=1, time_ms=30_000)], [Cut(partition=1, end_offset=1, time_ms=20_000)]
    committed(writer, 0, {0: 1}, fast, group_row("fast", 0, 0, 30_000, 1))
    committed(writer, 1, {0: 1, 1: 1}, slow, group_row("slow", 1, 0, 20_000, 1))
    later = [Cut(partition=1, end_offset=2, time_ms=30_000)]
    committed(writer, 2, {0: 1, 1: 2}, later, group_row("slow", 1, 1, 30_000, 2))
    source = TableRows(str(tmp_path / "state"))

    def epochs(at: str) -> dict[str, int]:
        return {group["group_id"]: group["group_epoch"] for group in as_of(source, at, ALL)["groups"]}

    assert epochs("30000") == {"fast": 1, "slow": 2}
    assert epochs("commit:1") == {"fast": 1, "slow": 1}
    assert epochs("1:0") == {"slow": 1}
    assert epochs("1:1") == {"fast": 1, "slow": 2}
    assert epochs("0:0") == {"fast": 1, "slow": 2}
    with pytest.raises(PointOutsideHistoryError):
        epochs("19999")


def test_a_deleted_data_file_leaves_a_hole(tmp_path: Path) -> None:
    table = recorded_table(tmp_path / "state", group_with(60), work, snapshot_after=())
    lost = next(path for path in Path(table.path).rglob("*.parquet") if 3 in commit_ids_in(path))
    lost.unlink()
    source = table.source
    assert list(source.lost_commits) == [(3, 3)]
    before = next(moment for moment in table.moments if (moment.commit_id, moment.is_commit_end) == (2, True))
    assert_is(as_of(source, "commit:2", ALL), before, "commit:2")
    answerable = r"Answerable are the points from commit 0 \(.*\) to commit 2 \(.*\)\."
    with pytest.raises(PointOutsideHistoryError, match=answerable):
        as_of(source, "latest", ALL)
    with pytest.raises(PointOutsideHistoryError, match=answerable):
        diff(source, "commit:1", "latest", ALL)
    document = lineage(source, LineageRequest(selection=Selection(topic="orders")))
    assert document["history_start"].commit_id == 4
    assert {delivery.delivery_count for delivery in document["deliveries"]} <= {1, 2, 3}
    assert stats(source, ALL, BrokerConfig())["history_start"].commit_id == 4


def commit_ids_in(path: Path) -> set[int]:
    """The commits of a data file."""
    return set(pq.read_table(path, columns=["commit_id"])["commit_id"].to_pylist())
