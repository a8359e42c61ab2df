"""State tables in folders with any name, and relative ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError, StateTableError
from sharegroup.protocol.rows import RecordType
from sharegroup.state.maintenance import compact, take_snapshot, vacuum
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.state.conftest import FAR_FUTURE_MS
from tests.state.state_rows import batch_rows
from tests.support.odd_names import READABLE_NAMES, UNREADABLE_NAMES


@pytest.mark.parametrize("name", UNREADABLE_NAMES)
def test_a_name_that_the_delta_library_takes_for_another_one_is_refused(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name / "state")
    with pytest.raises(StateTableError, match=r"contains .*Choose a folder without backslashes"):
        StateTableWriter.open(path, {})
    with pytest.raises(StateTableError, match=r"contains .*Choose a folder without backslashes"):
        StateTableReader(path).last_marker()
    with pytest.raises(ConfigurationError, match=r"for configuration state\.table\.path: .*contains"):
        ProcessorConfig.from_mapping({"state.table.path": path, "checkpoint.path": "x"})
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_a_state_table_may_have_any_other_name(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name / name)
    writer = StateTableWriter.open(path, {})
    for commit_id in range(3):
        writer.append(batch_rows(commit_id), commit_id)
    assert compact(path) > 0
    assert take_snapshot(path, FAR_FUTURE_MS) > 0
    writer.append(batch_rows(3), 3)
    vacuum(path)
    prune(path, FAR_FUTURE_MS)
    writer = StateTableWriter.open(path, {})
    writer.append(batch_rows(4), 4)
    reader = StateTableReader(path)
    assert [row.commit_id for row in reader.rows([RecordType.COMMIT_MARKER])][-2:] == [3, 4]
    last = reader.last_marker()
    assert last is not None
    assert last.commit_id == 4
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_relative_path_is_of_the_folder_in_which_the_table_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    StateTableWriter.open("state", {}).append(batch_rows(0), 0)
    reader = StateTableReader("state")
    monkeypatch.chdir(second)
    assert reader.last_marker() is not None
    assert list(second.iterdir()) == []
