"""Replay of the request log: it makes the rows and responses of the table, and differs where somebody changed them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sharegroup.audit.replay.request_replay import RequestReplay
from sharegroup.audit.replay.verify_requests import RequestVerification, verify_requests
from sharegroup.audit.verification.verify import verify
from sharegroup.logs.local import LocalLog
from sharegroup.protocol.rows import RecordType, StateRow
from tests.audit.worked_site import GROUP, write_table
from tests.support.site import BROKER, REQUESTS, Site

pytestmark = pytest.mark.slow


def replayed(site: Site, path: str | None = None, log: LocalLog | None = None) -> RequestVerification:
    processor = site.settings.processor
    return verify_requests(RequestReplay(path or str(site.state_path), log or site.log, processor, BROKER))


def test_the_same_requests_give_the_same_rows_and_responses(worked: Site) -> None:
    result = replayed(worked)
    assert [str(finding) for finding in result.findings] == []
    assert result.gaps == []
    rows = worked.rows()
    assert result.row_count == sum(
        row.commit_id >= 0 and bool(row.topic or row.payload.get("records"))
        for row in rows
        if row.record_type not in (RecordType.TABLE_SNAPSHOT, RecordType.COMMIT_MARKER)
    )
    assert result.commit_count == sum(row.record_type is RecordType.COMMIT_MARKER for row in rows)
    assert result.message_count > 20
    assert result.response_count > 10


def _reason_of(rows: list[StateRow]) -> int:
    return next(i for i, row in enumerate(rows) if row.record_type is RecordType.SHARE_UPDATE and row.transitions)


def test_a_change_that_no_invariant_shows_differs_from_the_replay(worked: Site, tmp_path: Path) -> None:
    rows = worked.rows()
    index = _reason_of(rows)
    entries = [entry.model_copy(update={"reason": "another"}) for entry in rows[index].transitions]
    rows[index] = rows[index].model_copy(update={"transitions": entries})
    assert verify(rows, BROKER).findings == []
    findings = replayed(worked, write_table(tmp_path / "state", rows, worked.reader.state_id())).findings
    assert {finding.violation.invariant for finding in findings} == {"replay_gives_the_same_rows"}
    assert findings[0].request_offset == rows[index].request_offset
    assert findings[0].location == f"group {GROUP} {rows[index].topic}-0"


def test_a_changed_response_differs_from_the_replay(worked: Site, tmp_path: Path) -> None:
    rows = worked.rows()
    index = next(i for i, row in enumerate(rows) if row.payload.get("responses"))
    responses = [
        dict(response, value=response["value"].replace("packers", "others"))
        for response in rows[index].payload["responses"]
    ]
    rows[index] = rows[index].model_copy(update={"payload": {**rows[index].payload, "responses": responses}})
    (finding, *_) = replayed(worked, write_table(tmp_path / "state", rows, worked.reader.state_id())).findings
    assert finding.violation.invariant == "replay_gives_the_same_responses"
    assert finding.location.startswith(f"commit {rows[index].commit_id} ")


def test_requests_that_were_deleted_are_a_gap_and_no_finding(worked: Site, tmp_path: Path) -> None:
    for file in (worked.log_path, worked.folder / "log.db-wal"):
        if file.exists():
            shutil.copy(file, tmp_path)
    fences = [row for row in worked.rows() if row.record_type is RecordType.FENCE]
    assert len(fences) == 2
    with LocalLog(tmp_path / "log.db") as log:
        for partition in log.offsets(REQUESTS):
            log.delete_records(REQUESTS, partition, 1)
        result = replayed(worked, log=log)
    assert result.findings == []
    (gap,) = result.gaps
    assert (gap.first_commit_id, gap.group_id) == (0, "")
    assert "not in the" in gap.reason
    # The second processor began with the folded state.
    assert result.commit_count > 0
