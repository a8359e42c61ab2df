# Databricks notebook source
# MAGIC %md
# MAGIC # Quickstart: a processor and a consumer
# MAGIC
# MAGIC A share group needs a log, and a processor that hosts it. Both are in this notebook, on the embedded log and
# MAGIC in a folder of their own; members in other notebooks and programs of this machine take part when they name
# MAGIC the same log.
# MAGIC
# MAGIC On Databricks: compute with dedicated access, and the wheel as a library of it (docs/databricks.md).
# MAGIC Elsewhere, run the file as a program: `python notebooks/quickstart.py`.

# COMMAND ----------

import json
import tempfile
from pathlib import Path

from sharegroup import AcknowledgeType, AdminClient, NewRecord, ShareConsumer, load_settings, open_log
from sharegroup.spark import ProcessorQuery, build_session

folder = Path(tempfile.mkdtemp(prefix="sharegroup-"))
log_path = str(folder / "log.db")
paths = {"log.path": log_path, "state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Start a processor
# MAGIC
# MAGIC It runs in a streaming query of this session, beside the cells that follow. `build_session` returns the
# MAGIC session of the notebook if there is one.

# COMMAND ----------

spark = build_session("quickstart")
processor = ProcessorQuery(spark, load_settings(None, {}, [f"{key}={path}" for key, path in paths.items()]))
processor.start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Produce
# MAGIC
# MAGIC A new group begins at the end of the log, unless it is configured otherwise.

# COMMAND ----------

with open_log(log_path) as log:
    log.create_topic("orders", partition_count=3)
    for number in range(30):
        order = {"id": number, "total": None if number % 10 == 0 else 9.5}
        log.append("orders", number % 3, [NewRecord(key=None, value=json.dumps(order).encode())])

admin = AdminClient({"log.path": log_path})
admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})

# COMMAND ----------

# MAGIC %md
# MAGIC ## Consume and acknowledge
# MAGIC
# MAGIC Each record is acknowledged by itself: orders without a total are rejected, all others accepted.

# COMMAND ----------

config = {"log.path": log_path, "group.id": "packers", "share.acknowledgement.mode": "explicit"}
counts = dict.fromkeys((AcknowledgeType.ACCEPT, AcknowledgeType.REJECT), 0)
with ShareConsumer(config) as consumer:
    consumer.subscribe(["orders"])
    while sum(counts.values()) < 30:
        for message in consumer.poll(timeout=1):
            is_valid = json.loads(message.value())["total"] is not None
            acknowledge_type = AcknowledgeType.ACCEPT if is_valid else AcknowledgeType.REJECT
            consumer.acknowledge(message, acknowledge_type)
            counts[acknowledge_type] += 1
    consumer.commit_sync()
for acknowledge_type, count in counts.items():
    print(acknowledge_type.name, count)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Describe the group
# MAGIC
# MAGIC The start offsets are at the end of the log, so no record is left.

# COMMAND ----------

for (topic, partition), offsets in sorted(admin.list_share_group_offsets({"packers": None})["packers"].items()):
    print(topic, partition, "start offset", offsets.start_offset, "lag", offsets.lag)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Stop
# MAGIC
# MAGIC The state table keeps the group: a processor that is started on the same folder goes on where this one
# MAGIC ended.

# COMMAND ----------

admin.close()
processor.stop()
