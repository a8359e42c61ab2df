"""Old messages go, but none that a restart or a member may still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.message_retention import SHORTEST_RETENTION_MS, delete_old_messages
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.maintenance import take_snapshot
from sharegroup.state.writer import StateTableWriter

START_MS = 1_800_000_000_000
RETENTION_MS = 2 * SHORTEST_RETENTION_MS
LATE_MS = START_MS + 10 * RETENTION_MS


class Site:
    """A log with ten requests and ten responses, and a state table."""

    def __init__(self, folder: Path, audit_retention_ms: int = RETENTION_MS) -> None:
        self.log_path = folder / "log.db"
        self.config = ProcessorConfig(
            log_path=self.log_path,
            state_table_path=str(folder / "state"),
            checkpoint_path=str(folder / "checkpoint"),
            response_topic_partitions=1,
            audit_retention_ms=audit_retention_ms,
        )
        with LocalLog(self.log_path) as log:
            for topic in (self.config.request_topic_name, self.config.response_topic_name):
                log.create_topic(topic, 1)
                log.append(topic, 0, [NewRecord(None, b"{}", (), START_MS)] * 10)
        self.writer = StateTableWriter.open(self.config.state_table_path, {})

    def commit(self, commit_id: int, end_offset: int) -> None:
        """A batch that applied the requests below an offset."""
        payload = CommitMarkerPayload(row_count=1, end_offsets={0: end_offset})
        row = StateRow(
            record_type=RecordType.COMMIT_MARKER,
            time_ms=START_MS + commit_id,
            commit_id=commit_id,
            payload=payload.model_dump(mode="json"),
        )
        self.writer.append([row], commit_id)

    def starts(self) -> tuple[int, int]:
        """Start offsets of requests and responses."""
        with LocalLog(self.log_path) as log:
            topics = (self.config.request_topic_name, self.config.response_topic_name)
            requests, responses = (log.offsets(topic)[0].start_offset for topic in topics)
        return requests, responses


def test_requests_that_a_snapshot_has_and_a_batch_follows_go(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.commit(0, end_offset=6)
    take_snapshot(site.config.state_table_path, LATE_MS)
    site.commit(1, end_offset=8)

    assert delete_old_messages(site.config, LATE_MS, is_dry_run=True) == 16
    assert site.starts() == (0, 0)
    assert delete_old_messages(site.config, LATE_MS) == 16
    assert site.starts() == (6, 10)
    assert delete_old_messages(site.config, LATE_MS) == 0


def test_the_last_batch_can_be_executed_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.commit(0, end_offset=6)
    take_snapshot(site.config.state_table_path, LATE_MS)
    delete_old_messages(site.config, LATE_MS)
    assert site.starts() == (0, 10)


@pytest.mark.parametrize("retention_ms", [0, RETENTION_MS])
def test_young_messages_stay(tmp_path: Path, retention_ms: int) -> None:
    site = Site(tmp_path, retention_ms)
    site.commit(0, end_offset=6)
    take_snapshot(site.config.state_table_path, LATE_MS)
    site.commit(1, end_offset=8)
    oldest_ms = max(retention_ms, SHORTEST_RETENTION_MS)
    assert delete_old_messages(site.config, START_MS + oldest_ms) == 0
    assert delete_old_messages(site.config, START_MS + oldest_ms + 1) == 16


def test_without_a_log_or_a_batch_there_is_nothing_to_do(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert delete_old_messages(site.config, LATE_MS) == 0
    site.commit(0, end_offset=6)
    site.log_path.unlink()
    assert delete_old_messages(site.config, LATE_MS) == 0
    assert not site.log_path.exists()
