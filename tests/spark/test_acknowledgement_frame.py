"""A handler's DataFrame of acknowledgements: what it says of each held record, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from sharegroup.client.held_records import HeldRange
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError
from sharegroup.spark.acknowledgement_frame import acknowledgements_of, checked_results
from tests.support.examples import examples

SCHEMA = "topic string, partition int, offset bigint, acknowledge_type string"
NAMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}

Row = tuple[object, ...]
Acknowledged = tuple[str, int, int, int, str]
"""Topic, partition, first offset, last offset, type."""


def held(first_offset: int, last_offset: int, *, topic: str = "orders", partition: int = 0) -> HeldRange:
    return HeldRange(f"{topic}-id", topic, partition, first_offset, last_offset, delivery_count=1)


def frame(spark: SparkSession, *rows: Row, schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def acknowledged(of: DataFrame | None, ranges: list[HeldRange]) -> list[Acknowledged]:
    acknowledgements = acknowledgements_of(of, ranges)
    assert all(ack.topic_id == f"{ack.topic}-id" for ack in acknowledgements)
    return [
        (ack.topic, ack.partition, ack.first_offset, ack.last_offset, ack.acknowledge_type.name.lower())
        for ack in acknowledgements
    ]


def test_without_acknowledgements_everything_is_accepted(spark: SparkSession) -> None:
    ranges = [held(0, 9), held(20, 29, partition=1)]
    accepted = [("orders", 0, 0, 9, "accept"), ("orders", 1, 20, 29, "accept")]
    assert acknowledged(None, ranges) == accepted
    assert acknowledged(frame(spark), ranges) == accepted


def test_exceptions_cut_ranges_into_runs_of_one_type(spark: SparkSession) -> None:
    rows = [
        ("orders", 0, 0, "release"),
        ("orders", 0, 4, "reject"),
        ("orders", 0, 3, "reject"),
        ("orders", 0, 5, "release"),
        ("orders", 0, 7, "accept"),
        ("orders", 0, 9, "reject"),
    ]
    assert acknowledged(frame(spark, *rows), [held(0, 9)]) == [
        ("orders", 0, 0, 0, "release"),
        ("orders", 0, 1, 2, "accept"),
        ("orders", 0, 3, 4, "reject"),
        ("orders", 0, 5, 5, "release"),
        ("orders", 0, 6, 8, "accept"),
        ("orders", 0, 9, 9, "reject"),
    ]


DELAYED_SCHEMA = f"{SCHEMA}, redelivery_delay_ms int"


def test_released_records_may_be_kept_away_for_a_while(spark: SparkSession) -> None:
    rows = [
        ("orders", 0, 1, "release", 5_000),
        ("orders", 0, 2, "release", 5_000),
        ("orders", 0, 3, "release", 0),
        ("orders", 0, 4, "release", None),
        ("orders", 0, 5, "reject", None),
        ("orders", 0, 6, "accept", None),
    ]
    acknowledgements = acknowledgements_of(frame(spark, *rows, schema=DELAYED_SCHEMA), [held(0, 6)])
    assert [
        (a.first_offset, a.last_offset, a.acknowledge_type.name, a.redelivery_delay_ms) for a in acknowledgements
    ] == [
        (0, 0, "ACCEPT", None),
        (1, 2, "RELEASE", 5_000),
        (3, 3, "RELEASE", 0),
        (4, 4, "RELEASE", None),
        (5, 5, "REJECT", None),
        (6, 6, "ACCEPT", None),
    ]


@pytest.mark.parametrize(
    ("kind", "delay_ms"), [("accept", 0), ("reject", 10), ("release", -1), ("release", 604_800_001)]
)
def test_delays_that_mean_nothing(spark: SparkSession, kind: str, delay_ms: int) -> None:
    delayed = frame(spark, ("orders", 0, 1, kind, delay_ms), schema=DELAYED_SCHEMA)
    with pytest.raises(
        InvalidRequestError, match=rf"redelivery_delay_ms is {delay_ms} where acknowledge_type is {kind}"
    ):
        acknowledgements_of(delayed, [held(0, 6)])


def test_each_exception_goes_to_its_range(spark: SparkSession) -> None:
    ranges = [
        held(0, 4),
        held(10, 14),
        held(0, 4, partition=1),
        held(0, 4, topic="invoices"),
    ]
    rows = [("orders", 0, 12, "reject"), ("orders", 1, 0, "release"), ("invoices", 0, 4, "release")]
    assert acknowledged(frame(spark, *rows), ranges) == [
        ("orders", 0, 0, 4, "accept"),
        ("orders", 0, 10, 11, "accept"),
        ("orders", 0, 12, 12, "reject"),
        ("orders", 0, 13, 14, "accept"),
        ("orders", 1, 0, 0, "release"),
        ("orders", 1, 1, 4, "accept"),
        ("invoices", 0, 0, 3, "accept"),
        ("invoices", 0, 4, 4, "release"),
    ]


def test_other_columns_and_other_integer_types_do_no_harm(spark: SparkSession) -> None:
    schema = "note string, acknowledge_type string, offset int, partition bigint, topic string"
    assert acknowledged(frame(spark, ("n", "reject", 1, 0, "orders"), schema=schema), [held(1, 1)]) == [
        ("orders", 0, 1, 1, "reject")
    ]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([("orders", 0, 5, "relase")], "'relase' is not one of accept, release, reject"),
        ([("orders", 0, 5, "RELEASE")], "'RELEASE' is not one of"),
        ([("orders", 0, 5, None)], "None is not one of"),
        ([("orders", 0, 10, "reject")], "offset 10 of orders-0, which it did not receive"),
        ([("orders", 1, 5, "reject")], "offset 5 of orders-1, which it did not receive"),
        ([("other", 0, 5, "reject")], "offset 5 of other-0, which it did not receive"),
        ([("orders", 0, None, "reject")], "offset None of orders-0, which it did not receive"),
        ([("orders", None, 5, "reject")], "offset 5 of orders-None, which it did not receive"),
        ([(None, 0, 5, "reject")], "offset 5 of None-0, which it did not receive"),
        ([("orders", 0, 5, "reject"), ("orders", 0, 5, "release")], "offset 5 of orders-0 twice"),
    ],
)
def test_rows_that_say_nothing_sensible(spark: SparkSession, rows: list[Row], complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        acknowledgements_of(frame(spark, *rows), [held(0, 9)])


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "acknowledge_type"])
def test_a_missing_column(spark: SparkSession, column: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"lack the column {column}; they have \w+, \w+, \w+\.$"):
        acknowledgements_of(frame(spark).drop(column), [held(0, 9)])


@pytest.mark.parametrize("column", ["partition", "offset", "redelivery_delay_ms"])
def test_a_column_of_another_type(spark: SparkSession, column: str) -> None:
    schema = DELAYED_SCHEMA.replace(f"{column} int", f"{column} string").replace(f"{column} bigint", f"{column} string")
    with pytest.raises(InvalidRequestError, match=f"column {column} of the acknowledgements is string"):
        acknowledgements_of(frame(spark, schema=schema), [held(0, 9)])


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(0, 40), st.sampled_from(["release", "reject", "accept"]), max_size=40))
def test_every_record_is_acknowledged_once(spark: SparkSession, wanted: dict[int, str]) -> None:
    ranges = [held(0, 7), held(8, 20), held(21, 40)]
    rows = [("orders", 0, offset, name) for offset, name in wanted.items()]
    acknowledgements = acknowledgements_of(frame(spark, *rows), ranges)
    by_offset = [(offset, ack.acknowledge_type) for ack in acknowledgements for offset in ack.offsets]
    assert by_offset == [(offset, NAMES[wanted.get(offset, "accept")]) for offset in range(41)]


def test_a_handler_with_a_sink_returns_rows_or_a_pair(spark: SparkSession) -> None:
    rows, acknowledgements = spark.range(1), frame(spark)
    assert checked_results(rows) == checked_results((rows, None)) == (rows, None)
    _, checked = checked_results((rows, acknowledgements))
    assert checked is not None
    assert acknowledged(checked, [held(0, 9)]) == [("orders", 0, 0, 9, "accept")]
    # A column of the table may have that name.
    assert checked_results((acknowledgements, None)) == (acknowledgements, None)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda frame: frame, "Return a pair: the rows of the sink, and the acknowledgements"),
        (lambda frame: None, "NoneType for the sink"),
        (lambda frame: (frame,), "tuple for the sink"),
        (lambda frame: (None, frame), "NoneType for the sink"),
        (lambda frame: (frame, 7), "of type builtins.int"),
        (lambda frame: (frame, frame.drop("offset")), "lack the column offset"),
    ],
)
def test_results_of_other_kinds_are_mistakes_of_the_program(
    spark: SparkSession, result: Callable[[DataFrame], object], text: str
) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        checked_results(result(frame(spark)))
