"""Pruning deletes what a table snapshot has superseded and the audit retention no longer covers, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharegroup.errors import StateTableError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state import pruning
from sharegroup.state.data_files import read_data_file
from sharegroup.state.fold import fold
from sharegroup.state.maintenance import compact, vacuum
from sharegroup.state.pruning import Pruning, prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import keep_up, lose_log
from tests.state.share_partition_walk import BATCHES, Operation, Walk, folded_positions
from tests.state.state_rows import BATCH_MS, batch_rows, marker_row
from tests.support.examples import examples

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
EVERYTHING_MS = 4_102_444_800_000


def fill_hourly(path: str, snapshots_after: tuple[int, ...] = (3, 6)) -> StateTableWriter:
    """Append ten batches, one an hour, and a table snapshot after some of them."""
    writer = StateTableWriter.open(path, {})
    for commit_id in range(10):
        writer.append(batch_rows(commit_id, time_ms=BATCH_MS + commit_id * HOUR_MS), commit_id)
        if commit_id in snapshots_after:
            keep_up(path)
    return writer


@pytest.fixture(scope="module")
def hourly_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a table, to be copied: making one takes thirty commits."""
    path = tmp_path_factory.mktemp("hourly") / "state"
    fill_hourly(str(path))
    return path


@pytest.fixture
def hourly_table(hourly_template: Path, table_path: str) -> str:
    """Such a table, for one test."""
    return str(shutil.copytree(hourly_template, table_path))


def kept_batches(reader: StateTableReader) -> list[int]:
    return [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])]


@pytest.mark.parametrize(
    ("before_hour", "kept_from"),
    [
        pytest.param(0, 0, id="all rows are young"),
        pytest.param(3, 0, id="a batch of the first snapshot is young"),
        pytest.param(4, 4, id="the first snapshot is old"),
        pytest.param(6, 4, id="a batch of the second snapshot is young"),
        pytest.param(7, 7, id="both are old"),
        pytest.param(1_000, 7, id="all rows are old, but nothing supersedes the last ones"),
    ],
)
def test_batches_go_that_are_in_a_snapshot_and_old(
    hourly_table: str, reader: StateTableReader, before_hour: int, kept_from: int
) -> None:
    before = fold(reader.rows())
    pruning = prune(hourly_table, BATCH_MS + before_hour * HOUR_MS)
    assert kept_batches(reader) == list(range(kept_from, 10))
    assert pruning.row_count_by_type.get(RecordType.COMMIT_MARKER, 0) == kept_from
    assert pruning.row_count_by_type.get(RecordType.SHARE_SNAPSHOT, 0) == 3 * kept_from
    for rows in (reader.rows(), reader.recovery_rows()):
        assert folded_positions(fold(rows)) == folded_positions(before)
    assert reader.last_fence() is not None


def test_a_pruned_table_says_what_it_lacks(hourly_table: str, reader: StateTableReader) -> None:
    before_ms = BATCH_MS + 5 * HOUR_MS
    pruning = prune(hourly_table, before_ms)
    counts = {"CommitMarker": 4, "ShareSnapshot": 12}
    assert pruning == Pruning(counts, "2026-01-01", "2026-01-01")
    (pruned,) = reader.rows([RecordType.PRUNED])
    assert pruned.payload == {
        "leader_epoch": 1,
        "commit_id": 3,
        "before_ms": before_ms,
        "row_count_by_type": counts,
    }


def test_a_dry_run_says_the_same_and_changes_nothing(hourly_table: str, reader: StateTableReader) -> None:
    version = DeltaTable(hourly_table).version()
    would_be = prune(hourly_table, EVERYTHING_MS, is_dry_run=True)
    assert DeltaTable(hourly_table).version() == version
    assert prune(hourly_table, EVERYTHING_MS) == would_be
    assert prune(hourly_table, EVERYTHING_MS) == Pruning()
    assert len(reader.rows([RecordType.PRUNED])) == 1


