"""The Spark side of the example: a handler that appends flown flights to a Delta table."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.flights.flights import RELEASED_PERCENT
from sharegroup.spark.worker import Handler

_KEY = "topic string, partition int, offset bigint, delivery_count smallint"
_FLIGHT = "carrier string, flight int, origin string, dest string, dep_time double, dep_delay double, arr_delay double"


def flights_handler(sink_path: str) -> Handler:
    """Return a handler for `sharegroup.spark.worker.process`.

    Args:
        sink_path: the Delta table that flown flights are appended to.
    """

    def handle(records: DataFrame) -> DataFrame:
        flight = F.from_json(F.col("value").cast("string"), _FLIGHT)
        decided = records.withColumn("flight", flight).withColumn("acknowledge_type", _acknowledge_type()).cache()
        try:
            accepted = decided.where("acknowledge_type = 'accept'")
            accepted.select("topic", "partition", "offset", "delivery_count", "flight.*").write.format("delta").mode(
                "append"
            ).save(sink_path)
            exceptions = decided.where("acknowledge_type != 'accept'")
            kept = exceptions.select("topic", "partition", "offset", "acknowledge_type").toArrow()
        finally:
            decided.unpersist()
        return records.sparkSession.createDataFrame(kept)

    return handle


def create_spark_sink(spark: SparkSession, sink_path: str) -> None:
    """Create an empty sink for the Spark workers: two that create one table at the same time would conflict."""
    spark.createDataFrame([], f"{_KEY}, {_FLIGHT}").write.format("delta").save(sink_path)


def _acknowledge_type() -> Column:
    key = F.concat_ws("-", F.col("partition").cast("string"), F.col("offset").cast("string"))
    fails_at_first = (F.crc32(key) % 100 < RELEASED_PERCENT) & (F.col("delivery_count") == 1)
    return F.when(fails_at_first, "release").when(F.col("flight.dep_time").isNull(), "reject").otherwise("accept")
