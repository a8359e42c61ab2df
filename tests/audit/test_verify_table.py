"""verify of a table: the same findings as of its rows, and files that are not as they were written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sharegroup.audit.verification import verify_table as table_module
from sharegroup.audit.verification.verify import verify
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state import spilled_rows
from tests.audit.worked_site import GROUP, write_table
from tests.support.site import BROKER, Site

pytestmark = pytest.mark.slow


def damaged_rows(worked: Site) -> list[StateRow]:
    """The rows with several changes: a lost row, a start offset, a marker and a table snapshot."""
    rows = worked.rows()
    updates = [i for i, row in enumerate(rows) if row.record_type is RecordType.SHARE_UPDATE]
    rows[updates[2]] = rows[updates[2]].model_copy(update={"start_offset": 59})
    snapshot = next(i for i, row in enumerate(rows) if row.record_type is RecordType.TABLE_SNAPSHOT and row.topic)
    rows[snapshot] = rows[snapshot].model_copy(update={"snapshot_epoch": 77})
    marker = next(i for i, row in enumerate(rows) if row.record_type is RecordType.COMMIT_MARKER and row.commit_id == 3)
    del rows[max(updates[3], marker)], rows[min(updates[3], marker)]
    return rows


def test_the_table_of_a_site_holds(worked: Site) -> None:
    verification = verify_table(str(worked.state_path), BROKER)
    assert verification.findings == []
    assert verification == verify(worked.rows(), BROKER)
    assert verification.transition_count > 20
    assert verification.segment_count > 2


@pytest.mark.parametrize("is_spilled", [False, True])
def test_the_findings_are_those_of_the_rows(
    worked: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_spilled: bool
) -> None:
    if is_spilled:
        monkeypatch.setattr(spilled_rows, "_MOST_BUFFERED_BYTES", 1)
        monkeypatch.setattr(table_module, "_BUCKET_ROWS", 20)
    rows = damaged_rows(worked)
    path = write_table(tmp_path / "state", rows)
    of_rows, of_table = verify(rows, BROKER), verify_table(path, BROKER)
    assert {finding.violation.invariant for finding in of_table.findings} >= {
        "each_commit_has_its_marker",
        "each_commit_has_all_its_rows",
        "row_agrees_with_its_replay",
    }
    assert list(map(str, of_table.findings)) == list(map(str, of_rows.findings))
    assert of_table == of_rows


def test_one_group_is_verified_alone(worked: Site) -> None:
    verification = verify_table(str(worked.state_path), BROKER, GROUP)
    assert verification.findings == []
    assert verification.row_count == len(worked.rows(GROUP))


def test_progress_reaches_its_end(worked: Site) -> None:
    shares: list[float] = []
    verify_table(str(worked.state_path), BROKER, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda file: file.unlink(), "No such file", id="missing"),
        pytest.param(lambda file: file.write_bytes(file.read_bytes()[:-9]), "bytes, the Delta log says", id="shorter"),
        pytest.param(lambda file: file.write_bytes(bytes(file.stat().st_size)), "magic bytes", id="zeros"),
        pytest.param(lambda file: _flip(file), "", id="one byte"),
    ],
)
def test_a_file_that_was_changed_is_named(worked: Site, tmp_path: Path, damage: object, reason: str) -> None:
    path = Path(write_table(tmp_path / "state", worked.rows()))
    (file, *_) = path.glob("date=*/*.parquet")
    assert callable(damage)
    damage(file)
    (finding, *_) = verify_table(str(path), BROKER).findings
    assert finding.violation.invariant == "data_files_are_as_they_were_written"
    assert file.name in finding.location
    assert reason in finding.violation.detail


def _flip(file: Path) -> None:
    """Change one byte in the middle of the pages, the size stays."""
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0x40
    file.write_bytes(content)


def test_commits_that_were_cut_off_at_the_end_are_missed(worked: Site, tmp_path: Path) -> None:
    copy = tmp_path / "state"
    shutil.copytree(worked.state_path, copy)
    last = max(row.commit_id for row in worked.rows())
    rows = [row for row in worked.rows() if row.commit_id < last]
    path = write_table(tmp_path / "shorter", rows)
    assert verify_table(path, BROKER).findings == []
    from sharegroup.state.commit_log import COMMIT_TRANSACTION, try_commit
    from sharegroup.state.delta_table import open_table

    assert try_commit(path, open_table(path).version(), [], 1, {COMMIT_TRANSACTION: last})
    (finding,) = verify_table(path, BROKER).findings
    assert finding.location == f"commit {last}"


def test_the_bounds_of_each_processor_are_those_of_its_fence(worked: Site, tmp_path: Path) -> None:
    """With the release's own bounds a lock of a second would last longer."""
    assert verify(worked.rows(), BrokerConfig()).findings == []
    rows = [
        row.model_copy(update={"payload": {**row.payload, "broker": {}}})
        if row.record_type is RecordType.FENCE and row.leader_epoch == 2
        else row
        for row in worked.rows()
    ]
    path = write_table(tmp_path / "state", rows)
    for findings in (verify(rows, BROKER).findings, verify_table(path, BROKER, GROUP).findings):
        assert {finding.violation.invariant for finding in findings} == {"lock_runs_for_its_duration"}
    assert verify_table(str(worked.state_path), BrokerConfig(), GROUP).findings == []
