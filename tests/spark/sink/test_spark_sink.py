"""A Delta table that Spark writes to: each write is in it once, and the log alone says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.client.sink_commits import MAX_METADATA_BYTES, WriteMetadata, metadata_text, transaction_version
from sharegroup.errors import InvalidRequestError, SinkError, UndecidedWriteError, WriteFencedError
from sharegroup.spark.sink.sink_table import SinkTable
from sharegroup.spark.sink.sink_write import SinkWrite, WriteGivenUpError
from tests.spark.sink.conftest import OpenSink
from tests.spark.sink.writes import (
    ACCEPT,
    ALL_ACCEPTED,
    NOT_WRITTEN,
    REJECT,
    RELEASE,
    WRITTEN,
    acks,
    outcome,
    rows,
    values,
    write_of,
)
from tests.support.eventually import eventually

Append = Callable[[SinkTable, DataFrame, Mapping[str, str]], None]


def test_what_is_written_is_there_once_with_its_acknowledgements(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    write = write_of(sink)
    acknowledgements = [*acks(ACCEPT, 0, 2), *acks(REJECT, 3, 3), *acks(ACCEPT, 4, 9)]
    expected = SinkWrite(sink, write).commit(rows(spark, 1, 2), acknowledgements)
    assert outcome(expected) == (ACCEPT, True, [(3, 3, "REJECT")])
    # A run that comes again, and each lookup, say what the first run has written.
    assert SinkWrite(sink, write).commit(rows(spark, 7), ALL_ACCEPTED) == expected
    assert sink.lookup(write.unresolved) == sink.resolve(write.unresolved) == expected
    assert values(spark, path) == [0, 1, 2]


@pytest.mark.long("several commits")
def test_the_users_own_metadata_is_kept_beside_the_acknowledgements(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    write = write_of(sink)
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", "nightly")
    SinkWrite(sink, write).commit(session.createDataFrame([("a", 1)], "key string, value bigint"), ALL_ACCEPTED)
    text = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]["userMetadata"]
    assert json.loads(text)["userMetadata"] == "nightly"
    assert outcome(sink.resolve(write.unresolved)) == WRITTEN


def test_metadata_of_the_user_that_leaves_no_room_for_acknowledgements_is_refused(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", "x" * 40_000)
    frame = session.createDataFrame([("a", 1)], "key string, value bigint")
    with pytest.raises(InvalidRequestError, match="has 40002 bytes"):
        SinkWrite(sink, write_of(sink)).commit(frame, ALL_ACCEPTED)
    assert values(spark, path) == [0]


@pytest.mark.long("several commits")
def test_a_read_back_costs_one_commit_file(spark: SparkSession, path: str, open_sink: OpenSink, tmp_path: Path) -> None:
    sink = open_sink()
    write = write_of(sink)
    insert = f"INSERT INTO delta.`{path}` VALUES ('b', 9)"
    for _ in range(3):
        spark.sql(insert)
    checkpoint(spark, path)
    for version in range(write.sink_version + 1, write.sink_version + 3):
        file = Path(path, "_delta_log", f"{version:020}.json")
        file.unlink()
        # It is there, and a read of it fails.
        file.mkdir()
    # Another commit of the same session meanwhile.
    with computing(tmp_path, lambda: spark.sql(insert)) as slow:
        assert outcome(SinkWrite(sink, write).commit(slow(rows(spark, 1)), ALL_ACCEPTED)) == WRITTEN
    with pytest.raises(SinkError, match="cannot be read"):
        sink.resolve(write.unresolved)


@pytest.mark.long("several commits")
def test_records_that_this_run_does_not_hold_are_not_accepted(spark: SparkSession, open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink)
    resolved = SinkWrite(sink, write).commit(rows(spark, 1), [*acks(REJECT, 0, 1), *acks(ACCEPT, 2, 7)])
    assert outcome(resolved) == (None, True, [(0, 1, "REJECT"), (2, 7, "ACCEPT")])


@pytest.mark.long("several commits")
def test_a_write_without_rows_is_a_commit_too(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink)
    assert outcome(SinkWrite(sink, write).commit(rows(spark), ALL_ACCEPTED)) == WRITTEN
    assert outcome(sink.resolve(write.unresolved)) == WRITTEN
    assert values(spark, path) == [0]


def test_a_writer_that_wakes_up_late_finds_the_fence(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink)
    frame = rows(spark, 1)
    assert sink.lookup(write.unresolved) is None
    assert outcome(sink.resolve(write.unresolved)) == NOT_WRITTEN
    with pytest.raises(WriteFencedError, match="fenced"):
        SinkWrite(sink, write).commit(frame, ALL_ACCEPTED)
    assert values(spark, path) == [0]
    # Its own sessions are of no concern to the application.
    assert SparkSession.getActiveSession() is spark


@pytest.mark.long("several commits")
def test_a_fence_while_the_rows_are_computed_refuses_the_commit(
    spark: SparkSession, path: str, open_sink: OpenSink, tmp_path: Path
) -> None:
    sink = open_sink()
    write = write_of(sink)
    with computing(tmp_path, lambda: sink.resolve(write.unresolved)) as slow, pytest.raises(WriteFencedError):
        SinkWrite(sink, write).commit(slow(rows(spark, 1)), ALL_ACCEPTED)
    assert values(spark, path) == [0]


@pytest.mark.long("several commits")
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_change_of_the_table_meanwhile_lets_the_commit_be_tried_again(
    spark: SparkSession, path: str, open_sink: OpenSink, tmp_path: Path, mode: str
) -> None:
    sink = open_sink(sink_mode=mode, **({"sink_merge_keys": "key"} if mode == "merge" else {}))
    write = write_of(sink)

    def change() -> None:
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN more STRING")
        spark.sql(f"DELETE FROM delta.`{path}`")

    with computing(tmp_path, change) as slow:
        resolved = SinkWrite(sink, write).commit(slow(rows(spark, 1)), ALL_ACCEPTED)
    assert outcome(resolved) == WRITTEN
    assert values(spark, path) == [1]


@pytest.mark.long("several commits")
def test_a_commit_whose_response_is_lost_is_read_back(
    spark: SparkSession, path: str, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink()
    write = write_of(sink)
    run = SinkWrite(sink, write)
    after_append(monkeypatch, lose_response)
    with pytest.raises(OSError, match="lost"):
        run.commit(rows(spark, 1), ALL_ACCEPTED)
    assert run.has_begun
    # Whatever the run makes of it, the table decides.
    assert outcome(run.close(acks(RELEASE, 0, 9))) == WRITTEN
    assert values(spark, path) == [0, 1]


def test_a_write_that_was_given_up_does_not_begin(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink()
    run = SinkWrite(sink, write_of(sink))
    assert not run.give_up()
    with pytest.raises(WriteGivenUpError):
        run.commit(rows(spark, 1), ALL_ACCEPTED)
    assert not run.has_begun
    assert values(spark, path) == [0]


@pytest.mark.long("several commits")
def test_a_write_that_has_begun_says_so_when_it_is_given_up(spark: SparkSession, open_sink: OpenSink) -> None:
    sink = open_sink()
    run = SinkWrite(sink, write_of(sink))
    run.commit(rows(spark, 1), ALL_ACCEPTED)
    assert run.give_up()


@pytest.mark.long("several commits")
def test_parts_are_reported_together(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink)
    run = SinkWrite(sink, write)
    run.commit_part(rows(spark, 1), acks(ACCEPT, 0, 3))
    run.commit_part(rows(spark, 2), [*acks(ACCEPT, 4, 5), *acks(REJECT, 6, 6)])
    assert sink.lookup(write.unresolved) is None
    resolved = run.close(acks(RELEASE, 7, 9))
    assert outcome(resolved) == (None, True, [(0, 3, "ACCEPT"), (4, 5, "ACCEPT"), (6, 6, "REJECT"), (7, 9, "RELEASE")])
    assert sink.resolve(write.unresolved) == resolved
    assert values(spark, path) == [0, 1, 2]


@pytest.mark.long("several commits")
def test_a_part_that_fails_is_not_there_and_the_next_one_is(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    run = SinkWrite(sink, write_of(sink))
    failing = rows(spark, 1).select("key", F.expr("raise_error('bad record')").cast("bigint").alias("value"))
    with pytest.raises(Exception, match="bad record"):
        run.commit(failing, ALL_ACCEPTED)
    with pytest.raises(Exception, match="bad record"):
        run.commit_part(failing, acks(ACCEPT, 0, 4))
    run.commit_part(rows(spark, 2), acks(ACCEPT, 5, 9))
    assert outcome(run.close(acks(REJECT, 0, 4))) == (None, True, [(0, 4, "REJECT"), (5, 9, "ACCEPT")])
    assert values(spark, path) == [0, 2]


@pytest.mark.long("several commits")
def test_a_part_whose_commit_fails_cannot_get_in_later(
    spark: SparkSession, path: str, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink()
    write = write_of(sink)
    run = SinkWrite(sink, write)
    late: list[tuple[DataFrame, Mapping[str, str]]] = []

    def time_out(table: SinkTable, frame: DataFrame, options: Mapping[str, str]) -> None:
        late.append((spark.createDataFrame(frame.collect(), frame.schema), options))
        raise OSError("timed out")

    before_append(monkeypatch, time_out)
    with pytest.raises(OSError, match="timed out"):
        run.commit_part(rows(spark, 1), acks(ACCEPT, 0, 4))
    run.commit_part(rows(spark, 2), acks(ACCEPT, 5, 9))
    ((frame, options),) = late
    frame.write.format("delta").mode("append").options(**options).save(path)
    assert outcome(run.close([])) == (None, True, [(5, 9, "ACCEPT")])
    assert values(spark, path) == [0, 2]


@pytest.mark.long("several commits")
def test_a_part_that_is_in_although_its_commit_failed_is_no_failure(
    spark: SparkSession, path: str, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink()
    run = SinkWrite(sink, write_of(sink))
    after_append(monkeypatch, lose_response)
    run.commit_part(rows(spark, 1), acks(ACCEPT, 0, 4))
    assert outcome(run.close(acks(RELEASE, 5, 9))) == (None, True, [(0, 4, "ACCEPT"), (5, 9, "RELEASE")])
    assert values(spark, path) == [0, 1]


def test_a_second_run_that_meets_parts_of_the_first_writes_nothing(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    write = write_of(sink)
    SinkWrite(sink, write).commit_part(rows(spark, 1), acks(ACCEPT, 0, 4))
    resolved = SinkWrite(sink, write).commit(rows(spark, 2), ALL_ACCEPTED)
    assert outcome(resolved) == (None, True, [(0, 4, "ACCEPT")])
    assert values(spark, path) == [0, 1]


@pytest.mark.long("several commits")
def test_the_application_id_of_a_closed_write_is_used_by_the_next_one(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    sink.resolve(write_of(sink).unresolved)
    assert outcome(SinkWrite(sink, write_of(sink)).commit(rows(spark, 1), ALL_ACCEPTED)) == WRITTEN
    assert values(spark, path) == [0, 1]


@pytest.mark.long("several commits")
def test_acknowledgements_that_do_not_fit_into_a_commit_take_more(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    count = 2_000
    write = write_of(sink)._replace(record_count=2 * count)
    acknowledgements = [
        ack for n in range(count) for ack in (*acks(ACCEPT, 2 * n, 2 * n), *acks(REJECT, 2 * n + 1, 2 * n + 1))
    ]
    resolved = SinkWrite(sink, write).commit(rows(spark, 1), acknowledgements)
    assert outcome(resolved) == (ACCEPT, True, [(2 * n + 1, 2 * n + 1, "REJECT") for n in range(count)])
    commits = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").where("userMetadata is not null").collect()
    assert len(commits) > 1
    assert max(len(commit["userMetadata"]) for commit in commits) <= MAX_METADATA_BYTES
    assert values(spark, path) == [0, 1]


@pytest.mark.long("several commits")
def test_other_commits_beside_it_do_not_matter(
    spark: SparkSession, path: str, open_sink: OpenSink, tmp_path: Path
) -> None:
    sink = open_sink()
    write, other = write_of(sink), write_of(sink, slot=1)
    with computing(tmp_path, lambda: spark.sql(f"INSERT INTO delta.`{path}` VALUES ('b', 9)")) as slow:
        expected = SinkWrite(sink, write).commit(slow(rows(spark, 1)), ALL_ACCEPTED)
    assert outcome(expected) == WRITTEN
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"VACUUM delta.`{path}`")
    assert outcome(sink.resolve(other.unresolved)) == NOT_WRITTEN
    assert sink.resolve(write.unresolved) == expected
    assert values(spark, path) == [0, 1, 9]


@pytest.mark.long("several commits")
def test_a_table_that_was_created_again_gets_nothing(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink)
    create_again(spark, path)
    with pytest.raises(WriteFencedError, match="by now"):
        SinkWrite(sink, write).commit(rows(spark, 1), ALL_ACCEPTED)
    assert outcome(sink.resolve(write.unresolved)) == NOT_WRITTEN
    assert values(spark, path) == []


@pytest.mark.long("several commits")
@pytest.mark.parametrize("is_fence", [True, False])
def test_a_table_that_is_dropped_meanwhile_is_not_created(
    spark: SparkSession, path: str, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch, is_fence: bool
) -> None:
    sink = open_sink()
    write = write_of(sink)
    before_append(monkeypatch, lambda *_: shutil.rmtree(path))
    run = SinkWrite(sink, write)
    with pytest.raises(Exception, match="does not exist"):
        run.fence() if is_fence else run.commit(rows(spark, 1), ALL_ACCEPTED)
    assert not Path(path).exists()


@pytest.mark.long("several commits")
def test_a_write_whose_commit_is_cleaned_up_is_not_guessed(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink)
    SinkWrite(sink, write).commit(rows(spark, 1), ALL_ACCEPTED)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('b', 5)")
    clean_log(spark, path)
    with pytest.raises(UndecidedWriteError, match="groups resolve --write"):
        sink.resolve(write.unresolved)


def test_a_write_that_is_older_than_the_table_may_remember_is_not_guessed(open_sink: OpenSink) -> None:
    sink = open_sink()
    write = write_of(sink).unresolved.model_copy(update={"opened_ms": 1})
    with pytest.raises(UndecidedWriteError, match=r"more than 604800000 ms ago.*groups resolve --write"):
        sink.resolve(write)
    sink.check(1_000 * 24 * 60 * 60)
    with pytest.raises(UndecidedWriteError, match="more than 86400000 ms ago"):
        sink.resolve(write)


@pytest.mark.long("several commits")
def test_a_commit_under_the_freed_name_of_an_old_version_is_not_in_the_table(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink()
    write = write_of(sink)
    for _ in range(2):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES ('b', 5)")
    clean_log(spark, path)
    # As of a writer whose snapshot is that of the fetch: its file is there, and in no snapshot.
    metadata = WriteMetadata(app_id=write.app_id, version=write.version)
    version = transaction_version(write.version)
    lines = [
        {"commitInfo": {"timestamp": 1, "operation": "WRITE", "userMetadata": metadata_text([metadata])}},
        {"txn": {"appId": write.app_id, "version": version, "lastUpdated": 1}},
    ]
    file = Path(path, "_delta_log", f"{write.sink_version + 1:020}.json")
    assert not file.exists()
    file.write_text("\n".join(json.dumps(line) for line in lines))
    assert outcome(sink.resolve(write.unresolved)) == NOT_WRITTEN


@pytest.mark.long("several commits")
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_columns_that_the_table_lacks_are_added_only_if_that_is_wanted(
    spark: SparkSession, path: str, open_sink: OpenSink, mode: str
) -> None:
    more = rows(spark, 1, key="b").withColumn("more", F.lit("x"))
    config = {"sink_mode": mode, **({"sink_merge_keys": "key"} if mode == "merge" else {})}
    sink = open_sink(**config)
    with pytest.raises(Exception, match=r"schema mismatch|lacks: more"):
        SinkWrite(sink, write_of(sink)).commit(more, ALL_ACCEPTED)
    assert values(spark, path) == [0]
    sink = open_sink(**config, sink_schema_evolution=True)
    assert outcome(SinkWrite(sink, write_of(sink)).commit(more, ALL_ACCEPTED)) == WRITTEN
    assert values(spark, path) == [0, 1]
    assert spark.read.format("delta").load(path).columns == ["key", "value", "more"]


@pytest.mark.long("several commits")
@pytest.mark.parametrize(
    ("columns", "further"),
    [
        (
            "key STRING NOT NULL, value BIGINT NOT NULL, day BIGINT GENERATED ALWAYS AS (value % 7), "
            "id BIGINT GENERATED ALWAYS AS IDENTITY",
            "PARTITIONED BY (day)",
        ),
        (
            "key STRING, value BIGINT",
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true', "
            "'delta.enableRowTracking' = 'true', 'delta.enableChangeDataFeed' = 'true')",
        ),
        (
            "key STRING, value BIGINT",
            "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2', "
            "'delta.enableInCommitTimestamps' = 'true')",
        ),
    ],
    ids=["columns", "rows", "log"],
)
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_features_of_the_table_change_nothing_of_it(
    spark: SparkSession, tmp_path: Path, open_sink: OpenSink, columns: str, further: str, mode: str
) -> None:
    path = str(tmp_path / "featured")
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {further}")
    keys = {"sink_merge_keys": "value"} if mode == "merge" else {}
    sink = open_sink(path, sink_mode=mode, **keys)
    written, fenced, parted = (write_of(sink, slot=slot) for slot in range(3))
    assert outcome(SinkWrite(sink, written).commit(rows(spark, 1), ALL_ACCEPTED)) == WRITTEN
    assert outcome(sink.resolve(fenced.unresolved)) == NOT_WRITTEN
    with pytest.raises(WriteFencedError):
        SinkWrite(sink, fenced).commit(rows(spark, 2), ALL_ACCEPTED)
    run = SinkWrite(sink, parted)
    run.commit_part(rows(spark, 3), acks(ACCEPT, 0, 8))
    run.close(acks(REJECT, 9, 9))
    assert outcome(sink.resolve(written.unresolved)) == WRITTEN
    assert values(spark, path) == [1, 3]


@pytest.mark.long("several commits")
def test_a_table_of_a_catalog_is_written_by_its_name(spark: SparkSession, open_sink: OpenSink) -> None:
    spark.sql("CREATE TABLE totals_by_name (key STRING, value BIGINT) USING delta")
    try:
        sink = open_sink("totals_by_name")
        write = write_of(sink)
        assert outcome(SinkWrite(sink, write).commit(rows(spark, 1), ALL_ACCEPTED)) == WRITTEN
        assert outcome(sink.resolve(write.unresolved)) == WRITTEN
        assert spark.table("totals_by_name").count() == 1
    finally:
        spark.sql("DROP TABLE totals_by_name")


# Disturbances.


def before_append(monkeypatch: pytest.MonkeyPatch, action: Append) -> None:
    """Let something happen once before the next rows are appended."""
    append: Append = SinkTable.append
    pending = [action]

    def patched(table: SinkTable, frame: DataFrame, options: Mapping[str, str]) -> None:
        if pending:
            pending.pop()(table, frame, options)
        append(table, frame, options)

    monkeypatch.setattr(SinkTable, "append", patched)


def after_append(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Let something happen once after the next rows were appended."""
    append: Append = SinkTable.append
    pending = [action]

    def patched(table: SinkTable, frame: DataFrame, options: Mapping[str, str]) -> None:
        append(table, frame, options)
        if pending:
            pending.pop()()

    monkeypatch.setattr(SinkTable, "append", patched)


