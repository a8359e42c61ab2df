"""Sinks compared with the state table: what adds up, and each way in which it may not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sharegroup.audit.sinks.reconcile import SinkVerification, UndoneOffsets
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.sink_commits import WriteMetadata, WritePart, metadata_text, transaction_version
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import AlteredPartition, AlteredTopic, AlterShareGroupOffsetsRequest
from sharegroup.protocol.rows import StateRow
from sharegroup.protocol.write_resolution import ResolvedPartition, ResolvedRange
from tests.audit.sinks.written_group import SCHEMA, RowsInMemory, WrittenGroup

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@pytest.fixture
def written(tmp_path: Path) -> WrittenGroup:
    return WrittenGroup(tmp_path)


def invariants(verification: SinkVerification) -> list[str]:
    return sorted(finding.violation.invariant for finding in verification.findings)


def named(first: int, last: int, kind: AcknowledgeType) -> ResolvedPartition:
    of_range = ResolvedRange(first_offset=first, last_offset=last, acknowledge_type=kind)
    return ResolvedPartition(topic_id="orders-id", partition_index=0, ranges=[of_range])


def reset_to(written: WrittenGroup, offset: int) -> None:
    written.member.leave()
    written.group.settle()
    partition = AlteredPartition(partition_index=0, start_offset=offset)
    body = AlterShareGroupOffsetsRequest(topics=[AlteredTopic(topic_name="orders", partitions=[partition])])
    assert written.group.response_to(ApiKey.ALTER_SHARE_GROUP_OFFSETS, body).get("error_code", 0) == 0
    written.sink = DeltaSink(written.path)
    written.member = written.join("ben")


def test_all_is_well(written: WrittenGroup) -> None:
    first, second, third = written.acquire(), written.acquire(), written.acquire()
    written.resolve(written.write(first, range(5)))
    written.resolve(written.write(second, range(6, 10), [named(5, 5, REJECT)]))
    written.resolve(written.sink.resolve(written.unresolved(third)))
    verification = written.verify()
    assert invariants(verification) == []
    assert (verification.commit_count, verification.accepted_count, verification.row_count) == (2, 9, 9)
    assert (verification.open_count, verification.unchecked_count, verification.undone) == (0, 0, [])


def test_a_commit_may_have_several_writes(written: WrittenGroup) -> None:
    writes = [written.unresolved(written.acquire()) for _ in range(2)]
    columns = {"topic": ["orders"] * 10, "partition": [0] * 10, "offset": range(10), "value": range(10)}
    rows = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
    for report in written.sink.commit([WritePart(write) for write in writes], rows).reports:
        written.resolve(report)
    verification = written.verify()
    assert (verification.finding_count, verification.commit_count, verification.accepted_count) == (0, 1, 10)


def test_a_table_snapshot_and_a_takeover_hide_nothing(written: WrittenGroup) -> None:
    write = written.acquire()
    written.group.restart()
    written.group.settle()
    written.resolve(written.write(write, range(5)))
    assert written.verify().accepted_count == 5


def test_an_accepted_record_without_a_commit_is_found(written: WrittenGroup) -> None:
    claim = written.not_written(written.acquire())
    written.resolve(claim.model_copy(update={"others": ACCEPT}))
    (finding,) = written.verify().findings
    assert finding.violation.invariant == "accepted_record_has_its_result"
    assert "orders-0 offsets 0-4" in finding.violation.detail


def test_a_record_that_its_commit_does_not_accept_is_not_accepted(written: WrittenGroup) -> None:
    write = written.acquire()
    resolution = written.write(write, range(4), [named(4, 4, REJECT)])
    written.resolve(resolution.model_copy(update={"partitions": []}))
    (finding,) = written.verify().findings
    assert finding.violation.invariant == "accepted_record_has_its_result"
    assert "offsets 4-4" in finding.violation.detail


def test_the_last_part_of_a_write_has_what_no_other_part_names(written: WrittenGroup) -> None:
    write = written.acquire()
    first = [named(0, 0, REJECT), named(1, 1, ACCEPT), named(2, 2, RELEASE)]
    written.write(write, [1], first, part=0, names_all=True)
    written.resolve(written.write(write, [3, 4], after=0))
    again = written.acquire(max_records=1)
    written.resolve(written.write(again, [2]))
    verification = written.verify()
    assert verification.findings == []
    assert (verification.commit_count, verification.accepted_count, verification.row_count) == (3, 4, 4)


def test_an_open_write_says_nothing_yet(written: WrittenGroup) -> None:
    written.write(written.acquire(), range(5))
    verification = written.verify()
    assert (verification.open_count, verification.finding_count) == (1, 0)


def test_results_of_records_that_are_not_accepted_are_found(tmp_path: Path) -> None:
    written = WrittenGroup(tmp_path, columns=["value"])
    write = written.acquire()
    written.write(write, range(5))
    written.resolve(written.not_written(write))
    (finding,) = written.verify().findings
    assert finding.violation.invariant == "result_is_of_an_accepted_record"
    assert "offsets 0-4" in finding.violation.detail


def test_a_record_in_two_commits_is_found_by_commit_and_by_record(written: WrittenGroup) -> None:
    write = written.acquire()
    written.write(write, range(5))
    written.resolve(written.not_written(write))
    again = written.acquire()
    written.resolve(written.write(again, range(5)))
    counts = invariants(written.verify())
    assert counts.count("record_is_in_one_commit") == 1 + 5
    assert counts.count("result_is_of_an_accepted_record") == 1


def test_a_commit_of_a_write_that_was_never_opened_is_found(written: WrittenGroup) -> None:
    write = written.acquire()
    written.resolve(written.write(write, range(5)))
    metadata = WriteMetadata(app_id=write.app_id, version=write.version + 1)
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata_text([metadata])},
        app_transactions=[Transaction(write.app_id, transaction_version(write.version + 1))],
    )
    write_deltalake(written.path, SCHEMA.empty_table(), mode="append", commit_properties=properties)
    assert invariants(written.verify()) == ["commit_is_of_a_write"]


def test_versions_that_fall_are_found(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    written.resolve(written.write(written.acquire(), range(5, 10)))

    def opened_in_reverse(row: StateRow) -> StateRow:
        writes = [{**each, "opened_ms": -each["version"]} for each in row.payload.get("open_writes", ())]
        return row.model_copy(update={"payload": {**row.payload, "open_writes": writes}})

    rows = [opened_in_reverse(row) for row in written.group.rows]
    assert invariants(verify_sinks(RowsInMemory(rows), [])) == ["versions_of_an_application_id_rise"]


def test_rows_of_another_program_are_found_by_record(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    rows = pa.table({"topic": ["orders"], "partition": [0], "offset": [99], "value": [1]}, SCHEMA)
    write_deltalake(written.path, rows, mode="append")
    (finding,) = written.verify().findings
    assert finding.violation.invariant == "row_is_of_an_accepted_record"
    assert "orders-0 offset 99" in finding.violation.detail


def test_rows_that_name_no_record_are_not_compared(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    rows = pa.table({"topic": [None], "partition": [0], "offset": [99], "value": [1]}, SCHEMA)
    write_deltalake(written.path, rows, mode="append")
    verification = written.verify()
    assert (verification.findings, verification.row_count) == ([], 5)


def test_several_rows_of_a_record_in_one_commit_are_well(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), [0, 0, 1, 2]))
    DeltaTable(written.path).optimize.compact()
    assert written.verify().finding_count == 0


def test_what_a_restore_has_undone_is_listed_until_it_is_accepted_again(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    before = DeltaTable(written.path).version()
    written.resolve(written.write(written.acquire(), range(5, 10)))
    undone_at = DeltaTable(written.path).version()
    DeltaTable(written.path).restore(before)
    verification = written.verify()
    assert verification.undone == [
        UndoneOffsets(written.path, undone_at, written.group.group_id, "orders", 0, 5, 9),
    ]
    assert (verification.finding_count, verification.findings) == (1, [])
    reset_to(written, 5)
    written.resolve(written.write(written.acquire(), range(5, 10)))
    assert written.verify().finding_count == 0


def test_a_restore_of_a_restore_brings_results_back(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    table = DeltaTable(written.path)
    whole = table.version()
    table.restore(0)
    table.restore(whole)
    assert written.verify().finding_count == 0


def test_records_of_another_state_may_be_in_the_sink_again(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    reset_to(written, 0)
    written.resolve(written.write(written.acquire(), range(5)))
    verification = written.verify()
    assert (verification.finding_count, verification.accepted_count) == (0, 10)


def test_what_the_log_of_the_sink_has_no_more_is_counted(written: WrittenGroup) -> None:
    written.resolve(written.write(written.acquire(), range(5)))
    written.resolve(written.write(written.acquire(), range(5, 10)))
    DeltaTable(written.path).create_checkpoint()
    for version in range(2):
        Path(written.path, "_delta_log", f"{version:020}.json").unlink()
    verification = written.verify()
    assert (verification.finding_count, verification.accepted_count, verification.unchecked_count) == (0, 5, 1)


def test_sinks_that_are_not_named_are_named(tmp_path: Path, written: WrittenGroup) -> None:
    other = WrittenGroup(tmp_path / "other")
    written.resolve(written.write(written.acquire(), range(5)))
    verification = written.verify(other.path)
    assert (verification.other_sinks, verification.finding_count) == ([written.path], 0)


def test_a_path_without_a_table_is_an_error(tmp_path: Path, written: WrittenGroup) -> None:
    with pytest.raises(SinkError, match="cannot be read"):
        written.verify(str(tmp_path))
