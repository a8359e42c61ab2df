"""The benchmarks that compare with Kafka, with few records: they run, and report all their figures."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import (
    consumer_sink,
    kafka_to_delta,
    queues,
    share_consumers,
    sink_redelivery,
    skewed_drain,
    worker_against_java,
    worker_queue,
    worker_sink,
)
from benchmarks.java_consumer import parsed_run
from benchmarks.large_group_peer import peer_rate_on
from benchmarks.queues import Scenario
from benchmarks.report import Figure
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow


def by_name(rounds: Sequence[Sequence[Figure]]) -> dict[str, Figure]:
    """The figures of the only round by their names without the benchmark's."""
    (figures,) = rounds
    return {figure.name.partition(".")[2]: figure for figure in figures}


@pytest.mark.long("a benchmark's programs, Kafka's own among them")
def test_share_consumers(kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    arguments = "--rounds 1 --records 400 --record-locks 2000 100000 --host plain"
    figures = by_name(
        share_consumers.run(share_consumers.parser().parse_args(arguments.split()), kafka_4_3_1, tmp_path)
    )
    settings = ("locks_2000", "locks_100000", "default")
    expected = [f"{setting}.{name}" for setting in settings for name in ("rate", "ratio", "cpu", "joining")]
    assert list(figures) == [*expected, "default.of_best"]
    for setting in settings:
        rate = figures[f"{setting}.rate"]
        assert rate.peer is not None
        assert figures[f"{setting}.ratio"].value == pytest.approx(rate.value / rate.peer)
    best = max(figures["locks_2000.rate"].value, figures["locks_100000.rate"].value)
    assert figures["default.of_best"].value == pytest.approx(figures["default.rate"].value / best)


@pytest.mark.long("a benchmark's programs, Kafka's own among them")
def test_queues(kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    options = queues.parser().parse_args(["--rounds", "1", "--consumers", "2", "--host", "plain"])
    scenario = Scenario("few", 6, 20, 1.0, config={"max.poll.records": 1})
    (rounds,) = queues.run(options, kafka_4_3_1, tmp_path, [scenario])
    time, consumers = by_name(rounds).values()
    # Two consumers cannot be faster than 3 x 20 ms each, and one takes 120 ms.
    assert time.value >= 0.06
    assert time.peer is not None
    assert time.peer >= 0.06
    assert 1 <= consumers.value <= 2


@pytest.mark.long("a benchmark's programs with JVMs of their own")
@pytest.mark.spark
def test_workers_of_a_queue(spark: SparkSession, kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    arguments = "--rounds 1 --warm-up-rounds 0 --records 12 --work-ms 10"
    options = worker_queue.parser().parse_args(arguments.split())
    figures = by_name(worker_queue.run(options, spark, kafka_4_3_1, tmp_path))
    # Six threads cannot be faster than 2 x 10 ms each.
    assert figures["workers.time"].value >= 0.02
    assert figures["workers.of_ideal"].value == pytest.approx(figures["workers.time"].value / 0.04)
    assert figures["workers.of_ideal_threads"].value == pytest.approx(figures["workers.time"].value / 0.02)
    assert 1 <= figures["workers.at_work"].value <= 3


@pytest.mark.long("a benchmark's programs, Kafka's own among them")
def test_skewed_drain(kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    options = skewed_drain.parser().parse_args(["--rounds", "1", "--records", "300", "--peer", "--host", "plain"])
    figures = by_name(skewed_drain.run(options, kafka_4_3_1, tmp_path))
    assert 0 < figures["half.emptied_at"].value <= 1
    assert figures["half.ratio"].target == 0.8
    assert all(figure.peer is not None for name, figure in figures.items() if "rate" in name)


@pytest.mark.long("a benchmark's programs, Kafka's own among them")
def test_peer_of_the_large_group(kafka_4_3_1: KafkaBroker) -> None:
    rate = peer_rate_on(kafka_4_3_1, members=2, partitions=2, work_ms=5, warm_up_s=0, duration_s=2)
    assert rate is not None
    # No more than both can work off.
    assert 0 < rate <= 2 / 0.005


FEW_RECORDS = "--rounds 1 --warm-up-rounds 0 --records 400 --long-records 800 --partitions 2 --range-records 200"


@pytest.mark.long("a benchmark's programs with JVMs of their own")
@pytest.mark.spark
def test_workers_and_plain_streams(spark: SparkSession, kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    options = kafka_to_delta.parser().parse_args(f"{FEW_RECORDS} --range-rounds 1".split())
    figures = by_name(kafka_to_delta.all_rounds(options, spark, kafka_4_3_1, tmp_path))
    assert list(figures) == [
        *("rate", "ratio", "default.rate", "default.of_best", "stream_by_ranges.rate", "stream_by_ranges.ratio")
    ]
    assert figures["rate"].peer is not None
    assert figures["ratio"].value == pytest.approx(figures["rate"].value / figures["rate"].peer)


@pytest.mark.long("a benchmark's programs with JVMs of their own")
@pytest.mark.spark
def test_workers_and_the_java_consumer(spark: SparkSession, kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    options = worker_against_java.parser().parse_args(f"{FEW_RECORDS} --few-records 100".split())
    figures = by_name(worker_against_java.all_rounds(options, spark, kafka_4_3_1, tmp_path))
    assert list(figures) == ["rate", "ratio", "default.rate", "default.of_best", "locks_2000.rate", "locks_2000.ratio"]
    assert all(figure.value > 0 for figure in figures.values() if isfinite(figure.value))
    assert figures["rate"].peer is not None
    assert [figure.target for figure in figures.values()] == [None, 2.0, None, 0.8, None, None]


@pytest.mark.long("a benchmark's programs with JVMs of their own")
@pytest.mark.spark
def test_workers_with_and_without_a_sink(spark: SparkSession, kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    arguments = f"{FEW_RECORDS} --workers 1 --small-ranges 50 --small-range-count 3"
    figures = by_name(
        worker_sink.all_rounds(worker_sink.parser().parse_args(arguments.split()), spark, kafka_4_3_1, tmp_path)
    )
    large = [f"spark.ranges_200.{name}" for name in ("rate", "ratio", "stream.rate", "stream.ratio")]
    assert list(figures) == [*large, "spark.ranges_50.rate", "spark.ranges_50.ratio"]
    assert figures["spark.ranges_200.stream.ratio"].target == 1
    for size in (200, 50):
        rate = figures[f"spark.ranges_{size}.rate"]
        assert rate.peer is not None
        assert figures[f"spark.ranges_{size}.ratio"].value == pytest.approx(rate.value / rate.peer)


@pytest.mark.long("a benchmark's programs")
def test_consumers_with_and_without_a_sink(kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    arguments = "--rounds 1 --warm-up-rounds 0 --records 400 --poll-records 200 50 --small-poll-count 4"
    figures = by_name(consumer_sink.run(consumer_sink.parser().parse_args(arguments.split()), kafka_4_3_1, tmp_path))
    assert list(figures) == [f"delta_rs.ranges_{size}.{name}" for size in (200, 50) for name in ("rate", "ratio")]
    for size in (200, 50):
        rate = figures[f"delta_rs.ranges_{size}.rate"]
        assert rate.peer is not None
        assert figures[f"delta_rs.ranges_{size}.ratio"].value == pytest.approx(rate.value / rate.peer)


@pytest.mark.long("a benchmark's programs, and members that are killed")
@pytest.mark.spark
def test_redelivery_with_and_without_a_sink(spark: SparkSession, kafka_4_3_1: KafkaBroker, tmp_path: Path) -> None:
    options = sink_redelivery.parser().parse_args(["--rounds", "1", "--warm-up-rounds", "0"])
    figures = by_name(sink_redelivery.run(options, spark, kafka_4_3_1, tmp_path))
    assert list(figures) == [
        f"{kind}.redelivery.{name}" for kind in ("delta_rs", "spark") for name in ("time", "later")
    ]
    for kind in ("delta_rs", "spark"):
        time = figures[f"{kind}.redelivery.time"]
        assert time.peer is not None
        assert time.value > 0
        assert figures[f"{kind}.redelivery.later"].value == pytest.approx(time.value - time.peer)


def test_report_of_the_java_consumer() -> None:
    lines = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms",
        "2026-11-23 00:49:07:988, 2026-11-23 00:49:13:676, 0.0, 0.0, 0.2, 100, 5688 for share consumer 1",
        "2026-11-23 00:49:13:676, 2026-11-23 00:49:13:926, 0.0, 0.0, 0.2, 600, 250 for share consumer 1",
        "2026-11-23 00:49:05:090, 2026-11-23 00:49:14:176, 0.0591, 0.0061, 318.6678, 1100, 9728",
    )
    run = parsed_run("\n".join(lines))
    assert run is not None
    assert [each.records for each in run.progress] == [100, 600, 1100]
    # Without the 8.6 s before the first report with records.
    assert run.rate == pytest.approx(1_000 / 0.5)
    assert parsed_run("\n".join(lines[:3])) is None