def lose_response() -> None:
    raise OSError("the response is lost")


@contextmanager
def computing(tmp_path: Path, action: Callable[[], object]) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Makes frames whose rows are computed while something happens."""
    started, go_on = tmp_path / "started", tmp_path / "go_on"

    def value_of(value: int) -> int:
        # In a process of Spark, which has nothing of the test.
        import time

        started.touch()
        while not go_on.exists():
            time.sleep(0.01)
        return value

    def act() -> None:
        eventually(lambda: started.exists() or None, "the rows are computed")
        try:
            action()
        finally:
            go_on.touch()

    with ThreadPoolExecutor(1) as threads:
        acted = threads.submit(act)
        yield lambda frame: frame.withColumn("value", F.udf(value_of, "bigint")("value"))
        acted.result()


def create_again(spark: SparkSession, path: str) -> None:
    """Drop a table, and create another one in its folder, with as many versions."""
    shutil.rmtree(path)
    spark.sql(f"CREATE TABLE delta.`{path}` (key STRING, value BIGINT) USING delta")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('note' = 'again')")


def checkpoint(spark: SparkSession, path: str) -> None:
    """Make a checkpoint, and one with each later commit."""
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")


def clean_log(spark: SparkSession, path: str) -> None:
    """Make a checkpoint, and remove the commit files before it, as a clean-up does when they are old."""
    checkpoint(spark, path)
    files = sorted(Path(path, "_delta_log").glob("*.json"))
    for file in files[:-1]:
        file.unlink()
    for file in Path(path, "_delta_log").glob("*.crc"):
        file.unlink()
