"""Audits of a table that was pruned: it holds, and what was pruned is distinguished from what is lost."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter
from tests.actor.group_harness import group_with, joined
from tests.actor.simulated_group import Batch
from tests.state.conftest import keep_up

pytestmark = pytest.mark.slow

BROKER = BrokerConfig(share_coordinator_snapshot_update_records_per_snapshot=3)
ORDERS_0 = ("orders-id", 0)


@cache
def batches_of_a_group() -> list[list[StateRow]]:
    """Batches in which two members work, one leaves, and the configuration changes; a few seconds apart."""
    group = group_with(4_000, broker=BROKER)
    batches: list[list[StateRow]] = []

    def commit(batch: Batch) -> None:
        commit_id = len(batches)
        payload = CommitMarkerPayload(row_count=len(batch.outcome.rows) + 1, end_offsets={0: batch.offsets.stop})
        marker = StateRow(
            record_type=RecordType.COMMIT_MARKER, time_ms=batch.cut_ms, payload=payload.model_dump(mode="json")
        )
        batches.append([row.model_copy(update={"commit_id": commit_id}) for row in (marker, *batch.outcome.rows)])

    group.after_batch.append(commit)
    anna, ben = joined(group, "anna", "ben")
    for number in range(8):
        for member in (anna, ben):
            response = member.fetch(max_records=10)
            for first, last, _ in response.acquired[ORDERS_0]:
                member.acknowledge({ORDERS_0: [(first, last - number % 3, AcknowledgeType.ACCEPT)]})
        group.advance(2_000)
        if number == 5:
            group.alter_config(share_record_lock_duration_ms="20000")
    ben.close()
    return batches


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of that group, not to be changed; it takes seconds to make one."""
    path = tmp_path_factory.mktemp("audit") / "state"
    writer = StateTableWriter.open(str(path), {})
    for commit_id, rows in enumerate(batches_of_a_group()):
        writer.append(rows, commit_id)
        if commit_id % 5 == 4:
            keep_up(str(path))
    assert verify(StateTableReader(str(path)).rows(), BROKER).findings == []
    return path


@pytest.fixture(scope="module")
def pruned_once(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[StateRow, ...]:
    """The rows of a table that was pruned somewhere in its middle."""
    return tuple(pruned_rows(table, tmp_path_factory.mktemp("pruned"), 0.5))


@pytest.fixture
def pruned(pruned_once: tuple[StateRow, ...]) -> list[StateRow]:
    """The same, for a test to change."""
    return list(pruned_once)


def pruned_rows(table: Path, folder: Path, part: float) -> list[StateRow]:
    path = str(shutil.copytree(table, folder / "state"))
    batches = batches_of_a_group()
    assert prune(path, batches[int(part * len(batches))][0].time_ms).row_count_by_type
    return StateTableReader(path).rows()


@pytest.mark.parametrize("part", [0.3, 0.99])
def test_a_pruned_table_holds(table: Path, tmp_path: Path, part: float) -> None:
    rows = pruned_rows(table, tmp_path, part)
    markers = [row.commit_id for row in rows if row.record_type is RecordType.COMMIT_MARKER]
    assert min(markers) > 0
    verification = verify(rows, BROKER)
    assert verification.findings == []
    assert verification.transition_count == sum(len(row.transitions) for row in rows)


def test_the_history_of_a_pruned_table_has_the_records_in_flight(pruned: list[StateRow]) -> None:
    (live,) = fold(pruned).groups["group-1"].partitions.values()
    (history,) = group_history("group-1", pruned).partitions.values()
    assert history.start_offset == live.share_partition.start_offset
    last = next(reversed(list(live.share_partition.runs)))
    in_flight = [run for run in history.records if run.last_offset >= live.share_partition.start_offset]
    assert [(run.state, run.delivery_count) for run in in_flight][-1] == (last.state, last.delivery_count)
    assert set(group_history("group-1", pruned).client_ids) >= {"anna"}


def first_batch(rows: list[StateRow]) -> int:
    return min(row.commit_id for row in rows if row.record_type is RecordType.COMMIT_MARKER)


def test_a_batch_that_is_lost_after_the_pruned_ones_is_missed(pruned: list[StateRow]) -> None:
    lost = first_batch(pruned)
    rows = [row for row in pruned if row.commit_id != lost or row.record_type is RecordType.TABLE_SNAPSHOT]
    assert "commits_follow_each_other" in {finding.violation.invariant for finding in verify(rows, BROKER).findings}


def test_a_lost_snapshot_of_the_pruned_rows_is_missed(pruned: list[StateRow]) -> None:
    rows = [row for row in pruned if row.record_type is not RecordType.TABLE_SNAPSHOT]
    assert "pruned_rows_have_a_snapshot" in {finding.violation.invariant for finding in verify(rows, BROKER).findings}


def test_lost_rows_that_were_not_pruned_are_missed(pruned: list[StateRow]) -> None:
    rows = [row for row in pruned if row.record_type is not RecordType.PRUNED]
    assert "commits_follow_each_other" in {finding.violation.invariant for finding in verify(rows, BROKER).findings}


@pytest.mark.parametrize("column", ["start_offset", "delivery_complete_count", "snapshot_epoch"])
def test_a_table_snapshot_that_differs_from_the_rows_before_it_is_found(pruned: list[StateRow], column: str) -> None:
    index = max(
        i for i, row in enumerate(pruned) if row.record_type is RecordType.TABLE_SNAPSHOT and row.partition >= 0
    )
    pruned[index] = pruned[index].model_copy(update={column: 9_999})
    (finding,) = verify(pruned, BROKER).findings
    assert finding.violation.invariant == "row_agrees_with_its_replay"
    assert column in finding.violation.detail
