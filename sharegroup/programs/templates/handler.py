"""The handler of this project: `sharegroup worker handler:handle`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SALES = "data/sales"

# Several threads call the handler at once, so the table is made before. A worker imports this module in its session.
no_sales = SparkSession.active().createDataFrame(
    [], "topic string, partition int, offset long, order struct<id: int, total: double>"
)
no_sales.write.format("delta").mode("ignore").save(SALES)


def handle(records: DataFrame) -> DataFrame:
    """Append valid orders to a table, and reject the others.

    Records that the result leaves out are accepted. Others may be released, to be delivered again, or renewed, to be
    kept for longer. A record may come twice, so topic, partition and offset are written with it.
    """
    order = F.from_json(F.col("value").cast("string"), "id int, total double")
    orders = records.select("topic", "partition", "offset", order.alias("order"))
    orders.where("order.total IS NOT NULL").write.format("delta").mode("append").save(SALES)
    invalid = orders.where("order.total IS NULL")
    return invalid.select("topic", "partition", "offset", F.lit("reject").alias("acknowledge_type"))
