"""Audits by Spark print the documents that audits without a JVM print: the rows are the same, and so is the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from jobs.replay_audit import COMMANDS
from jobs.replay_audit import program as job_program
from sharegroup.audit.history.as_of import Selection, as_of
from sharegroup.audit.history.extent import read_extent
from sharegroup.audit.history.row_source import RowSource, TableRows
from sharegroup.audit.verification.findings import Verification
from sharegroup.audit.verification.verify_table import Progress
from sharegroup.cli.audit_source import TableAccess
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import PointOutsideHistoryError, StateTableError
from sharegroup.programs.main import program
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.audit_rows import SparkRows
from sharegroup.spark.verify_by_spark import verify_by_spark
from sharegroup.state.fold import fold_order
from sharegroup.state.maintenance import take_snapshot
from sharegroup.state.row_filter import RowFilter
from sharegroup.state.writer import StateTableWriter
from tests.spark.spark_site import SparkSite
from tests.support.eventually import DEADLINE_S

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Worked:
    """A table that a processor wrote: two groups, a topic of two partitions, and a table snapshot in its middle."""

    spark: SparkSession
    path: str
    group_id: str
    topic: str

    def printed(self, arguments: str) -> tuple[str, str]:
        """The output of a command, and that of the job."""
        flags = [*shlex.split(arguments), "--state-table", self.path, "--log", "unused.db", "--output", "json"]
        by_command = CliRunner().invoke(program, ["audit", *flags], catch_exceptions=False)
        by_job = CliRunner().invoke(
            job_program, flags, obj=TableAccess(self._open, self._verify), catch_exceptions=False
        )
        assert (by_command.exit_code, by_job.exit_code) == (0, 0), by_command.output + by_job.output
        return by_command.stdout, by_job.stdout

    def _open(self, path: str) -> RowSource:
        return SparkRows(lambda: self.spark, path)

    def _verify(self, path: str, broker: BrokerConfig, group_id: str | None, _: Progress) -> Verification:
        return verify_by_spark(self.spark, path, broker, group_id)


@pytest.fixture(scope="module")
def worked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    site = SparkSite(spark, tmp_path_factory.mktemp("audited"))
    try:
        with site.running():
            topic = site.new_topic(2, 20)
            group_id, other = site.new_group(), site.new_group("back\\slash' group")
            for number, group in enumerate((group_id, other, group_id)):
                flags = {"max_poll_records": 5, "share_acknowledgement_mode": "explicit"}
                with site.consumer(group, topic, client_id=f"member {number}", **flags) as member:
                    first, *others = site.poll(member, 5)
                    member.acknowledge(first, AcknowledgeType.RELEASE)
                    for message in others:
                        member.acknowledge(message)
                    member.commit_sync(DEADLINE_S)
                take_snapshot(str(site.state_path), 4_102_444_800_000)
        yield Worked(spark, str(site.state_path), group_id, topic)
    finally:
        site.close()


def _all_rows(source: RowSource) -> list[StateRow]:
    return list(source.rows(RowFilter()))


def _total_order(row: StateRow) -> tuple[object, ...]:
    """The order of rows, in which those of one message for several share-partitions have their places, too."""
    return fold_order(row), row.record_type, row.group_id, row.topic_id, row.partition


def _row_count(rows: Iterable[StateRow]) -> int:
    return sum(1 for _ in rows)


def _row_counts(source: RowSource) -> list[int]:
    return list(source.by_partition(RowFilter(), _row_count))


@pytest.mark.long("all audits by Spark, one after the other")
def test_all_audits_print_the_same_by_spark(worked: Worked) -> None:
    extent = read_extent(TableRows(worked.path))
    middle, last = extent.last_commit_id // 2, extent.last_commit_id
    questions = [
        f"as-of --at {extent.time_of(middle)} --group {worked.group_id} --topic {worked.topic} --partition 1",
        "as-of",
        f"diff --from commit:{middle} --to commit:{last}",
        f"lineage --topic {worked.topic} --partition 0 --offset 0-3 --member 'member 0'",
        "stats",
        "verify --no-requests",
        f"verify --group {worked.group_id}",
    ]
    assert {question.split()[0] for question in questions} == set(COMMANDS) - {"what-if", "redrive"}
    for question in questions:
        by_command, by_job = worked.printed(question)
        assert by_job == by_command, question
        assert json.loads(by_command).get("groups", [1]), question


def test_a_time_in_the_future_is_refused_by_spark_as_without_it(worked: Worked) -> None:
    refusals = []
    for source in (TableRows(worked.path), SparkRows(lambda: worked.spark, worked.path)):
        with pytest.raises(PointOutsideHistoryError, match="is in the future") as error:
            as_of(source, "9999-12-31", Selection(), now_ms=4_102_444_800_000)
        refusals.append(str(error.value))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize(
    "row_filter",
    [
        RowFilter(),
        RowFilter(record_types=[]),
        RowFilter(
            record_types=[RecordType.GROUP_METADATA, RecordType.SHARE_UPDATE],
            group_id="back\\slash' group",
            partition=1,
            since_ms=0,
            until_ms=253_402_300_799_999,
        ),
        RowFilter(topic="none", after_commit_id=3, through_commit_id=12, columns=("commit_id", "payload")),
    ],
    ids=["all", "none", "of a group", "of commits"],
)
def test_a_filter_selects_the_same_rows_in_the_same_order(worked: Worked, row_filter: RowFilter) -> None:
    by_table = list(TableRows(worked.path).rows(row_filter))
    assert list(SparkRows(lambda: worked.spark, worked.path).rows(row_filter)) == by_table


def test_rows_that_do_not_touch_the_asked_offsets_are_left_out(worked: Worked) -> None:
    rows = list(SparkRows(lambda: worked.spark, worked.path).rows(RowFilter(touching=(0, 0))))
    updates = [row for row in rows if row.record_type is RecordType.SHARE_UPDATE]
    assert updates
    assert all(any(entry.first_offset == 0 for entry in row.transitions) for row in updates)


def test_rows_of_deleted_data_files_are_left_out(worked: Worked, tmp_path: Path) -> None:
    path = shutil.copytree(worked.path, tmp_path / "state")
    newest = max(path.rglob("date=*/*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    newest.unlink()
    by_table, by_spark = TableRows(str(path)), SparkRows(lambda: worked.spark, str(path))
    assert sorted(_all_rows(by_spark), key=_total_order) == sorted(_all_rows(by_table), key=_total_order)
    assert by_spark.lost_commits == by_table.lost_commits != []


@pytest.mark.parametrize(
    ("lost_before", "reads"), [(0, _all_rows), (1, _row_counts)], ids=["of a whole table", "of a table that lost one"]
)
def test_a_data_file_that_is_deleted_while_it_is_audited_is_named(
    worked: Worked, tmp_path: Path, lost_before: int, reads: Callable[[RowSource], object]
) -> None:
    path = shutil.copytree(worked.path, tmp_path / "state")
    *others, largest = sorted(path.rglob("date=*/*.parquet"), key=lambda file: file.stat().st_size)
    for file in others[:lost_before]:
        file.unlink()
    by_table, by_spark = TableRows(str(path)), SparkRows(lambda: worked.spark, str(path))
    largest.unlink()
    for source in (by_table, by_spark):
        with pytest.raises(StateTableError, match=re.escape(largest.name)):
            reads(source)
    assert worked.spark.conf.get("spark.sql.files.ignoreMissingFiles") == "false"


def test_rows_that_contradict_each_other_are_named(spark: SparkSession, tmp_path: Path) -> None:
    writer = StateTableWriter.open(str(tmp_path / "state"), {})
    cut = Cut(partition=0, end_offset=1, time_ms=1)
    marker = CommitMarkerPayload(row_count=2, end_offsets={0: 1}, cuts=[cut]).model_dump(mode="json")
    update = StateRow(
        record_type=RecordType.SHARE_UPDATE, group_id="packers", topic_id="id", topic="orders", partition=7,
        request_partition=0, request_offset=0, time_ms=1,
    )  # fmt: skip
    writer.append([StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=1, payload=marker), update], 0)
    messages = []
    for source in (TableRows(str(tmp_path / "state")), SparkRows(lambda: spark, str(tmp_path / "state"))):
        with pytest.raises(StateTableError, match="ShareUpdate row of group packers") as error:
            as_of(source, "latest", Selection())
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_a_folder_without_a_table_is_refused(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(StateTableError, match="There is no state table at"):
        SparkRows(lambda: spark, str(tmp_path_factory.mktemp("empty") / "nothing"))
