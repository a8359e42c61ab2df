"""The state table on servers of object stores: appends, fences, upkeep and maintenance."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any

import obstore
import pytest

from sharegroup.config.table_location import TableLocation
from sharegroup.errors import FencedProcessorError, StateTableError
from sharegroup.protocol.rows import RecordType
from sharegroup.state.commit_log import commits_after, versions
from sharegroup.state.maintenance import clean_log, compact, table_size, take_snapshot, vacuum
from sharegroup.state.open_storage import storage_of
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter
from sharegroup.state.table_scan import TableScan, damage_of
from sharegroup.state.upkeep import Upkeep
from sharegroup.state.writer import StateTableWriter
from tests.state.state_rows import BATCH_MS, marker_row
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.s3proxy import S3Proxy, s3_options
from tests.support.server_process import free_port

pytestmark = [pytest.mark.slow, pytest.mark.long("an S3 server and Azurite")]

IMPATIENT = {"timeout": "1s", "connect_timeout": "1s", "max_retries": "1", "retry_timeout": "2s"}


def append(writer: StateTableWriter, count: int, first: int = 0) -> None:
    for commit_id in range(first, first + count):
        writer.append([marker_row(commit_id, commit_id + 1)], commit_id)


def marker_ids(table: TableLocation) -> list[int]:
    """The commit ids of all markers, those that are there twice twice."""
    return sorted(row.commit_id for row in StateTableReader(table).rows([RecordType.COMMIT_MARKER]))


def test_a_table_is_created_appended_to_and_read(table: TableLocation) -> None:
    reader = StateTableReader(table)
    assert not reader.exists()
    writer = StateTableWriter.open(table, {})
    append(writer, 3)
    marker = reader.last_marker()
    assert marker is not None
    assert (marker.commit_id, reader.leader_epoch(), marker_ids(table)) == (2, 1, [0, 1, 2])
    assert reader.lost_files() == {}


def test_a_takeover_fences_the_writer_before(table: TableLocation) -> None:
    older = StateTableWriter.open(table, {})
    append(older, 1)
    younger = StateTableWriter.open(table, {})
    with pytest.raises(FencedProcessorError, match="belongs to leader epoch 2"):
        append(older, 1, first=1)
    append(younger, 1, first=1)
    assert marker_ids(table) == [0, 1]


def test_an_append_takes_four_requests(s3: S3Proxy, proxy: FaultyProxy) -> None:
    writer = StateTableWriter.open(s3.new_table(proxy.endpoint), {})
    append(writer, 1)
    proxy.fail()
    append(writer, 5, first=1)
    assert proxy.requests() == {"PUT": 10, "HEAD": 10, "failed": 0}


@pytest.mark.parametrize("fault", [Fault.LOST_RESPONSE, Fault.FALSE_500, Fault.REFUSED_503, Fault.AWAY, Fault.HANGS])
def test_a_commit_whose_response_is_lost_is_there_once(fault: Fault, s3: S3Proxy, proxy: FaultyProxy) -> None:
    table = s3.new_table(proxy.endpoint, **IMPATIENT)
    writer = StateTableWriter.open(table, {})
    append(writer, 1)
    proxy.fail(fault, method="PUT", part="_delta_log", times=1)
    append(writer, 2, first=1)
    assert proxy.requests()["failed"] == 2, "each commit met the fault"
    assert marker_ids(table) == [0, 1, 2]


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.REFUSED_500])
def test_a_commit_waits_for_a_server_that_is_away(fault: Fault, s3: S3Proxy, proxy: FaultyProxy) -> None:
    table = s3.new_table(proxy.endpoint, **IMPATIENT)
    writer = StateTableWriter.open(table, {})
    # More often than one request is repeated by the library.
    proxy.fail(fault, most=7)
    append(writer, 1)
    assert marker_ids(table) == [0]


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [(Fault.REFUSED_503, "the store fails or is overloaded"), (Fault.AWAY, "Check that the store can be reached")],
)
def test_a_server_that_stays_away_stops_the_writer(fault: Fault, remedy: str, s3: S3Proxy, proxy: FaultyProxy) -> None:
    table = s3.new_table(proxy.endpoint, **IMPATIENT)
    writer = StateTableWriter.open(table, {}, commit_timeout_ms=1_000)
    proxy.fail(fault)
    with pytest.raises(StateTableError, match=f"(?i){remedy}") as caught:
        append(writer, 1)
    assert str(table) in str(caught.value)
    assert "bucket tables" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "option", "remedy"),
    [
        ("s3://absent/state", {}, "Create the bucket"),
        ("s3://tables/state", {"aws_secret_access_key": "wrong"}, "Check the credentials"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_remedy(
    address: str, option: dict[str, str], remedy: str, s3: S3Proxy
) -> None:
    table = TableLocation(address, s3_options(s3.endpoint, **option))
    with pytest.raises(StateTableError, match=remedy):
        StateTableWriter.open(table, {})


def test_a_server_that_nobody_listens_at_is_named() -> None:
    table = TableLocation("s3://tables/state", s3_options(f"http://127.0.0.1:{free_port()}", **IMPATIENT))
    with pytest.raises(StateTableError, match="Check that the store can be reached"):
        StateTableWriter.open(table, {})


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [(Fault.REFUSED_503, "The store fails or is overloaded"), (Fault.AWAY, "Check that the store can be reached")],
)
def test_a_server_that_is_away_is_an_error_of_the_reader_and_no_damage(
    fault: Fault, remedy: str, s3: S3Proxy, proxy: FaultyProxy
) -> None:
    table = s3.new_table(proxy.endpoint, **IMPATIENT)
    append(StateTableWriter.open(table, {}), 1)
    scan, reader = TableScan(table), StateTableReader(table, stays_open=True)
    reader.version()
    readings: list[Callable[[], object]] = [
        lambda: damage_of(table, scan.files[0]),
        lambda: list(scan.pieces()),
        reader.rows,
        lambda: list(reader.stored(RowFilter(), ())),
        reader.recovery,
        lambda: TableScan(table),
    ]
    # The first two ask for the size of a file before they read it; lost files are only looked for.
    for method, asked in (("GET", readings), ("HEAD", [*readings[:2], reader.lost_files])):
        proxy.fail(fault, method=method)
        for reading in asked:
            with pytest.raises(StateTableError, match=remedy):
                reading()
    assert scan.damaged == []
    proxy.fail()
    assert [damage_of(table, file) for file in scan.files] == ["", ""]


class _Unconditional(BaseHTTPRequestHandler):
    """Accepts each put, whatever its condition says, as old servers with S3's protocol do."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._respond(200)

    def do_DELETE(self) -> None:
        self._respond(204)

    def do_GET(self) -> None:
        self._respond(404)

    do_HEAD = do_GET  # noqa: N815

    def _respond(self, status: int) -> None:
        self.send_response(status)
        self.send_header("ETag", '"same"')
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_a_server_that_ignores_the_condition_is_refused_by_name() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Unconditional)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    table = TableLocation("s3://tables/state", s3_options(f"http://127.0.0.1:{server.server_port}"))
    try:
        with pytest.raises(StateTableError, match=r"s3 bucket tables.* was created twice: the store ignores"):
            StateTableWriter.open(table, {})
    finally:
        server.shutdown()
        server.server_close()


