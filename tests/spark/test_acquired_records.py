"""The number of records that the first action on them reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from sharegroup.spark.acquired_records import RecordCount

ACTIONS: dict[str, tuple[Callable[[DataFrame], object], int | None]] = {
    "of all": (lambda records: records.collect(), 1_000),
    "of an aggregate": (lambda records: records.groupBy("id").count().collect(), 1_000),
    "of what a filter leaves": (lambda records: records.where("id < 10").collect(), 1_000),
    "of a part": (lambda records: records.repartition(1).limit(5).foreach(lambda row: None), None),
    "on rows": (lambda records: records.foreach(lambda row: None), None),
    "of what needs no reading": (lambda records: records.where("false").collect(), None),
    "none": (lambda records: records.columns, None),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_reports_how_many_records_it_read(spark: SparkSession, name: str) -> None:
    act, value = ACTIONS[name]
    count = RecordCount(spark)
    act(count.of(spark.range(1_000)))
    assert count.value() == value


def test_the_first_action_counts(spark: SparkSession) -> None:
    count = RecordCount(spark)
    records = count.of(spark.range(0, 1_000, numPartitions=1))
    assert len(records.take(5)) == 5
    records.collect()
    value = count.value()
    assert value is not None
    assert value < 1_000
