"""A site whose members worked under two processors, and tables with the same rows, or with others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from sharegroup.audit.history.group_history import group_history
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.core.record_state import Cause
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import COMMIT_TRANSACTION, try_commit
from sharegroup.state.data_files import write_data_files
from sharegroup.state.delta_table import create_or_open_table
from sharegroup.state.maintenance import take_snapshot
from sharegroup.state.schema import PARTITION_COLUMN, rows_to_table
from tests.state.conftest import FAR_FUTURE_MS
from tests.support.eventually import DEADLINE_S
from tests.support.site import Site

GROUP = "packers"
LOCK_MS = 3_000
_SNAPSHOT_AFTER = "share_coordinator_snapshot_update_records_per_snapshot"


def worked_site(folder: Path) -> Site:
    """A group that acknowledged in most ways, lost locks, was configured again, and went on after a takeover."""
    site = Site(folder, broker={_SNAPSHOT_AFTER: 3})
    with site.running():
        topic = site.new_topic(record_count=150)
        site.new_group(GROUP, share_record_lock_duration_ms=str(LOCK_MS), share_delivery_count_limit="3")
        explicit = {"share_acknowledgement_mode": "explicit", "max_poll_records": 10}
        with site.consumer(GROUP, topic, client_id="anna", **explicit) as anna:
            for number in range(10):
                for message in site.poll(anna, 10):
                    offset = message.offset() or 0
                    kind = AcknowledgeType.RELEASE if offset % 10 == number else AcknowledgeType.ACCEPT
                    anna.acknowledge(message, AcknowledgeType.REJECT if offset % 10 == 9 else kind)
                anna.commit_sync(DEADLINE_S)
            site.poll(anna, 1)
            site.until(lambda: _has(site, Cause.LOCK_TIMEOUT), "a lock has ended")
        site.admin.alter_group_config(GROUP, {"share.record.lock.duration.ms": "2000"})
        take_snapshot(str(site.state_path), FAR_FUTURE_MS)
    with site.running(), site.consumer(GROUP, topic, client_id="ben") as ben:
        site.poll(ben, 20)
        ben.commit_sync(DEADLINE_S)
    return site


def _has(site: Site, cause: Cause) -> bool:
    return group_history(GROUP, site.rows(GROUP)).record_count(cause) > 0


def write_table(
    path: Path, rows: Iterable[StateRow], state_id: str = "", dates: Mapping[int, str] | None = None
) -> str:
    """Write a state table with exactly these rows; return its path.

    Args:
        path: its folder.
        state_id: id of the state instead of the table's own.
        dates: index of a row → its value of the partition column instead of the date of its time.
    """
    rows = [
        row.model_copy(update={"payload": {**row.payload, "state_id": state_id}})
        if row.record_type is RecordType.FENCE
        else row
        for row in rows
    ]
    version = create_or_open_table(str(path)).version()
    table = rows_to_table(rows)
    if dates:
        column = [dates.get(index, date) for index, date in enumerate(table[PARTITION_COLUMN].to_pylist())]
        table = table.set_column(table.column_names.index(PARTITION_COLUMN), PARTITION_COLUMN, pa.array(column))
    files = write_data_files(str(path), table)
    last = max(row.commit_id for row in rows)
    epoch = max(row.leader_epoch for row in rows)
    assert try_commit(str(path), version, files, epoch, {COMMIT_TRANSACTION: last})
    return str(path)
