"""The number of records that the first action on them reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark.acquired_records import CountedRecords

ACTIONS: dict[str, tuple[Callable[[DataFrame], object], int | None]] = {
    "of all": (lambda records: records.collect(), 1_000),
    "of an aggregate": (lambda records: records.groupBy("id").count().collect(), 1_000),
    "of what a filter leaves": (lambda records: records.where("id < 10").collect(), 1_000),
    "of a part": (lambda records: records.repartition(1).limit(5).foreach(lambda row: None), None),
    "on rows": (lambda records: records.foreach(lambda row: None), None),
    "none": (lambda records: records.columns, None),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_reports_how_many_records_it_read(spark: SparkSession, name: str) -> None:
    act, count = ACTIONS[name]
    counted = CountedRecords(spark.range(1_000))
    act(counted.records)
    assert counted.count() == count


def test_the_first_action_counts(spark: SparkSession) -> None:
    counted = CountedRecords(spark.range(0, 1_000, numPartitions=1))
    assert len(counted.records.take(5)) == 5
    counted.records.collect()
    count = counted.count()
    assert count is not None
    assert count < 1_000