def _race(table: TableLocation, event_count: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Take over and commit, again and again; runs in a process of its own.

    Returns:
        (leader epoch, commit id) of each commit that was acknowledged, and the leader epochs of the takeovers.
    """
    acknowledged: list[tuple[int, int]] = []
    fences: list[int] = []
    while len(acknowledged) + len(fences) < event_count:
        writer = StateTableWriter.open(table, {})
        fences.append(writer.leader_epoch)
        last = StateTableReader(table).last_marker()
        commit_id = last.commit_id if last is not None else -1
        try:
            for _ in range(4):
                commit_id += 1
                writer.append([marker_row(commit_id, commit_id + 1)], commit_id)
                acknowledged.append((writer.leader_epoch, commit_id))
        except FencedProcessorError:
            continue
    return acknowledged, fences


def test_racing_processors_lose_nothing_and_win_no_version_twice(table: TableLocation) -> None:
    # Azurite is the slower one.
    event_count = 200 if table.startswith("s3:") else 50
    StateTableWriter.open(table, {})
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        races = [processes.submit(_race, table, event_count // 2) for _ in range(2)]
        outcomes = [race.result() for race in races]
    acknowledged = [commit for commits, _ in outcomes for commit in commits]
    fences = [leader_epoch for _, leader_epochs in outcomes for leader_epoch in leader_epochs]
    assert len(acknowledged) + len(fences) >= event_count
    stored = [(row.leader_epoch, row.commit_id) for row in StateTableReader(table).rows([RecordType.COMMIT_MARKER])]
    counts = Counter(stored)
    assert set(acknowledged) <= set(stored), "an acknowledged commit is lost"
    assert max(counts.values()) == 1, "a commit is there twice"
    assert len(fences) == len(set(fences)), "two processors have one leader epoch"
    # One processor after the other: no commit follows one of a higher epoch.
    epochs = [commit.leader_epoch or 0 for commit in commits_after(table, 0) if commit.added]
    assert epochs == sorted(epochs)


def test_upkeep_merges_cleans_up_and_leaves_the_rows(table: TableLocation) -> None:
    writer = StateTableWriter.open(table, {})
    append(writer, 12)
    report = Upkeep(table, 300_000, 10).run_if_due()
    assert report is not None
    assert (report.error, report.merged_files > 0) == ("", True)
    append(writer, 2, first=12)
    assert marker_ids(table) == list(range(14))
    assert {damage_of(table, file) for file in TableScan(table).files} == {""}


def test_racing_compactions_double_no_row(table: TableLocation) -> None:
    writer = StateTableWriter.open(table, {})
    append(writer, 12)

    def compact_often() -> int:
        return sum(compact(table) for _ in range(3))

    with ThreadPoolExecutor(3) as others:
        compactions = [others.submit(compact_often) for _ in range(3)]
        append(writer, 12, first=12)
        assert sum(compaction.result() for compaction in compactions) > 0
    assert marker_ids(table) == list(range(24))
    before = table_size(table)
    assert before.live.files < before.data.files
    assert vacuum(table).files == 0, "a vacuum deletes nothing of the last hour"
    assert table_size(table).data == before.data


@pytest.mark.parametrize(("ahead_s", "deleted"), [(50, 1), (70, 0)])
def test_a_vacuum_deletes_nothing_while_the_clock_is_a_minute_ahead_of_the_store(
    ahead_s: int, deleted: int, s3: S3Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = s3.new_table()
    append(StateTableWriter.open(table, {}), 1)
    orphan = "date=2026-01-01/part-orphan.parquet"
    storage_of(table).write(orphan, b"of a process that was killed before its commit")
    time_ns = time.time_ns
    written_ns = time_ns() - 600 * 10**9
    os.utime(s3.objects(table) / orphan, ns=(written_ns, written_ns))
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + ahead_s * 10**9)
    assert vacuum(table).files == deleted
    assert storage_of(table).exists(orphan) is not bool(deleted)
    assert ("ahead of the store's" in caplog.text) is not bool(deleted)
    assert marker_ids(table) == [0]


def test_a_commit_has_its_rows_although_the_writer_stood_still(s3: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    table = s3.new_table()
    writer = StateTableWriter.open(table, {})
    append(writer, 1)
    put, time_ns, pause_ns = obstore.put, time.time_ns, 600 * 10**9
    deleted: list[int] = []

    def overtaken(store: Any, name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("_delta_log/") and not deleted:
            for file in s3.objects(table).glob("date=*/*.parquet"):
                modified_ns = file.stat().st_mtime_ns - pause_ns
                os.utime(file, ns=(modified_ns, modified_ns))
            deleted.append(vacuum(table).files)
            monkeypatch.setattr(time, "time_ns", lambda: time_ns() + pause_ns)
        return put(store, name, *arguments, **options)

    monkeypatch.setattr(obstore, "put", overtaken)
    append(writer, 2, first=1)
    assert deleted == [1]
    assert marker_ids(table) == [0, 1, 2]


def test_pruning_and_snapshots_work_beside_compactions(table: TableLocation) -> None:
    writer = StateTableWriter.open(table, {})
    append(writer, 5)
    assert take_snapshot(table, BATCH_MS * 2) > 0
    StateTableWriter.open(table, {}).append([marker_row(5, 6, time_ms=BATCH_MS + 5_000)], 5)
    pruned = prune(table, BATCH_MS + 1_000)
    assert pruned.row_count_by_type[RecordType.COMMIT_MARKER] == 5
    assert marker_ids(table) == [5]
    clean_log(table)
    assert versions(table)[0] == 0, "younger than the retention of the log"
    last = StateTableReader(table).last_marker()
    assert last is not None
    assert last.commit_id == 5
