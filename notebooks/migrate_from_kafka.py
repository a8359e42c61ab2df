# Databricks notebook source
# MAGIC %md
# MAGIC # Migrate a share group from Kafka
# MAGIC
# MAGIC A Kafka broker (4.1 or later) stores the state of its share groups in two internal topics. This notebook imports
# MAGIC them as a state table, audits it, and lets a group continue here: start offsets, delivery counts and finished
# MAGIC records are kept.
# MAGIC
# MAGIC Without parameters it reads a small dump of a real broker, beside this file, and works on the embedded log. With
# MAGIC `bootstrap_servers` it reads the topics of that cluster, changes nothing in them, and the group continues on the
# MAGIC same cluster; its members on the broker must be stopped. docs/migration.md has all steps.

# COMMAND ----------

import tempfile
from collections import Counter
from pathlib import Path

from pyspark.sql import functions as F

from sharegroup import AdminClient, ImportedPartition, NewRecord, RecordState, ShareConsumer, load_settings, open_log
from sharegroup.audit import (
    KafkaImport,
    Selection,
    TableRows,
    as_of,
    broker_records,
    diff,
    dump_records,
    kafka_group,
    kafka_history,
    stats,
    topic_names,
    verify_table,
    write_history,
)
from sharegroup.spark import ProcessorQuery, build_session

# COMMAND ----------

# MAGIC %md
# MAGIC ## Parameters
# MAGIC
# MAGIC On Databricks they are widgets; elsewhere change them here.

# COMMAND ----------

parameters = {"bootstrap_servers": "", "group": "sg-gapped"}
if dbutils := globals().get("dbutils"):
    for name, default in parameters.items():
        dbutils.widgets.text(name, default)
        parameters[name] = dbutils.widgets.get(name)
bootstrap_servers, group_id = parameters["bootstrap_servers"], parameters["group"]

# A notebook has no __file__: its working folder is its own.
dump = Path(globals().get("__file__", "notebook")).resolve().parent / "kafka_dump"
folder = Path(tempfile.mkdtemp(prefix="sharegroup-"))
history_path = str(folder / "history")
log_config = {"bootstrap.servers": bootstrap_servers} if bootstrap_servers else {"log.path": str(folder / "log.db")}
paths = {"state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}
settings = load_settings(None, {}, [f"{key}={value}" for key, value in {**log_config, **paths}.items()])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Import the history
# MAGIC
# MAGIC Each record of the internal topics is a row. Records that this release does not know are counted as unread.

# COMMAND ----------

if bootstrap_servers:
    with open_log(settings.log) as log:
        history, names = kafka_history(broker_records(log)), topic_names(log)
else:
    history, names = kafka_history(dump_records(dump)), {}
imported = KafkaImport(history, names)
write_history(history_path, imported.rows(), "Kafka")
print(imported.summary.row_count, "rows,", len(imported.summary.unread), "unread")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Audit it
# MAGIC
# MAGIC All audits work on the imported table. Kafka stores no locks, so no record is ever acquired in it.

# COMMAND ----------

rows, group = TableRows(history_path), Selection(group_id)
print("findings", verify_table(history_path, settings.broker).finding_count)
for partition in as_of(rows, "latest", group)["groups"][0]["partitions"]:
    states = Counter(run["state"] for run in partition["runs"])
    print(partition["topic"], partition["partition"], "start offset", partition["start_offset"], "runs", dict(states))
for partition in stats(rows, group, settings.broker)["groups"][0]["partitions"]:
    print(partition["topic"], partition["partition"], "accepted", partition["accepted_count"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## What changed in its second half

# COMMAND ----------

spark = build_session("migrate-from-kafka")
table = spark.read.format("delta").load(history_path).where(F.col("group_id") == group_id)
first_ms, last_ms = table.agg(F.min("time_ms"), F.max("time_ms")).first()
for partition in diff(rows, str((first_ms + last_ms) // 2), "latest", group)["groups"][0]["partitions"]:
    print(partition["topic"], partition["partition"], "changed ranges", len(partition["records"]))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Start the group here
# MAGIC
# MAGIC Topics are matched by their names, and records must have the same offsets: the embedded log gets as many as the
# MAGIC dump's broker had. The group gets its configuration first: delivery counts count on, so the limit should be
# MAGIC Kafka's.

# COMMAND ----------

processor = ProcessorQuery(spark, settings)
processor.start()
moved = kafka_group(history, names, group_id)
log = open_log(settings.log)
if bootstrap_servers:
    group_config = log.group_config(group_id)
else:
    group_config = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
    log.create_topic("rec-a", partition_count=2)
    for partition in range(2):
        log.append("rec-a", partition, [NewRecord(key=None, value=b"a record")] * 300)
log.close()
with AdminClient(log_config) as admin:
    admin.alter_group_config(group_id, group_config)
    states = {key: ImportedPartition(each.start_offset, each.state_batches) for key, each in moved.states.items()}
    errors = admin.import_share_partitions(group_id, states)
print("not imported", [key for key, error in errors.items() if error is not None])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Work off what is left
# MAGIC
# MAGIC Members get what was not finished on the broker, with its delivery counts.

# COMMAND ----------

if not bootstrap_servers:
    accepted_count = sum(state.count(RecordState.ACKNOWLEDGED) for state in moved.states.values())
    unfinished_count = 2 * 300 - accepted_count
    delivery_counts: Counter[int] = Counter()
    with ShareConsumer({**log_config, "group.id": group_id}) as consumer:
        consumer.subscribe(["rec-a"])
        while sum(delivery_counts.values()) < unfinished_count:
            delivery_counts.update(message.delivery_count() for message in consumer.poll(timeout=1))
            consumer.commit_sync()
    print("deliveries by their number", dict(sorted(delivery_counts.items())))

# COMMAND ----------

processor.stop()
