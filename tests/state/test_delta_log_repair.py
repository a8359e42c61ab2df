"""A takeover repairs what a power failure left: each file of the last commit is cut off at each point."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sharegroup.errors import StateTableError
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from sharegroup.state.local_storage import TEMPORARY_PREFIX
from sharegroup.state.maintenance import clean_log, compact
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.share_partition_walk import folded_positions
from tests.state.state_rows import batch_rows

CUTS = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "all but the last bytes": lambda content: content[:-2],
    "zeros": lambda content: bytes(len(content)),
}
Cut = Callable[[bytes], bytes | None]
LAST = 4


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with five commits, the last of which is cut off by the tests."""
    path = tmp_path_factory.mktemp("repair") / "state"
    writer = StateTableWriter.open(str(path), {})
    for commit_id in range(LAST + 1):
        writer.append(batch_rows(commit_id), commit_id)
    return path


@pytest.fixture
def table(template: Path, table_path: str) -> Path:
    """Such a table, for one test."""
    return Path(shutil.copytree(template, table_path))


def newest_commit(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def data_file_of(table: Path, commit: Path) -> Path:
    actions = map(json.loads, commit.read_text().splitlines())
    path: str = next(action["add"]["path"] for action in actions if "add" in action)
    return table / path


def cut_off(file: Path, cut: Cut) -> None:
    content = cut(file.read_bytes())
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


def commit_ids(table: Path) -> list[int]:
    return [row.commit_id for row in StateTableReader(str(table)).rows([RecordType.COMMIT_MARKER])]


def test_a_commit_that_another_process_prepares_is_left_alone(table: Path) -> None:
    prepared = table / "_delta_log" / f"{TEMPORARY_PREFIX}living"
    abandoned = table / "_delta_log" / f"{TEMPORARY_PREFIX}killed"
    for file in (prepared, abandoned):
        file.write_text("{}\n")
    two_minutes_ago = time.time() - 120
    os.utime(abandoned, (two_minutes_ago, two_minutes_ago))
    StateTableWriter.open(str(table), {})
    assert prepared.exists()
    assert not abandoned.exists()


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("which", ["commit", "data file"])
def test_a_torn_commit_was_never_acknowledged(
    table: Path, which: str, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    commit = newest_commit(table)
    cut_off(commit if which == "commit" else data_file_of(table, commit), cut)
    writer = StateTableWriter.open(str(table), {})
    assert writer.leader_epoch == 2
    recovery = StateTableReader(str(table)).recovery()
    assert recovery.last_marker is not None
    assert recovery.last_marker.commit_id == LAST - 1
    assert fold(recovery.rows).groups["group-1"].request_offset == LAST - 1
    assert ("was never acknowledged" in caplog.text) == (
        which == "data file" or commit.with_name(f"{commit.name}.torn").exists()
    )
    writer.append(batch_rows(LAST), LAST)
    assert commit_ids(table) == list(range(LAST + 1))


def test_a_whole_commit_stays(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = folded_positions(fold(StateTableReader(str(table)).rows()))
    StateTableWriter.open(str(table), {})
    assert commit_ids(table) == list(range(LAST + 1))
    assert folded_positions(fold(StateTableReader(str(table)).recovery().rows)) == before
    assert caplog.text == ""


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("which", ["commit", "data file"])
def test_a_torn_compaction_changes_nothing(table: Path, which: str, cut: Cut) -> None:
    """It was not synced yet when the power failed."""
    compact(str(table))
    commit = newest_commit(table)
    cut_off(commit if which == "commit" else data_file_of(table, commit), cut)
    StateTableWriter.open(str(table), {}).append(batch_rows(LAST + 1), LAST + 1)
    assert commit_ids(table) == list(range(LAST + 2))


def test_files_that_a_compaction_replaced_are_not_needed(table: Path) -> None:
    """They are deleted five minutes later, be there a checkpoint or not."""
    compact(str(table))
    removed = [json.loads(line).get("remove") for line in newest_commit(table).read_text().splitlines()]
    for action in filter(None, removed):
        (table / action["path"]).unlink()
    StateTableWriter.open(str(table), {}).append(batch_rows(LAST + 1), LAST + 1)
    assert commit_ids(table) == list(range(LAST + 2))


def test_a_file_that_cannot_be_read_now_is_no_torn_one(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(pq, "read_metadata", fail)
        with pytest.raises(StateTableError, match="Too many open files"):
            StateTableWriter.open(str(table), {})
    assert commit_ids(table) == list(range(LAST + 1))


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("which", ["*.checkpoint.parquet", "_last_checkpoint"])
def test_a_torn_checkpoint_is_not_needed(table: Path, which: str, cut: Cut) -> None:
    """Commit files are deleted only after the checkpoint is on the disk."""
    clean_log(str(table))
    (file,) = (table / "_delta_log").glob(which)
    cut_off(file, cut)
    StateTableWriter.open(str(table), {}).append(batch_rows(LAST + 1), LAST + 1)
    assert commit_ids(table) == list(range(LAST + 2))


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_table_that_was_just_created_is_created_again(table_path: str, cut: Cut) -> None:
    shutil.rmtree(table_path, ignore_errors=True)
    StateTableWriter.open(table_path, {})
    log = sorted((Path(table_path) / "_delta_log").glob("*.json"))
    for commit in log[1:]:
        commit.unlink()
    cut_off(log[0], cut)
    assert StateTableWriter.open(table_path, {}).leader_epoch == 1


def test_a_commit_that_is_damaged_later_is_an_error(table: Path) -> None:
    """It was acknowledged, so this is no power failure: nothing may be thrown away."""
    commit = sorted((table / "_delta_log").glob("*.json"))[-2]
    commit.write_bytes(b"")
    with pytest.raises(StateTableError, match=r"is damaged: .*restore the table from a copy"):
        StateTableWriter.open(str(table), {})
    assert newest_commit(table).exists()


def test_what_delta_rs_committed_is_synced_before_the_next_append(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = StateTableWriter.open(str(table), {})
    DeltaTable(str(table)).alter.set_table_properties({"delta.checkpointInterval": "20"})
    commit = newest_commit(table)
    synced: set[Path] = set()
    monkeypatch.setattr("sharegroup.state.local_storage.sync_file", synced.add)
    writer.append(batch_rows(LAST + 1), LAST + 1)
    assert commit in synced
