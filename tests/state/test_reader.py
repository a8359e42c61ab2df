"""Reading rows, the last marker, and what recovery needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from sharegroup.config.table_location import TableLocation
from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.marker import CommitMarkerPayload, Cut, OutboxResponse
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold
from sharegroup.state.reader import CommitMarkerInfo, StateTableReader
from sharegroup.state.row_filter import RowFilter
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import keep_up
from tests.state.share_partition_walk import BATCHES, GROUPS, Operation, Walk, folded_positions
from tests.state.state_rows import BATCH_MS, batch_rows, marker_row
from tests.support.examples import examples

DAY_MS = 86_400_000


def test_rows_are_chosen_by_type_group_and_time(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    for day in range(4):
        group_id = f"group-{day % 2}"
        writer.append(batch_rows(day, group_id=group_id, time_ms=BATCH_MS + day * DAY_MS), day)
    second_day = BATCH_MS + DAY_MS

    def commit_ids(rows: list[StateRow]) -> list[int]:
        return sorted({row.commit_id for row in rows})

    assert commit_ids(reader.rows([RecordType.COMMIT_MARKER])) == [0, 1, 2, 3]
    assert commit_ids(reader.rows(group_id="group-1")) == [1, 3]
    assert commit_ids(reader.rows(group_id="group-1", before_ms=second_day + 1)) == [1]
    assert commit_ids(reader.rows(since_ms=second_day, before_ms=second_day + 2 * DAY_MS)) == [1, 2]
    assert commit_ids(reader.rows([RecordType.COMMIT_MARKER], since_ms=second_day + 1)) == [2, 3]
    assert reader.rows([]) == []


def test_rows_of_a_group_follow_the_request_log(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    offsets = [5, 1, 9, 3]
    rows = [
        StateRow(
            record_type=RecordType.SHARE_SNAPSHOT, group_id="g", request_partition=offset % 2, request_offset=offset
        )
        for offset in offsets
    ]
    writer.append(rows, 0)
    assert [row.request_offset for row in reader.rows(group_id="g")] == [1, 3, 5, 9]


@pytest.mark.parametrize("group_id", ["it's", "'; --", 'say "hi"', "back\\slash", "%", "große Gruppe", "\n"])
def test_a_group_is_found_whatever_its_name(table_path: str, reader: StateTableReader, group_id: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append([*batch_rows(0, group_id=group_id), *batch_rows(0, group_id="other")], 0)
    assert {row.group_id for row in reader.rows(group_id=group_id)} == {group_id}
    assert {row.group_id for row in reader.recovery_rows(group_id=group_id)} == {group_id}


def test_the_last_marker_is_that_of_the_highest_commit(table_path: str, reader: StateTableReader) -> None:
    StateTableWriter.open(table_path, {})
    assert reader.last_marker() is None
    first = StateTableWriter.open(table_path, {})
    for commit_id in range(8):
        first.append([marker_row(commit_id, 10 * commit_id)], commit_id)
    second = StateTableWriter.open(table_path, {})
    assert reader.last_marker() == CommitMarkerInfo(7, 2, BATCH_MS, CommitMarkerPayload(end_offsets={0: 70}))
    second.append([marker_row(8, 85, time_ms=BATCH_MS + 9)], 8)
    assert reader.last_marker() == CommitMarkerInfo(8, 3, BATCH_MS + 9, CommitMarkerPayload(end_offsets={0: 85}))


def test_the_last_marker_may_be_in_a_commit_of_other_groups(table_path: str, reader: StateTableReader) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append(batch_rows(0, group_id="a"), 0)
    writer.append(batch_rows(1, group_id="b"), 1)
    for group_id in ("", "a", "b", "c"):
        last = reader.recovery(group_id=group_id).last_marker
        assert last is not None
        assert last.commit_id == 1


def test_a_reader_that_stays_open_reads_the_newest_version(table_path: str) -> None:
    reader = StateTableReader(table_path, stays_open=True)
    for commit_id in range(3):
        StateTableWriter.open(table_path, {}).append(batch_rows(commit_id), commit_id)
        last, fence = reader.last_marker(), reader.last_fence()
        assert last is not None
        assert fence is not None
        assert (last.commit_id, fence.leader_epoch) == (commit_id, reader.leader_epoch())
        assert len(reader.recovery_rows()) == len(reader.rows(group_id="group-1"))


MARKER = CommitMarkerPayload(
    row_count=1,
    end_offsets={0: 12, 1: 3},
    cuts=[Cut(partition=0, end_offset=12, time_ms=BATCH_MS)],
    responses=[OutboxResponse(partition=2, member_id="anna", value="{}")],
    messages=["{}"],
    group_epoch_floor=4,
    attempted_offset=(0, 12),
)


@pytest.mark.parametrize("is_in_a_snapshot", [False, True])
def test_the_last_marker_is_whole_also_where_a_snapshot_covers_it(
    table_path: str, reader: StateTableReader, is_in_a_snapshot: bool
) -> None:
    writer = StateTableWriter.open(table_path, {})
    row = StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=BATCH_MS, payload=MARKER.model_dump(mode="json"))
    writer.append([row], 5)
    if is_in_a_snapshot:
        keep_up(table_path)
    expected = CommitMarkerInfo(5, 1, BATCH_MS, MARKER)
    recovery = reader.recovery()
    assert (recovery.snapshot_marker is not None) == is_in_a_snapshot
    assert recovery.last_marker == reader.last_marker() == expected


def test_a_marker_without_its_fields_is_refused(table_path: str, reader: StateTableReader) -> None:
    StateTableWriter.open(table_path, {}).append([StateRow(record_type=RecordType.COMMIT_MARKER)], 3)
    with pytest.raises(UnsupportedFormatVersionError, match="marker of commit 3 of leader epoch 1"):
        reader.last_marker()


def test_the_leader_epoch_is_that_of_the_last_fence(table_path: str, reader: StateTableReader) -> None:
    for leader_epoch in (1, 2):
        StateTableWriter.open(table_path, {})
        assert reader.leader_epoch() == leader_epoch


@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_recovery_rows_fold_to_the_same_state_as_all_rows(tmp_path: Path, batches: list[list[Operation]]) -> None:
    path = str(tmp_path / "walk")
    shutil.rmtree(path, ignore_errors=True)
    writer = StateTableWriter.open(path, {})
    walk = Walk()
    for commit_id, batch in enumerate(batches):
        writer.append([marker_row(commit_id, walk.end_offset), *walk.batch(batch)], commit_id)
        if commit_id % 5 == 4:
            keep_up(path)
    reader = StateTableReader(path)
    assert folded_positions(fold(reader.rows())) == walk.positions()
    assert folded_positions(fold(reader.recovery_rows())) == walk.positions()
    of_group = folded_positions(fold(reader.recovery_rows(group_id=GROUPS[0])))
    assert of_group == {key: at for key, at in walk.positions().items() if key[0] == GROUPS[0]}


def test_recovery_rows_keep_a_row_that_follows_nothing_so_that_the_fold_tells(
    table_path: str, reader: StateTableReader
) -> None:
    orphan = StateRow(record_type=RecordType.SHARE_UPDATE, group_id="lost", request_partition=0, request_offset=7)
    StateTableWriter.open(table_path, {}).append([*batch_rows(0), orphan], 0)
    with pytest.raises(StateTableError, match="group lost"):
        fold(reader.recovery_rows())


CALLS: list[Callable[[StateTableReader], object]] = [
    StateTableReader.rows,
    StateTableReader.recovery_rows,
    StateTableReader.last_marker,
    StateTableReader.leader_epoch,
]


@pytest.mark.parametrize("row_filter", [RowFilter(), RowFilter(group_id="g")], ids=["all rows", "those of a group"])
def test_rows_of_lost_files_are_left_out(table_path: str, reader: StateTableReader, row_filter: RowFilter) -> None:
    writer = StateTableWriter.open(table_path, {})
    for commit_id in range(3):
        writer.append([StateRow(record_type=RecordType.GROUP_METADATA, group_id="g")], commit_id)
    written = {file: file.stat().st_mtime_ns for file in Path(table_path).rglob("*.parquet")}
    max(written, key=lambda file: written[file]).unlink()
    lost = reader.lost_files()
    assert list(lost.values()) == [(2, 2)]
    rows = reader.stored(row_filter, lost)
    assert [row.commit_id for row in rows if row.group_id] == [0, 1]


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_table_is_an_error_that_says_what_to_do(
    reader: StateTableReader, call: Callable[[StateTableReader], object]
) -> None:
    with pytest.raises(StateTableError, match=r"no state table at .*Start the processor"):
        call(reader)


@pytest.mark.parametrize("pattern", ["_delta_log/*.json", "date=*/*.parquet"])
def test_a_damaged_file_is_an_error_that_says_what_to_do(
    table_path: str, reader: StateTableReader, pattern: str
) -> None:
    StateTableWriter.open(table_path, {}).append(batch_rows(0), 0)
    for path in Path(table_path).glob(pattern):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StateTableError, match=r"cannot be read: .*restore it from a copy"):
        reader.rows()


def test_an_option_that_the_library_refuses_is_named() -> None:
    address = TableLocation("s3://bucket/state", {"aws_region": "eu-1", "timeout": "soon"})
    with pytest.raises(StateTableError, match=r'cannot be read: .*"soon".*Check the store'):
        StateTableReader(address).row_count()


@pytest.mark.parametrize("reading", ["rows", "recovery"])
def test_a_file_that_another_program_has_vacuumed_is_named_with_what_may_help(
    table_path: str, reader: StateTableReader, reading: str
) -> None:
    StateTableWriter.open(table_path, {}).append(batch_rows(0), 0)
    for file in Path(table_path).glob("date=*/*.parquet"):
        file.unlink()
    read = reader.rows if reading == "rows" else reader.recovery
    with pytest.raises(StateTableError, match=r"A data file is gone\. Try again first: .*VACUUM"):
        read()