def test_a_table_without_a_snapshot_is_left_alone(table_path: str, reader: StateTableReader) -> None:
    fill_hourly(table_path, snapshots_after=())
    assert prune(table_path, EVERYTHING_MS) == Pruning()
    assert kept_batches(reader) == list(range(10))


def test_fences_of_earlier_processors_go_and_the_last_one_stays(table_path: str, reader: StateTableReader) -> None:
    for _ in range(3):
        StateTableWriter.open(table_path, {})
    writer = fill_hourly(table_path)
    prune(table_path, EVERYTHING_MS)
    assert [row.leader_epoch for row in reader.rows([RecordType.FENCE])] == [4]
    assert StateTableWriter.open(table_path, {}).leader_epoch == writer.leader_epoch + 1


@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES, data=st.data())
def test_the_state_is_the_same_after_any_pruning(
    tmp_path: Path, batches: list[list[Operation]], data: st.DataObject
) -> None:
    path = str(tmp_path / "walk")
    shutil.rmtree(path, ignore_errors=True)
    writer = StateTableWriter.open(path, {})
    reader = StateTableReader(path)
    walk = Walk()
    for commit_id, batch in enumerate(batches):
        rows = walk.batch(batch)
        writer.append([marker_row(commit_id, walk.end_offset, time_ms=max_ms(rows)), *rows], commit_id)
        if commit_id % 2:
            keep_up(path)
    times = sorted({row.time_ms for row in reader.rows()})
    prune(path, data.draw(st.sampled_from(times)))
    assert folded_positions(fold(reader.recovery_rows())) == walk.positions()
    assert folded_positions(fold(reader.rows())) == walk.positions()


def max_ms(rows: list[StateRow]) -> int:
    return max((row.time_ms for row in rows), default=BATCH_MS)


def test_the_table_is_protected_from_other_deletions(hourly_table: str) -> None:
    for _ in range(2):
        with pytest.raises(CommitFailedError, match="append-only"):
            DeltaTable(hourly_table).delete("commit_id = 5")
        prune(hourly_table, BATCH_MS + 5 * HOUR_MS)


@pytest.mark.parametrize(
    "next_process",
    [
        pytest.param(lambda path: StateTableWriter.open(path, {}), id="processor"),
        pytest.param(lambda path: prune(path, BATCH_MS), id="maintenance"),
    ],
)
def test_a_table_whose_pruning_was_killed_is_protected_again(
    hourly_table: str, next_process: Callable[[str], object]
) -> None:
    DeltaTable(hourly_table).alter.set_table_properties({"delta.appendOnly": "false"})
    next_process(hourly_table)
    with pytest.raises(CommitFailedError, match="append-only"):
        DeltaTable(hourly_table).delete("commit_id = 5")


def test_a_pruning_goes_on_when_the_log_of_its_begin_is_gone(
    table_path: str, reader: StateTableReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = fill_hourly(table_path)
    next_ids = count(10)

    def commit_and_read(path: str, name: str) -> pa.Table:
        commit_id = next(next_ids)
        writer.append(batch_rows(commit_id, time_ms=EVERYTHING_MS), commit_id)
        lose_log(path)
        return read_data_file(path, name)

    monkeypatch.setattr(pruning, "read_data_file", commit_and_read)
    prune(table_path, EVERYTHING_MS)
    assert min(kept_batches(reader)) == 7


def test_a_writer_goes_on_after_a_pruning(table_path: str, reader: StateTableReader) -> None:
    writer = fill_hourly(table_path)
    prune(table_path, EVERYTHING_MS)
    writer.append(batch_rows(10, time_ms=BATCH_MS + 10 * HOUR_MS), 10)
    compact(table_path)
    DeltaTable(table_path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    assert vacuum(table_path).size_bytes > 0
    assert kept_batches(reader) == [7, 8, 9, 10]
    assert len(list(Path(table_path).rglob("date=*/*.parquet"))) == len(DeltaTable(table_path).file_uris())


def test_pruning_a_missing_table_is_an_error(table_path: str) -> None:
    with pytest.raises(StateTableError, match="no state table"):
        prune(table_path, 0)
