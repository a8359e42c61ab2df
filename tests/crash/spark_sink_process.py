"""A Spark application with a sink: `python -m tests.crash.spark_sink_process SPECIFICATION`.

It is a worker, or a query of the source. It waits while the JVM of its predecessor still has the lock of the table, and
begins again while the table is away. Beside it a stranger of the same application changes the table.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.errors import SinkError
from sharegroup.spark import build_session, process, write_once
from tests.crash.sink_members import FAILS_IN_COMPANY, MERGE, WORKER, Specification, load_specification
from tests.crash.strangers import disturb_with_spark

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Few tasks: the tables are small."""
_MAX_RECORDS = 50
_PAUSE_S = 0.3
_KIND = "CASE WHEN offset % 97 = 5 THEN 'reject' WHEN offset % 50 = 9 AND delivery_count = 1 THEN 'release' END"
"""Acknowledge type by `is_rejected`, and at its first delivery of one of 50 records; null is accepted."""


def main(spec: Specification) -> None:
    """Write results until killed."""
    spark = build_session(spec.client_id, _SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    disturb_with_spark(spark, spec.sink)
    work: Callable[[SparkSession, Specification], None] = _process if spec.kind == WORKER else _query
    while True:
        try:
            work(spark, spec)
        except SinkError as error:
            print("refused", error, flush=True)
        except StreamingQueryException as error:
            if SinkError.__name__ not in str(error):
                raise
            print("ended", str(error)[:2_000], flush=True)
        threading.Event().wait(_PAUSE_S)


def _config(spec: Specification) -> dict[str, str]:
    merge = {"sink.mode": MERGE, "sink.merge.keys": "partition,offset"} if spec.mode == MERGE else {}
    return {
        **spec.channel,
        **merge,
        "group.id": spec.group_id,
        "client.id": spec.client_id,
        "max.poll.records": str(_MAX_RECORDS),
    }


def _process(spark: SparkSession, spec: Specification) -> None:
    def handle(records: DataFrame) -> tuple[DataFrame, DataFrame]:
        is_alone = records.count() == 1
        size = F.length("value")
        if not is_alone:
            fails = f"IF(offset % 300 = {FAILS_IN_COMPANY}, raise_error('not in company'), length(value))"
            size = F.expr(fails)
        return _results(spec, records, size), _acknowledgements(records)

    process(spark, {**_config(spec), "topics": spec.topic}, handle, sink=spec.sink)


def _query(spark: SparkSession, spec: Specification) -> None:
    def write(batch: DataFrame, _: int) -> None:
        write_once(batch, _results(spec, batch, F.length("value")), _acknowledgements(batch))

    reader = spark.readStream.format("sharegroup")
    for key, value in {**_config(spec), "subscribe": spec.topic, "sink": spec.sink}.items():
        reader = reader.option(key, value)
    writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", str(spec.stem))
    writer.start().awaitTermination()


def _results(spec: Specification, records: DataFrame, size: Column) -> DataFrame:
    return records.where(f"({_KIND}) IS NULL").select(
        "topic",
        "partition",
        "offset",
        size.alias("size"),
        F.col("delivery_count").cast("int").alias("delivery_count"),
        F.lit(spec.client_id).alias("writer"),
    )


def _acknowledgements(records: DataFrame) -> DataFrame:
    kind = F.expr(_KIND).alias("acknowledge_type")
    return records.select("topic", "partition", "offset", kind).where("acknowledge_type IS NOT NULL")


if __name__ == "__main__":
    main(load_specification(sys.argv[1]))
