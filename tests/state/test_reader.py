"""Reading rows, the last marker, and what recovery needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold
from sharegroup.state.reader import CommitMarkerInfo, StateTableReader
from sharegroup.state.writer import StateTableWriter
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
    writer.append(
        [
            StateRow(
                record_type=RecordType.SHARE_SNAPSHOT, group_id="g", request_partition=offset % 2, request_offset=offset
            )
            for offset in offsets
        ]
    )
    assert [row.request_offset for row in reader.rows(group_id="g")] == [1, 3, 5, 9]


@pytest.mark.parametrize("group_id", ["it's", "'; --", 'say "hi"', "back\\slash", "%", "große Gruppe", "\n"])
def test_a_group_is_found_whatever_its_name(table_path: str, reader: StateTableReader, group_id: str) -> None:
    writer = StateTableWriter.open(table_path, {})
    writer.append([*batch_rows(0, group_id=group_id), *batch_rows(1, group_id="other")])
    assert {row.group_id for row in reader.rows(group_id=group_id)} == {group_id}
    assert {row.group_id for row in reader.recovery_rows(group_id=group_id)} == {group_id}


def test_the_last_marker_is_of_the_last_processor_even_if_its_batches_start_anew(
    table_path: str, reader: StateTableReader
) -> None:
    StateTableWriter.open(table_path, {})
    assert reader.last_marker() is None
    first = StateTableWriter.open(table_path, {})
    for commit_id in range(8):
        first.append([marker_row(commit_id, 10 * commit_id)], commit_id)
    second = StateTableWriter.open(table_path, {})
    assert reader.last_marker() == CommitMarkerInfo(7, 2, BATCH_MS, "checkpoint-1", {0: 70})
    second.append([marker_row(0, 85, checkpoint_id="checkpoint-2", time_ms=BATCH_MS + 9)], 0)
    assert reader.last_marker() == CommitMarkerInfo(0, 3, BATCH_MS + 9, "checkpoint-2", {0: 85})


def test_a_marker_without_its_fields_is_refused(table_path: str, reader: StateTableReader) -> None:
    StateTableWriter.open(table_path, {}).append([StateRow(record_type=RecordType.COMMIT_MARKER, commit_id=3)])
    with pytest.raises(UnsupportedFormatVersionError, match="marker of batch 3 of leader epoch 1"):
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
    reader = StateTableReader(path)
    assert folded_positions(fold(reader.rows())) == walk.positions()
    assert folded_positions(fold(reader.recovery_rows())) == walk.positions()
    of_group = folded_positions(fold(reader.recovery_rows(group_id=GROUPS[0])))
    assert of_group == {key: at for key, at in walk.positions().items() if key[0] == GROUPS[0]}


def test_recovery_rows_keep_a_row_that_follows_nothing_so_that_the_fold_tells(
    table_path: str, reader: StateTableReader
) -> None:
    orphan = StateRow(record_type=RecordType.SHARE_UPDATE, group_id="lost", request_partition=0, request_offset=7)
    StateTableWriter.open(table_path, {}).append([*batch_rows(0), orphan])
    with pytest.raises(StateTableError, match="group lost"):
        fold(reader.recovery_rows())


CALLS: list[Callable[[StateTableReader], object]] = [
    StateTableReader.rows,
    StateTableReader.recovery_rows,
    StateTableReader.last_marker,
    StateTableReader.leader_epoch,
]


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
