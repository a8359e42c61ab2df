"""A Delta table as a sink: a write is in it once, however late its writer wakes up, and a lookup says so for ever."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_commits import MAX_METADATA_BYTES, WriteMetadata, transaction_version
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError, UndecidedWriteError, WriteFencedError
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolvedRange, ResolveWriteRequest

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


def named(write: UnresolvedWrite) -> Sink:
    """The sink as the fetch named it."""
    return Sink(address=write.address, table_id=write.table_id, version=write.sink_version)


def values(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["value"].to_pylist())


def outcome(resolved: ResolveWriteRequest) -> tuple[AcknowledgeType | None, bool, int]:
    return resolved.others, resolved.is_closed, sum(len(named.ranges) for named in resolved.partitions)


def test_what_is_written_is_there_once_with_its_acknowledgements(path: str) -> None:
    sink = DeltaSink(path, user_metadata="nightly")
    write = write_of(sink)
    expected = sink.write(write, named(write), rows(1, 2), [REJECTED])
    assert outcome(expected) == (ACCEPT, True, 1)
    # A run that comes again, and each lookup, say what the first run has written.
    assert sink.write(write, named(write), rows(7)) == expected
    assert DeltaSink(path).resolve(write) == expected
    assert values(path) == [0, 1, 2]
    assert '"userMetadata": "nightly"' in DeltaTable(path).history(1)[0]["userMetadata"]


def test_a_write_without_rows_is_a_commit_too(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    assert outcome(sink.write(write, named(write), rows(), [REJECTED])) == (ACCEPT, True, 1)
    assert outcome(sink.resolve(write)) == (ACCEPT, True, 1)


def test_a_writer_that_wakes_up_late_finds_the_fence(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    assert outcome(DeltaSink(path).resolve(write)) == (None, True, 0)
    with pytest.raises(WriteFencedError, match="fenced"):
        sink.write(write, named(write), rows(1))
    assert outcome(sink.resolve(write)) == (None, True, 0)
    assert values(path) == [0]


def test_a_fence_between_the_load_and_the_commit_refuses_the_commit(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    before_commit(monkeypatch, lambda: DeltaSink(path).resolve(write))
    with pytest.raises(WriteFencedError):
        sink.write(write, named(write), rows(1))
    assert values(path) == [0]


def test_a_commit_whose_response_is_lost_is_read_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    before_commit(monkeypatch, lambda: DeltaSink(path).write(write, named(write), rows(5), [REJECTED]))
    assert outcome(sink.write(write, named(write), rows(5))) == (ACCEPT, True, 1)
    assert values(path) == [0, 5]


def test_other_commits_beside_it_do_not_matter(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(path)
    write, other = write_of(sink), write_of(sink, 101, slot=1)
    before_commit(monkeypatch, lambda: (write_deltalake(path, rows(9), mode="append"), DeltaTable(path).vacuum()))
    expected = sink.write(write, named(write), rows(1))
    DeltaTable(path).optimize.compact()
    assert outcome(sink.resolve(other)) == (None, True, 0)
    DeltaTable(path).create_checkpoint()
    assert sink.resolve(write) == expected
    assert values(path) == [0, 1, 9]


def test_the_slot_of_a_closed_write_is_used_by_the_next_one(path: str) -> None:
    sink = DeltaSink(path)
    first = write_of(sink)
    sink.resolve(first)
    second = write_of(sink, 200)
    assert outcome(sink.write(second, named(second), rows(1))) == (ACCEPT, True, 0)
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
    assert outcome(sink.write(write, named(write), rows(2))) == (None, True, 1)
    assert values(path) == [0, 1]


def test_a_table_that_was_created_again_has_nothing_of_it(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    write_deltalake(path, pa.table({"value": [4], "more": [1]}), mode="overwrite", schema_mode="overwrite")
    assert DeltaSink(path).sink.table_id == write.table_id
    other = write.model_copy(update={"table_id": "another"})
    assert outcome(sink.resolve(other)) == (None, True, 0)
    with pytest.raises(WriteFencedError, match="another"):
        sink.write(write, named(other), rows(1))


def test_a_write_whose_commit_is_cleaned_up_is_not_guessed(path: str) -> None:
    sink = DeltaSink(path)
    write = write_of(sink)
    sink.write(write, named(write), rows(1))
    DeltaTable(path).create_checkpoint()
    for file in sorted(Path(path, "_delta_log").glob("*.json"))[:2]:
        file.unlink()
    with pytest.raises(UndecidedWriteError, match="groups resolve --write"):
        sink.resolve(write)


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
        sink.write(write, named(write), rows(1), [ResolvedPartition(topic_id="t", partition_index=0, ranges=ranges)])
    assert values(path) == [0]


def test_a_writer_and_a_lookup_at_the_same_time_agree(path: str) -> None:
    for version in range(100, 115):
        sink = DeltaSink(path)
        write = write_of(sink, version)
        with ThreadPoolExecutor(1) as threads:
            lookup = threads.submit(DeltaSink(path).resolve, write)
            try:
                written = sink.write(write, named(write), rows(version)).others
            except WriteFencedError:
                written = None
        assert lookup.result().others is written
        assert (version in values(path)) is (written is ACCEPT)


def write_part(path: str, write: UnresolvedWrite) -> None:
    """The first of several commits of a write, which accepts three records."""
    accepted = ResolvedRange(first_offset=0, last_offset=2, acknowledge_type=ACCEPT)
    partitions = [ResolvedPartition(topic_id="t", partition_index=0, ranges=[accepted])]
    metadata = WriteMetadata(app_id=write.app_id, version=100, part=0, names_all=True, partitions=partitions)
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata.text()},
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
