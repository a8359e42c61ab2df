"""A Spark worker with a sink in a process of its own; its arguments are log, group, topic and table.

It waits while the JVM of its predecessor still has the lock of the table. Further arguments are `key=value` of its
configuration.
"""

from __future__ import annotations

import sys
import threading

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup.errors import SinkError
from sharegroup.spark import build_session, process
from tests.support.eventually import DEADLINE_S

BAD = 7
"""Of every 50 records, the one with this offset cannot be processed."""


def handle(records: DataFrame) -> DataFrame:
    size = F.expr(f"IF(offset % 50 = {BAD}, raise_error('bad record'), length(value))")
    return records.select("partition", "offset", size.alias("size"))


def main(log_path: str, group_id: str, topic: str, table: str, *further: str) -> None:
    spark = build_session("sink-worker")
    spark.sparkContext.setLogLevel("OFF")
    config = {
        "log.path": log_path,
        "group.id": group_id,
        "topics": topic,
        **dict(each.split("=", 1) for each in further),
    }
    print("ready", flush=True)
    waited_s = 0.0
    while True:
        try:
            process(spark, config, handle, sink=table)
            return
        except SinkError as error:
            if "is locked" not in str(error) or waited_s > DEADLINE_S:
                raise
        threading.Event().wait(0.2)
        waited_s += 0.2


if __name__ == "__main__":
    main(*sys.argv[1:])
