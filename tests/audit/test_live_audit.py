"""The live auditor on the table of a real processor, without Spark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.live.live_partition import LivePartition
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.core.record_state import Cause
from sharegroup.errors import StateTableError, UnsupportedFormatVersionError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import commit_file, log_folder, versions
from sharegroup.state.file_merge import LiveFiles, merge_small_files
from sharegroup.state.maintenance import clean_log, compact, take_snapshot
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from tests.audit.live_follower import LiveFollower
from tests.support.site import BROKER, Site
from tests.support.stored_commit import store

pytestmark = pytest.mark.slow

NEVER_MS = 2**62
GROUP = "packers"
COUNTED = {
    "deliveries": Cause.ACQUIRE,
    "accepted": Cause.ACCEPT,
    "rejected": Cause.REJECT,
    "released": Cause.RELEASE,
    "redriven": Cause.REDRIVE,
}


def work(site: Site, topic: str, count: int) -> None:
    """Deliver records, and accept, reject and release them in turn."""
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE)
    with site.consumer(GROUP, topic, share_acknowledgement_mode="explicit", max_poll_records=7) as consumer:
        worked_off = 0

        def has_enough() -> bool:
            nonlocal worked_off
            for message in consumer.poll(timeout=0.2):
                consumer.acknowledge(message, kinds[worked_off % 3])
                worked_off += 1
            consumer.commit_sync()
            return worked_off >= count

        site.until(has_enough, f"{count} deliveries")


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table of two processors, with changed limits and a redrive; only to be copied."""
    site = Site(tmp_path_factory.mktemp("site"))
    with site.running():
        topic = site.new_topic(partition_count=2, record_count=40)
        site.new_group(GROUP, share_delivery_count_limit="3")
        work(site, topic, 60)
        site.admin.alter_group_config(GROUP, {"share.delivery.count.limit": "2"})
    with site.running():
        work(site, topic, 20)
        archived = [
            ((folded.topic_id, folded.partition), (run.first_offset, run.last_offset))
            for folded in site.folded(GROUP).partitions.values()
            for run in folded.share_partition.runs
            if run.state.name == "ARCHIVED"
        ]
        for key, offsets in archived[:1]:
            site.admin.redrive_share_group_records(GROUP, {key: [offsets]})
    yield site.state_path
    site.close()


@pytest.fixture
def table(worked: Path, tmp_path: Path) -> Path:
    """A table of the test's own."""
    return Path(copytree(worked, tmp_path / "state"))


def followed(table: Path, most_commits: int = 5_000) -> LiveFollower:
    follower = LiveFollower(table, BROKER, most_commits)
    follower.follow()
    return follower


