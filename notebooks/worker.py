# Databricks notebook source
# MAGIC %md
# MAGIC # Work on records as DataFrames
# MAGIC
# MAGIC A worker is a member of a share group that hands the records it acquires to a function, as a DataFrame. It
# MAGIC needs no checkpoint and shares the records with all other members of the group, in Spark or not.
# MAGIC docs/worker.md has the rules.

# COMMAND ----------

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sharegroup import AdminClient, NewRecord, load_settings, open_log
from sharegroup.spark import ProcessorQuery, build_session, process

folder = Path(tempfile.mkdtemp(prefix="sharegroup-"))
log_path = str(folder / "log.db")
sales_path = (folder / "sales").as_uri()
paths = {"log.path": log_path, "state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}

# COMMAND ----------

# MAGIC %md
# MAGIC ## A processor, and some records
# MAGIC
# MAGIC In production the processor is a job of its own (`jobs/share_group_processor.py`); here both share a
# MAGIC session.

# COMMAND ----------

spark = build_session("worker")
processor = ProcessorQuery(spark, load_settings(None, {}, [f"{key}={path}" for key, path in paths.items()]))
processor.start()
with open_log(log_path) as log:
    log.create_topic("orders", partition_count=3)
    for partition in range(3):
        orders = ({"id": number, "total": None if number % 10 == 0 else 9.5} for number in range(partition, 3_000, 3))
        log.append("orders", partition, [NewRecord(key=None, value=json.dumps(order).encode()) for order in orders])
with AdminClient({"log.path": log_path}) as admin:
    admin.alter_group_config("orders", {"share.auto.offset.reset": "earliest"})

# COMMAND ----------

# MAGIC %md
# MAGIC ## The handler
# MAGIC
# MAGIC It writes what it can use, with topic, partition and offset, since a record may come twice; and it returns
# MAGIC the records that it does not accept, with what to do with them. Those that it leaves out are accepted.

# COMMAND ----------


def handle(records: DataFrame) -> DataFrame:
    order = F.from_json(F.col("value").cast("string"), "id int, total double")
    parsed = records.select("topic", "partition", "offset", order.alias("order"))
    parsed.where("order.total IS NOT NULL").write.format("delta").mode("append").save(sales_path)
    invalid = parsed.where("order.total IS NULL")
    return invalid.select("topic", "partition", "offset", F.lit("reject").alias("acknowledge_type"))


# COMMAND ----------

# MAGIC %md
# MAGIC ## Work until nothing can be acquired
# MAGIC
# MAGIC Without `once_timeout_s` a worker works until it is stopped.

# COMMAND ----------

config = {"log.path": log_path, "group.id": "orders", "topics": "orders"}
process(spark, config, handle, once_timeout_s=60)
sales = spark.read.format("delta").load(sales_path)
print("sales", sales.dropDuplicates(["topic", "partition", "offset"]).count())

# COMMAND ----------

processor.stop()
