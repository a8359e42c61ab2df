"""Results merged into a sink by their keys."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.errors import InvalidRequestError, WriteFencedError
from sharegroup.spark.sink.sink_write import SinkWrite
from tests.spark.sink.conftest import OpenSink
from tests.spark.sink.writes import ALL_ACCEPTED, WRITTEN, outcome, values, write_of


def results(spark: SparkSession, *rows: tuple[str | None, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), "key string, value bigint")


def test_rows_with_a_key_of_the_table_are_updated_and_others_inserted(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key")
    write = write_of(sink)
    assert outcome(SinkWrite(sink, write).commit(results(spark, ("a", 5), ("b", 6)), ALL_ACCEPTED)) == WRITTEN
    assert values(spark, path) == [5, 6]
    # A second run changes nothing.
    SinkWrite(sink, write).commit(results(spark, ("a", 7)), ALL_ACCEPTED)
    assert values(spark, path) == [5, 6]


@pytest.mark.long("several merges")
def test_a_condition_decides_which_rows_are_updated(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key", sink_merge_condition="source.value > target.value")
    SinkWrite(sink, write_of(sink)).commit(results(spark, ("a", 5)), ALL_ACCEPTED)
    # An earlier result that comes later.
    assert outcome(SinkWrite(sink, write_of(sink)).commit(results(spark, ("a", 3)), ALL_ACCEPTED)) == WRITTEN
    assert values(spark, path) == [5]


def test_two_rows_of_one_key_are_an_error_that_names_it(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key")
    with pytest.raises(InvalidRequestError, match="2 rows of the results have the key key = 'b'"):
        SinkWrite(sink, write_of(sink)).commit(results(spark, ("b", 1), ("b", 2)), ALL_ACCEPTED)
    with pytest.raises(InvalidRequestError, match="key = None"):
        SinkWrite(sink, write_of(sink)).commit(results(spark, (None, 1), (None, 2)), ALL_ACCEPTED)
    assert values(spark, path) == [0]


def test_results_without_a_key_column_are_refused(spark: SparkSession, open_sink: OpenSink) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key")
    with pytest.raises(InvalidRequestError, match="lack the column key"):
        SinkWrite(sink, write_of(sink)).commit(results(spark, ("b", 1)).drop("key"), ALL_ACCEPTED)


@pytest.mark.long("several merges")
def test_a_merge_that_changes_nothing_is_followed_by_an_empty_commit(
    spark: SparkSession, path: str, open_sink: OpenSink
) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key", sink_merge_condition="false")
    write = write_of(sink)
    assert outcome(SinkWrite(sink, write).commit(results(spark, ("a", 5)), ALL_ACCEPTED)) == WRITTEN
    assert outcome(sink.resolve(write.unresolved)) == WRITTEN
    assert values(spark, path) == [0]


@pytest.mark.long("several merges")
def test_a_fenced_merge_changes_nothing(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key")
    write = write_of(sink)
    sink.resolve(write.unresolved)
    with pytest.raises(WriteFencedError):
        SinkWrite(sink, write).commit(results(spark, ("a", 5)), ALL_ACCEPTED)
    assert values(spark, path) == [0]


@pytest.mark.long("several merges")
def test_other_writes_of_the_session_get_no_transaction(spark: SparkSession, path: str, open_sink: OpenSink) -> None:
    sink = open_sink(sink_mode="merge", sink_merge_keys="key")
    frame = results(spark, ("a", 5))
    SinkWrite(sink, write_of(sink)).commit(frame, ALL_ACCEPTED)
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None
    frame.write.format("delta").mode("append").save(path)
    assert values(spark, path) == [5, 5]