def after_half(table: Path) -> LiveFollower:
    """An auditor that was stopped in the middle of the table."""
    follower = LiveFollower(table, BROKER, most_commits=_last_commit(table) // 2)
    follower.follow_once()
    return follower


def _last_commit(table: Path) -> int:
    marker = StateTableReader(str(table)).last_marker()
    assert marker is not None
    return marker.commit_id


def expire_log(table: Path) -> None:
    """Clean the log up, as if the last checkpoint were old."""
    clean_log(str(table))
    for file in log_folder(str(table)).glob("*.checkpoint*.parquet"):
        os.utime(file, (0, 0))
    clean_log(str(table))


def invariants(follower: LiveFollower) -> set[str]:
    return {finding["invariant"] for finding in follower.findings}


def test_statistics_are_those_of_the_history(table: Path) -> None:
    follower = followed(table)
    follower.close_minutes(NEVER_MS)
    history = group_history(GROUP, StateTableReader(str(table)).rows(group_id=GROUP))
    by_cause = sum((partition.record_count_by_cause for partition in history.partitions.values()), Counter[Cause]())
    total = follower.total()
    assert {name: total[name] for name in COUNTED} == {name: by_cause[cause] for name, cause in COUNTED.items()}
    assert total["accepted"] > 20
    assert total["in_flight_ms"] > 0
    assert (follower.findings, follower.progress["commit_id"]) == ([], _last_commit(table))


@pytest.mark.parametrize("most_commits", [1, 3])
def test_the_size_of_a_batch_does_not_matter(table: Path, most_commits: int) -> None:
    at_once, in_steps = followed(table), followed(table, most_commits)
    assert in_steps.findings == []
    assert in_steps.texts.keys() == at_once.texts.keys()
    for key, text in at_once.texts.items():
        assert LivePartition.from_text(in_steps.texts[key]).state == LivePartition.from_text(text).state
    at_once.close_minutes(NEVER_MS)
    in_steps.close_minutes(NEVER_MS)
    assert in_steps.total()["deliveries"] == at_once.total()["deliveries"]


def test_it_continues_by_commit_id_after_merges_a_snapshot_and_a_clean_up_of_the_log(table: Path) -> None:
    stopped = after_half(table)
    assert merge_small_files(str(table), LiveFiles(str(table))) > 0
    assert take_snapshot(str(table), NEVER_MS) > 0
    assert compact(str(table)) > 0
    expire_log(table)
    assert stopped.position is not None
    assert not commit_file(str(table), stopped.position.version).exists()
    continued = stopped.started_again()
    continued.follow()
    assert invariants(continued) == {"each_version_is_checked"}
    assert continued.progress["commit_id"] == _last_commit(table)
    whole = followed(table.parent / table.name)
    states = {key: LivePartition.from_text(text).state for key, text in continued.texts.items()}
    for key, text in whole.texts.items():
        state = LivePartition.from_text(text).state
        assert state is not None
        assert (states[key] is None, state.runs) == (False, getattr(states[key], "runs", None))


def test_without_a_position_it_begins_with_the_last_table_snapshot(table: Path) -> None:
    before = followed(table)
    take_snapshot(str(table), NEVER_MS)
    follower = followed(table)
    assert (follower.findings, follower.minutes, follower.progress["commit_id"]) == ([], [], _last_commit(table))
    with_state = {key for key, text in before.texts.items() if LivePartition.from_text(text).state is not None}
    assert follower.texts.keys() >= with_state


def test_upkeep_and_maintenance_are_no_foreign_commits(table: Path) -> None:
    follower = followed(table)
    merge_small_files(str(table), LiveFiles(str(table)))
    take_snapshot(str(table), NEVER_MS)
    compact(str(table))
    assert prune(str(table), NEVER_MS // 1_000_000).row_count_by_type
    follower.follow()
    assert follower.findings == []


@pytest.mark.parametrize("change", ["optimize", "delete", "append"])
def test_a_foreign_commit_is_reported_with_its_version(table: Path, change: str) -> None:
    follower = followed(table)
    foreign = DeltaTable(str(table))
    if change == "optimize":
        foreign.optimize.compact()
    elif change == "delete":
        foreign.alter.set_table_properties({"delta.appendOnly": "false"})
        DeltaTable(str(table)).delete(f"group_id = '{GROUP}' AND request_offset = 3")
    else:
        row = pa.table(foreign.scan(predicate="record_type = 'ShareUpdate'")).slice(0, 1)
        write_deltalake(str(table), row, mode="append")
    version = versions(str(table))[-1]
    follower.follow()
    (finding,) = follower.findings
    assert finding["invariant"] == "only_processors_write_rows"
    assert finding["location"] == f"version {version} of the Delta log"
    follower.follow()
    assert len(follower.findings) == 1


def test_a_row_that_contradicts_the_rows_before_it_is_reported(table: Path) -> None:
    follower = followed(table)
    last = StateTableReader(str(table)).rows([RecordType.SHARE_UPDATE, RecordType.SHARE_SNAPSHOT], GROUP)[-1]
    wrong: StateRow = last.model_copy(
        update={"request_offset": last.request_offset + 1_000, "start_offset": last.start_offset + 1}
    )
    store(str(table), [wrong])
    follower.follow()
    assert "row_agrees_with_its_replay" in invariants(follower)
    locations = {finding["location"] for finding in follower.findings}
    assert f"group {GROUP} {last.topic}-{last.partition}" in locations


def test_a_row_without_a_state_before_it_is_reported(table: Path) -> None:
    follower = followed(table)
    last = StateTableReader(str(table)).rows([RecordType.SHARE_UPDATE, RecordType.SHARE_TRANSITIONS], GROUP)[-1]
    orphan_row = last.model_copy(update={"request_offset": last.request_offset + 1_000, "topic_id": "another-id"})
    store(str(table), [orphan_row])
    follower.follow()
    assert invariants(follower) == {"rows_follow_a_snapshot"}


def test_a_lost_commit_is_reported(table: Path) -> None:
    follower = followed(table)
    path = str(table)
    marker = StateTableReader(path).last_marker()
    assert marker is not None
    late = StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id="others",
        request_partition=0,
        request_offset=max(marker.end_offsets.values()) + 5,
        time_ms=marker.time_ms,
        payload={"records": []},
    )
    store(path, [late], skipped_commits=2)
    follower.follow()
    assert invariants(follower) == {"commits_follow_each_other"}


def test_where_rows_were_pruned_it_says_so_and_begins_again(table: Path) -> None:
    stopped = after_half(table)
    take_snapshot(str(table), NEVER_MS)
    assert prune(str(table), NEVER_MS // 1_000_000).row_count_by_type
    expire_log(table)
    continued = stopped.started_again()
    continued.follow()
    assert invariants(continued) == {"each_version_is_checked", "pruned_rows_were_checked"}
    assert stopped.position is not None
    pruned = [f["detail"] for f in continued.findings if f["invariant"] == "pruned_rows_were_checked"]
    assert f"commits {stopped.position.commit_id + 1} to " in pruned[0]
    assert f" to {_last_commit(table)} were pruned" in pruned[-1]
    whole = followed(table)
    assert {k: LivePartition.from_text(t).state for k, t in whole.texts.items()} == {
        key: LivePartition.from_text(continued.texts[key]).state for key in whole.texts
    }


def test_an_older_copy_of_the_table_is_refused(table: Path) -> None:
    older = Path(copytree(table, table.parent / "older"))
    last = StateTableReader(str(table)).rows([RecordType.GROUP_METADATA], GROUP)[-1]
    store(
        str(table),
        [last.model_copy(update={"request_offset": last.request_offset + 1_000, "payload": {"records": []}})],
    )
    follower = followed(table)
    rmtree(table)
    older.rename(table)
    with pytest.raises(StateTableError, match="it is another table, or an older copy"):
        follower.started_again().follow()


def test_a_state_of_another_release_is_refused() -> None:
    with pytest.raises(UnsupportedFormatVersionError, match="has version 1"):
        LivePartition.from_text('{"version": 1}')
