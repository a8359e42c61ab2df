# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly once into Delta
# MAGIC
# MAGIC Members that name a Delta table as their sink have each record's result there once, and a record is accepted
# MAGIC exactly if its result is there, whatever dies. This notebook lets two members die at the worst moments, shows
# MAGIC their records in doubt, and has them looked up. docs/exactly_once.md says how it works.
# MAGIC
# MAGIC On Databricks: compute with dedicated access, and the wheel as a library of it (docs/databricks.md).

# COMMAND ----------

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup import AdminClient, NewRecord, load_settings, open_log
from sharegroup.spark import ProcessorQuery, build_session, process, write_once

folder = Path(tempfile.mkdtemp(prefix="sharegroup-"))
log_path = str(folder / "log.db")
paths = {"log.path": log_path, "state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}
overrides = [f"{key}={path}" for key, path in paths.items()] + ["group.share.min.record.lock.duration.ms=1000"]

# COMMAND ----------

# MAGIC %md
# MAGIC ## A processor, some orders, and two tables
# MAGIC
# MAGIC `share.exactly.once.enable` is a key of the group; a member with a sink gives it to a new group. On a local
# MAGIC disk Spark and programs without it write into tables of their own, since their commits do not exclude each
# MAGIC other. On Azure, Google's store or HDFS one table would do.

# COMMAND ----------

spark = build_session("exactly_once")
processor = ProcessorQuery(spark, load_settings(None, {}, overrides))
processor.start()
with open_log(log_path) as log:
    log.create_topic("orders", partition_count=1)
    orders = ({"id": number, "total": 9.5} for number in range(30))
    log.append("orders", 0, [NewRecord(key=None, value=json.dumps(order).encode()) for order in orders])
with AdminClient({"log.path": log_path}) as admin:
    keys = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "2000"}
    admin.alter_group_config("ledger", {"share.exactly.once.enable": "true", **keys})

columns = "topic string, partition int, offset long, id int, total double"
spark_sink, python_sink = str(folder / "by_spark"), str(folder / "by_python")
for sink in (spark_sink, python_sink):
    spark.createDataFrame([], columns).write.format("delta").save(sink)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What operators have
# MAGIC
# MAGIC The commands of a terminal: `sharegroup groups resolve` looks writes up as members do, and with `--dry-run` it
# MAGIC only lists them.

# COMMAND ----------


def sharegroup(*arguments):
    program = [sys.executable, "-c", "from sharegroup.programs.main import main; main()", *arguments]
    environment = {**os.environ, "SHAREGROUP_LOG_PATH": log_path, "SHAREGROUP_STATE_TABLE_PATH": str(folder / "state")}
    result = subprocess.run([*program, "--output", "json"], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def wait_for_doubt():
    while True:
        writes = sharegroup("groups", "resolve", "--group", "ledger", "--dry-run")
        if in_doubt := sum(write["resolving_count"] for write in writes):
            return in_doubt
        time.sleep(0.5)


# COMMAND ----------

# MAGIC %md
# MAGIC ## A consumer is killed before its commit
# MAGIC
# MAGIC It is a process of its own, without Spark. Rows and acknowledgements of a transaction are one commit at the
# MAGIC end of the block, which it does not live to see.

# COMMAND ----------

CONSUMER = """
import json, sys, time
from sharegroup import ShareConsumer

log_path, sink = sys.argv[1:]
config = {"log.path": log_path, "group.id": "ledger", "sink": sink, "max.poll.records": 10,
          "share.acquire.mode": "record_limit"}
with ShareConsumer(config) as consumer:
    consumer.subscribe(["orders"])
    while not (messages := consumer.poll(timeout=1)):
        pass
    with consumer.transaction() as results:
        for message in messages:
            results.append({"offset": message.offset(), **json.loads(message.value())})
        print(len(messages), flush=True)
        time.sleep(3600)
"""
consumer = subprocess.Popen([sys.executable, "-c", CONSUMER, log_path, python_sink], stdout=subprocess.PIPE, text=True)
print("the consumer holds", int(consumer.stdout.readline()))
consumer.kill()
consumer.wait()

# COMMAND ----------

# MAGIC %md
# MAGIC Its locks have ended, and nobody knows yet if the results are in the table: the records are RESOLVING, and
# MAGIC nobody gets them. `resolve` commits an empty fence with the write's own transaction, and looks. From then on
# MAGIC the table would refuse the consumer's commit, had it only slept.

# COMMAND ----------

print("in doubt", wait_for_doubt())
for write in sharegroup("groups", "resolve", "--group", "ledger"):
    print(Path(write["sink"]).name, write["outcome"])
print("rows", spark.read.format("delta").load(python_sink).count())

# COMMAND ----------

# MAGIC %md
# MAGIC ## A query fails after its commit
# MAGIC
# MAGIC The other moment: the results are in the table, and nobody has heard of it.

# COMMAND ----------


def parsed(batch: DataFrame) -> DataFrame:
    order = F.from_json(F.col("value").cast("string"), "id int, total double")
    return batch.select("topic", "partition", "offset", order.alias("order")).select("*", "order.*").drop("order")


def write_and_fail(batch: DataFrame, batch_id: int) -> None:
    write_once(batch, parsed(batch))
    raise RuntimeError("the driver died here")


options = {"log.path": log_path, "group.id": "ledger", "subscribe": "orders", "sink": spark_sink}
limits = {"max.poll.records": "10", "share.acquire.mode": "record_limit"}
batches = spark.readStream.format("sharegroup").options(**options, **limits).load()
query = batches.writeStream.foreachBatch(write_and_fail).option("checkpointLocation", str(folder / "query")).start()
try:
    query.awaitTermination()
except StreamingQueryException:
    print("the query failed, in doubt", wait_for_doubt())
print("rows", spark.read.format("delta").load(spark_sink).count())

# COMMAND ----------

# MAGIC %md
# MAGIC ## A worker finishes it
# MAGIC
# MAGIC Any member of the same sink looks up what others have left: the processor asks it to. So the worker finds the
# MAGIC ten results of the query, and their records are accepted without another delivery. The other twenty it gets
# MAGIC itself. With a sink its handler returns rows, or a pair of rows and acknowledgements.

# COMMAND ----------

config = {"log.path": log_path, "group.id": "ledger", "topics": "orders"}
process(spark, config, parsed, sink=spark_sink, once_timeout_s=60)
print("rows", spark.read.format("delta").load(spark_sink).count())
print("open writes", len(sharegroup("groups", "resolve", "--group", "ledger", "--dry-run")))

# COMMAND ----------

# MAGIC %md
# MAGIC ## It adds up
# MAGIC
# MAGIC `audit verify` compares the tables with the state table: every accepted record is in a commit, and in one;
# MAGIC every commit has its acceptances. Since the rows have topic, partition and offset, they are compared one by
# MAGIC one, too.

# COMMAND ----------

results = spark.read.format("delta").load(spark_sink)
print("records", results.select("topic", "partition", "offset").distinct().count())
sinks = sharegroup("audit", "verify", "--no-requests", "--sink", spark_sink, "--sink", python_sink)["sinks"]
print("accepted", sinks["accepted_count"], "rows", sinks["row_count"], "findings", sinks["finding_count"])

# COMMAND ----------

processor.stop()
