# Databricks notebook source
# MAGIC %md
# MAGIC # Audit: every question about every record
# MAGIC
# MAGIC The state table has each transition of each record, with its cause, member, time and request. This notebook
# MAGIC makes a small history, and asks it: which state the group had then, who had a record, what changed, who is slow,
# MAGIC whether the table is right, and what other limits would have done.
# MAGIC
# MAGIC To ask a table of your own, leave the first part out and set `settings` to those of its processor. No processor
# MAGIC has to run, and a running one is not touched. docs/audits.md has the questions.

# COMMAND ----------

import tempfile
from pathlib import Path

from pyspark.sql import functions as F

from sharegroup import AcknowledgeType, AdminClient, NewRecord, ShareConsumer, load_settings, open_log
from sharegroup.audit import (
    LineageRequest,
    RequestReplay,
    Selection,
    TableRows,
    as_of,
    checked_limits,
    diff,
    lineage,
    stats,
    verify_requests,
    verify_table,
    what_if,
)
from sharegroup.cli.pictures import group_report, report_html
from sharegroup.spark import ProcessorQuery, SparkRows, build_session

folder = Path(tempfile.mkdtemp(prefix="sharegroup-"))
log_path, state_path = str(folder / "log.db"), str(folder / "state")
paths = {"log.path": log_path, "state.table.path": state_path, "checkpoint.path": folder / "checkpoint"}
settings = load_settings(None, {}, [f"{key}={path}" for key, path in paths.items()])

# COMMAND ----------

# MAGIC %md
# MAGIC ## A history
# MAGIC
# MAGIC A member accepts twenty orders but two. It rejects order 7, and releases order 3 until its deliveries are used
# MAGIC up.

# COMMAND ----------

spark = build_session("audit")
processor = ProcessorQuery(spark, settings)
processor.start()
with open_log(log_path) as log:
    log.create_topic("orders", partition_count=1)
    log.append("orders", 0, [NewRecord(key=None, value=b"an order")] * 20)
admin = AdminClient({"log.path": log_path})
admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "3"})

config = {
    "log.path": log_path,
    "group.id": "packers",
    "client.id": "anna",
    "share.acknowledgement.mode": "explicit",
}
SPECIAL = {3: AcknowledgeType.RELEASE, 7: AcknowledgeType.REJECT}
delivery_count = 0
with ShareConsumer(config) as consumer:
    consumer.subscribe(["orders"])
    while delivery_count < 19 + 3:
        for message in consumer.poll(timeout=1):
            consumer.acknowledge(message, SPECIAL.get(message.offset(), AcknowledgeType.ACCEPT))
            delivery_count += 1
admin.close()
processor.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The state at a point
# MAGIC
# MAGIC A point is a time, a commit, a position of the request log, or `latest`. `TableRows` reads the table without the
# MAGIC JVM, `SparkRows` with this session, for large histories; the answers are the same documents.

# COMMAND ----------

rows = TableRows(state_path)
packers = Selection(group_id="packers")
(group,) = as_of(rows, "latest", packers)["groups"]
for partition in group["partitions"]:
    print(partition["topic"], partition["partition"], "start offset", partition["start_offset"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The deliveries of a record

# COMMAND ----------

order_3 = LineageRequest(selection=Selection("packers", "orders", 0), offsets=(3, 3))
deliveries = lineage(rows, order_3)["deliveries"]
for delivery in deliveries:
    print("delivery", delivery.delivery_count, "to", delivery.client_id, delivery.outcome, delivery.to_state)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The changes between two points
# MAGIC
# MAGIC Here from the moment of the last delivery of order 3 to the end.

# COMMAND ----------

changes = diff(rows, str(deliveries[-1].acquired_ms), "latest", packers)
for change in changes["groups"][0]["partitions"][0]["records"]:
    if change["first_offset"] <= 3 <= change["last_offset"]:
        print("order 3", change["from_state"], change["from_delivery_count"], "to", change["to_state"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Figures
# MAGIC
# MAGIC Poison records, slow members, records that held the start offset: here read by Spark.

# COMMAND ----------

(figures,) = stats(SparkRows(lambda: spark, state_path), packers, settings.broker)["groups"]
print("deliveries per record", figures["deliveries_per_record"])
for record in figures["archived_at_limit"]:
    print("archived at the limit: offsets", record["first_offset"], "to", record["last_offset"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The table as a table
# MAGIC
# MAGIC It is a Delta table like any other: SQL and DataFrames see each transition.

# COMMAND ----------

transitions = (
    spark.read.format("delta")
    .load(state_path)
    .where("group_id = 'packers'")
    .select(F.explode("transitions").alias("t"))
)
record_count = F.sum(F.expr("t.last_offset - t.first_offset + 1"))
for row in transitions.groupBy("t.cause").agg(record_count.alias("records")).orderBy("cause").collect():
    print(row.cause, row.records)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Verify
# MAGIC
# MAGIC First the table against its own history, then against the request log: each request is applied again, and must
# MAGIC give the same rows and responses.

# COMMAND ----------

print("findings", verify_table(state_path, settings.broker).finding_count)
with open_log(log_path) as log:
    replay = verify_requests(RequestReplay(state_path, log, settings.processor, settings.broker))
print("findings of the replay", len(replay.findings))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Other limits
# MAGIC
# MAGIC The request log is replayed with two deliveries a record at most. An acknowledgement of a record that its member
# MAGIC does not hold in the replay is undecided.

# COMMAND ----------

limits = checked_limits({"share.delivery.count.limit": "2"})
with open_log(log_path) as log:
    other = what_if(state_path, log, settings.processor, settings.broker, limits, "packers")
print("deliveries", other.recorded.delivery_count, "with the limit of 3,", other.replayed.delivery_count, "with 2")
print("undecided", other.undecided_count, "of", other.acknowledged_count)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A picture
# MAGIC
# MAGIC The report is one HTML file that needs no network; docs/pictures.md describes it. On Databricks it is shown
# MAGIC below the cell.

# COMMAND ----------

page = report_html(group_report(settings, "packers"))
(folder / "report.html").write_text(page, encoding="utf-8")
if show := globals().get("displayHTML"):
    show(page)
print("report", len(page) // 1_000_000, "MB")
