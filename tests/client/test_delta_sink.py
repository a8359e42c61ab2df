"""A Delta table as a sink: a write is in it once, however late its writer wakes up, and a lookup says so for ever."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_commits import (
    CLOSING_PART,
    MAX_METADATA_BYTES,
    SinkCommit,
    WriteMetadata,
    WritePart,
    commits_of,
    metadata_text,
    transaction_version,
)
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError, UndecidedWriteError
from sharegroup.protocol.sink_writes import UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolvedRange, ResolveWriteRequest

DAY_MS = 24 * 60 * 60 * 1_000
ACCEPT, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
REJECTED = ResolvedPartition(
    topic_id="t", partition_index=0, ranges=[ResolvedRange(first_offset=3, last_offset=3, acknowledge_type=REJECT)]
)


def rows(*values: int) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.int64())})


@pytest.fixture
def path(tmp_path: Path) -> str:
    write_deltalake(str(tmp_path / "totals"), rows(0))
    return str(tmp_path / "totals")


def write_of(sink: DeltaSink, version: int = 100, slot: int = 0) -> UnresolvedWrite:
    table = sink.sink
    return UnresolvedWrite(
        app_id=f"sharegroup/s/g/{table.table_id}/{slot}",
        version=version,
        table_id=table.table_id,
        address=table.address,
        sink_version=table.version,
    )


def values(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["value"].to_pylist())


def outcome(resolved: ResolveWriteRequest) -> tuple[AcknowledgeType | None, bool, int]:
    return resolved.others, resolved.is_closed, sum(len(named.ranges) for named in resolved.partitions)


def commit(
    sink: DeltaSink, write: UnresolvedWrite, table: pa.Table, partitions: list[ResolvedPartition] | None = None
) -> SinkCommit:
    """One commit with the whole write."""
    return sink.commit([WritePart(write, partitions or [])], table)


def test_what_is_written_is_there_once_with_its_acknowledgements(path: str) -> None:
    sink = DeltaSink(path, user_metadata="nightly")
    write = write_of(sink)
    expected = commit(sink, write, rows(1, 2), [REJECTED])
    assert expected.is_written
    assert outcome(expected.reports[0]) == (ACCEPT, True, 1)
    # A run that comes again, and each lookup, say what the first run has written.
    assert commit(sink, write, rows(7)) == expected
    assert [DeltaSink(path).resolve(write)] == expected.reports
    assert values(path) == [0, 1, 2]
    assert '"userMetadata":"nightly"' in DeltaTable(path).history(1)[0]["userMetadata"]


def test_a_write_without_rows_is_a_commit_too(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    assert outcome(commit(sink, write, rows(), [REJECTED]).reports[0]) == (ACCEPT, True, 1)
    assert outcome(sink.resolve(write)) == (ACCEPT, True, 1)


def test_a_writer_that_wakes_up_late_finds_the_fence(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    assert outcome(DeltaSink(path).resolve(write)) == (None, True, 0)
    late = commit(sink, write, rows(1))
    assert not late.is_written
    assert outcome(late.reports[0]) == outcome(sink.resolve(write)) == (None, True, 0)
    assert values(path) == [0]


def test_a_fence_between_the_load_and_the_commit_refuses_the_commit(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    before_commit(monkeypatch, lambda: DeltaSink(path).resolve(write))
    assert not commit(sink, write, rows(1)).is_written
    assert values(path) == [0]


def test_a_commit_whose_response_is_lost_is_read_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    before_commit(monkeypatch, lambda: commit(DeltaSink(path), write, rows(5), [REJECTED]))
    again = commit(sink, write, rows(5))
    assert again.is_written
    assert outcome(again.reports[0]) == (ACCEPT, True, 1)
    assert values(path) == [0, 5]


def test_several_writes_are_in_one_commit(path: str) -> None:
    sink = DeltaSink(path)
    first, second = write_of(sink), write_of(sink, 101, slot=1)
    committed = sink.commit([WritePart(first), WritePart(second, [REJECTED])], rows(1))
    assert committed.is_written
    assert [outcome(report) for report in committed.reports] == [(ACCEPT, True, 0), (ACCEPT, True, 1)]
    assert [DeltaSink(path).resolve(write) for write in (first, second)] == committed.reports
    assert DeltaTable(path).version() == 1


def test_a_commit_has_a_thousand_writes(path: str) -> None:
    sink = DeltaSink(path)
    writes = [write_of(sink, 1_000_000 + slot, slot) for slot in range(1_000)]
    parts = [WritePart(write, accepted=[("t" * 22, 0, write.version, write.version + 9)]) for write in writes]
    parts[7] = parts[7]._replace(partitions=[REJECTED])
    committed = sink.commit(parts, rows(1))
    assert committed.is_written
    assert {outcome(report) for report in committed.reports} == {(ACCEPT, True, 0), (ACCEPT, True, 1)}
    assert DeltaTable(path).version() == 1
    commits = commits_of((Path(path) / "_delta_log" / f"{1:020}.json").read_text().splitlines(), 1)
    assert [each.metadata for each in commits] == [part.metadata for part in parts]


def test_more_writes_than_fit_into_the_metadata_leave_out_what_they_accept() -> None:
    writes = [
        WriteMetadata(app_id=f"a/{slot}", version=slot, accepted=[("t" * 22, 0, 0, 10**9)]) for slot in range(20_000)
    ]
    line = json.dumps({"commitInfo": {"userMetadata": metadata_text(writes)}})
    named = [(each.metadata.app_id, each.metadata.version, each.metadata.accepted) for each in commits_of([line], 1)]
    assert named == [(f"a/{slot}", slot, []) for slot in range(20_000)]


def test_of_several_writes_one_that_is_fenced_keeps_the_others_out(path: str) -> None:
    sink = DeltaSink(path)
    first, second, third = write_of(sink), write_of(sink, 101, slot=1), write_of(sink, 102, slot=2)
    DeltaSink(path).resolve(second)
    committed = sink.commit([WritePart(first), WritePart(second), WritePart(third)], rows(1))
    assert not committed.is_written
    assert [outcome(report) for report in committed.reports] == [(None, True, 0)] * 3
    assert not commit(sink, first, rows(1)).is_written
    assert values(path) == [0]


def test_a_fence_of_the_slots_last_write_refuses_nothing(path: str) -> None:
    """A commit begins from the table as the one before has left it; meanwhile another write of its slot was fenced."""
    sink = DeltaSink(path)
    first, lost, second = write_of(sink), write_of(sink, 101, slot=1), write_of(sink, 102, slot=1)
    assert commit(sink, first, rows(1)).is_written
    assert outcome(DeltaSink(path).resolve(lost)) == (None, True, 0)
    assert commit(sink, second, rows(2)).is_written
    assert values(path) == [0, 1, 2]
    assert outcome(sink.resolve(lost)) == (None, True, 0)


def test_parts_of_one_run_say_what_each_of_them_has(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    parts = [
        WritePart(write, [accepted(0, 2)], names_all=True, part=0),
        WritePart(write, [accepted(3, 4)], names_all=True, part=1, after=0),
        WritePart(write, [accepted(7, 9)], names_all=True, part=CLOSING_PART, after=1),
    ]
    committed = [sink.commit([part], rows(value) if value != 2 else None) for value, part in enumerate(parts, 1)]
    assert [each.is_written for each in committed] == [True] * 3
    assert [outcome(each.reports[0]) for each in committed] == [(None, False, 1), (None, False, 1), (None, True, 3)]
    assert [DeltaSink(path).resolve(write)] == committed[2].reports
    assert values(path) == [0, 1, 3]


def test_a_part_after_a_fence_is_refused_and_those_before_it_count(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    sink.commit([WritePart(write, [accepted(0, 2)], names_all=True, part=0)], rows(1))
    DeltaSink(path).resolve(write)
    late = sink.commit([WritePart(write, [accepted(3, 4)], names_all=True, part=1, after=0)], rows(2))
    assert not late.is_written
    assert late.reports[0].partitions == [accepted(0, 2)]
    assert values(path) == [0, 1]


def test_other_commits_beside_it_do_not_matter(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(path)
    write, other = write_of(sink), write_of(sink, 101, slot=1)
    before_commit(monkeypatch, lambda: (write_deltalake(path, rows(9), mode="append"), DeltaTable(path).vacuum()))
    expected = commit(sink, write, rows(1)).reports[0]
    DeltaTable(path).optimize.compact()
    assert outcome(sink.resolve(other)) == (None, True, 0)
    DeltaTable(path).create_checkpoint()
    assert sink.resolve(write) == expected
    assert values(path) == [0, 1, 9]


def test_a_commit_is_found_behind_any_number_of_others(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    expected = commit(sink, write, rows(1)).reports[0]
    others = range(sink.sink.version + 1, sink.sink.version + 1_101)
    for version in others:
        Path(path, "_delta_log", f"{version:020}.json").write_text('{"commitInfo":{"timestamp":0,"operation":"WRITE"}}')
    assert DeltaSink(path).resolve(write) == expected
    assert DeltaTable(path).version() == others[-1]


def test_the_slot_of_a_closed_write_is_used_by_the_next_one(path: str) -> None:
    sink = DeltaSink(path)
    first = write_of(sink)
    sink.resolve(first)
    second = write_of(sink, 200)
    assert outcome(commit(sink, second, rows(1)).reports[0]) == (ACCEPT, True, 0)
    assert values(path) == [0, 1]


def test_parts_are_reported_together_once_the_write_is_fenced(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    write_part(path, write)
    assert outcome(sink.resolve(write)) == (None, True, 1)


def test_a_second_run_that_meets_a_part_of_the_first_writes_nothing(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    write_part(path, write)
    second = commit(sink, write, rows(2))
    assert not second.is_written
    assert outcome(second.reports[0]) == (None, True, 1)
    assert values(path) == [0, 1]


def test_a_table_that_was_created_again_has_nothing_of_it(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    write_deltalake(path, pa.table({"value": [4], "more": [1]}), mode="overwrite", schema_mode="overwrite")
    assert DeltaSink(path).sink.table_id == write.table_id
    other = write.model_copy(update={"table_id": "another"})
    assert outcome(sink.resolve(other)) == (None, True, 0)
    assert not commit(sink, other, rows(1)).is_written
    assert DeltaTable(path).version() == 1, "nor is a fence"


def test_nothing_gets_into_a_table_that_was_created_again_between_two_commits(path: str) -> None:
    sink = DeltaSink(path)
    first, second = write_of(sink), write_of(sink, 101)
    assert commit(sink, first, rows(1)).is_written
    shutil.rmtree(path)
    # Its log is longer than what the writer knows of the one before.
    for value in range(20, 25):
        write_deltalake(path, rows(value), mode="append")
    late = commit(sink, second, rows(2))
    assert not late.is_written
    assert outcome(late.reports[0]) == (None, True, 0)
    assert values(path) == list(range(20, 25))
    assert sink.sink.table_id != second.table_id


def test_commits_of_others_between_two_commits_do_not_matter(path: str) -> None:
    sink = DeltaSink(path)
    writes = [write_of(sink, 100 + n) for n in range(3)]
    for number, write in enumerate(writes, 1):
        assert commit(sink, write, rows(number)).is_written
        write_deltalake(path, rows(10 * number), mode="append")
        DeltaTable(path).optimize.compact()
    assert [outcome(DeltaSink(path).resolve(write)) for write in writes] == [(ACCEPT, True, 0)] * 3
    assert values(path) == [0, 1, 2, 3, 10, 20, 30]


def test_a_fence_between_two_commits_refuses_the_second(path: str) -> None:
    sink = DeltaSink(path)
    first, second = write_of(sink), write_of(sink, 101)
    assert commit(sink, first, rows(1)).is_written
    DeltaSink(path).resolve(second)
    assert not commit(sink, second, rows(2)).is_written
    assert values(path) == [0, 1]


def test_a_write_whose_commit_is_cleaned_up_is_not_guessed(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    commit(sink, write, rows(1))
    DeltaTable(path).create_checkpoint()
    for file in sorted(Path(path, "_delta_log").glob("*.json"))[:2]:
        file.unlink()
    with pytest.raises(UndecidedWriteError, match="groups resolve --write"):
        sink.resolve(write)


def test_a_file_with_a_name_that_a_clean_up_has_freed_does_not_count(path: str, tmp_path: Path) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    late = str(tmp_path / "late")
    shutil.copytree(path, late)
    for value in (7, 8):
        write_deltalake(path, rows(value), mode="append")
    DeltaTable(path).create_checkpoint()
    # Spark commits so, with a snapshot from before the clean-up, and reports success.
    assert commit(DeltaSink(late), write, rows(1)).is_written
    shutil.copytree(late, path, dirs_exist_ok=True)
    lookups = [DeltaSink(path).resolve(write) for _ in range(2)]
    assert [outcome(lookup) for lookup in lookups] == [(None, True, 0)] * 2
    assert values(path) == [0, 7, 8]


def test_what_a_table_may_have_forgotten_is_not_guessed(path: str) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 10 days"})
    now_ms = time.time_ns() // 1_000_000
    with DeltaSink(path) as sink:
        old = write_of(sink).model_copy(update={"opened_ms": now_ms - 8 * DAY_MS})
        with pytest.raises(UndecidedWriteError, match="groups resolve --write"):
            sink.resolve(old)
        sink.check(9 * DAY_MS)
        assert outcome(sink.resolve(old)) == (None, True, 0)


def test_a_log_that_is_cleaned_up_between_two_commits_is_an_error_of_the_sink(path: str) -> None:
    sink = DeltaSink(path)
    commit(sink, write_of(sink), rows(1))
    write_deltalake(path, rows(2), mode="append")
    DeltaTable(path).create_checkpoint()
    for file in Path(path, "_delta_log").glob("*0.json"):
        file.unlink()
    second = write_of(sink, 200, slot=1)
    with pytest.raises(SinkError, match="cannot be read"):
        commit(sink, second, rows(3))
    assert outcome(commit(sink, second, rows(3)).reports[0]) == (ACCEPT, True, 0)
    assert values(path) == [0, 1, 2, 3]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no Delta table"):
        DeltaSink(str(tmp_path / "nothing"))


def test_acknowledgements_that_do_not_fit_into_a_commit_are_refused_before_it(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    ranges = [
        ResolvedRange(first_offset=n, last_offset=n, acknowledge_type=REJECT) for n in range(0, MAX_METADATA_BYTES, 50)
    ]
    with pytest.raises(SinkError, match="more parts"):
        commit(sink, write, rows(1), [ResolvedPartition(topic_id="t", partition_index=0, ranges=ranges)])
    assert values(path) == [0]


def test_a_writer_and_a_lookup_at_the_same_time_agree(path: str) -> None:
    for version in range(100, 115):
        sink = DeltaSink(path)
        write = write_of(sink, version)
        with ThreadPoolExecutor(1) as threads:
            lookup = threads.submit(DeltaSink(path).resolve, write)
            written = commit(sink, write, rows(version)).reports[0].others
        assert lookup.result().others is written
        assert (version in values(path)) is (written is ACCEPT)


def accepted(first: int, last: int) -> ResolvedPartition:
    named = ResolvedRange(first_offset=first, last_offset=last, acknowledge_type=ACCEPT)
    return ResolvedPartition(topic_id="t", partition_index=0, ranges=[named])


def write_part(path: str, write: UnresolvedWrite) -> None:
    """The first of several commits of a write, which accepts three records."""
    metadata = WriteMetadata(app_id=write.app_id, version=100, part=0, names_all=True, partitions=[accepted(0, 2)])
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata_text([metadata])},
        app_transactions=[Transaction(write.app_id, transaction_version(100, 0))],
    )
    write_deltalake(DeltaTable(path), rows(1), mode="append", commit_properties=properties)


def before_commit(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let something happen once between the load of a table and the next commit into it."""
    pending = [action]

    def write(*arguments: Any, **keywords: Any) -> None:
        if pending:
            pending.pop()()
        write_deltalake(*arguments, **keywords)

    monkeypatch.setattr("sharegroup.client.delta_sink.write_deltalake", write)
