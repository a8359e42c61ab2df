"""The Spark side of the example: a handler that returns flown flights, as rows for the worker's sink."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.flights.flights import RELEASED_PERCENT

_KEY = "topic string, partition int, offset bigint, delivery_count smallint"
_KEY_COLUMNS = ("topic", "partition", "offset", "delivery_count")
_FLIGHT = "carrier string, flight int, origin string, dest string, dep_time double, dep_delay double, arr_delay double"


def handle_flights(records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows of flown flights, and acknowledgements of the others, for `sharegroup.spark.worker.process`."""
    flight = F.from_json(F.col("value").cast("string"), _FLIGHT)
    decided = records.withColumn("flight", flight).withColumn("acknowledge_type", _acknowledge_type())
    flown = decided.where("acknowledge_type = 'accept'")
    return flown.select(*_KEY_COLUMNS, "flight.*"), decided.where("acknowledge_type != 'accept'")


def create_spark_sink(spark: SparkSession, sink_path: str) -> None:
    """Create an empty sink for the Spark workers, which share it: their commits are of one driver."""
    spark.createDataFrame([], f"{_KEY}, {_FLIGHT}").write.format("delta").save(sink_path)


def _acknowledge_type() -> Column:
    key = F.concat_ws("-", F.col("partition").cast("string"), F.col("offset").cast("string"))
    fails_at_first = (F.crc32(key) % 100 < RELEASED_PERCENT) & (F.col("delivery_count") == 1)
    return F.when(fails_at_first, "release").when(F.col("flight.dep_time").isNull(), "reject").otherwise("accept")
