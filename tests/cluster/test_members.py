"""Members in one session on a cluster: a query with the source, those of the example, and those that are refused."""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable

from examples.flights.flights import fails_at_first, is_cancelled
from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.logs.port import NewRecord
from tests.cluster.submitted import Submission
from tests.kafka.site import KafkaSite
from tests.support.wheel import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("a Spark cluster of several JVMs")]

PARTITIONS = 2
RECORDS = 50
FLIGHTS = [
    {"carrier": "UA", "flight": n, "origin": "EWR", "dest": "IAH", "dep_time": None if n % 9 == 0 else 517.0}
    for n in range(150)
]

PROGRAM = """
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from examples.flights.spark_member import create_spark_sink, handle_flights
from sharegroup.spark import acknowledge, build_session, cluster, process

channel, group, topic, flights_group, flights = json.loads(sys.argv[1])
spark = build_session("members")


# 1. A query with the source.
places = []


def handle(batch, number):
    batch = batch.persist()
    places.extend([row.partition, row.offset] for row in batch.collect())
    acknowledge(batch, "accept")
    acknowledge(batch.where("offset = 7"), "reject")


def from_the_wheel(batches):
    import sharegroup

    for batch in batches:
        assert sharegroup.__file__.startswith("./sharegroup.zip/"), sharegroup.__file__
        yield batch


log = {"kafka.bootstrap.servers": channel.pop("bootstrap.servers")}
options = {**log, **channel, "group.id": group, "subscribe": topic, "share.acknowledgement.mode": "explicit"}
source = spark.readStream.format("sharegroup").options(**options).load()
checked = source.mapInArrow(from_the_wheel, source.schema)
writer = checked.writeStream.foreachBatch(handle).option("checkpointLocation", "checkpoint/source")
writer.trigger(availableNow=True).start().awaitTermination()

# 2. The Spark members of the example.
sink = str(Path("flights").absolute())
create_spark_sink(spark, sink)
channel["bootstrap.servers"] = log["kafka.bootstrap.servers"]
config = {**channel, "group.id": flights_group, "topics": flights}
with ThreadPoolExecutor(2) as pool:
    members = [
        pool.submit(process, spark, {**config, "client.id": name}, handle_flights, once_timeout_s=300, sink=sink)
        for name in ("spark-worker-1", "spark-worker-2")
    ]
    for member in members:
        member.result()

# 3. What it refuses.
refusals = {}
embedded = {"log.path": "log.db", "group.id": "orders"}
for name, begin in {
    "worker": lambda: process(spark, {**embedded, "topics": "orders"}, print),
    "source": lambda: spark.readStream.format("sharegroup").options(**embedded, subscribe="orders").load(),
    "log": lambda: spark.read.format("sharegroup_log").options(path="log.db", topic="orders").load(),
    "jar": lambda: cluster.check_executors(spark, ["no.such.Connector"]),
    "folder": lambda: cluster.check_audit_tasks(spark, "absent", "state table"),
}.items():
    try:
        begin()
    except Exception as error:
        refusals[name] = str(error)
Path("result").write_text(json.dumps({"places": sorted(places), "refusals": refusals}))
spark.stop()
"""


REFUSED_LOG = "log.db is a file of one machine"
REFUSALS = {
    "worker": REFUSED_LOG,
    "source": REFUSED_LOG,
    "log": REFUSED_LOG,
    "jar": "lack the jar with class no.such.Connector",
    "folder": "/absent is on the disk of the driver's machine",
}


def test_members_in_one_session(submission: Submission, site: KafkaSite) -> None:
    group, topic = site.new_group(site.new_name("group")), site.new_topic(PARTITIONS, RECORDS)
    flights_group = site.new_group(site.new_name("group"), share_exactly_once_enable="true")
    flights = site.new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        site.log.append(flights, partition, [NewRecord(b"UA", json.dumps(flight).encode()) for flight in FLIGHTS])
    (submission.folder / "program.py").write_text(PROGRAM)
    shutil.copytree(ROOT / "examples", submission.folder / "examples")
    properties = site.settings.channel_properties
    channel = {key: properties[key] for key in ("bootstrap.servers", "request.topic.name", "response.topic.name")}
    arguments = [channel, group, topic, flights_group, flights]
    program = submission.submit("program.py", json.dumps(arguments), spark_cores_max="1")
    assert program.exit_code() == 0, program.output
    site.stop()

    result = json.loads((submission.folder / "result").read_text())
    assert result["places"] == [[partition, offset] for partition in range(PARTITIONS) for offset in range(RECORDS)]
    of_source = group_history(group, site.rows(group))
    assert of_source.count(RecordState.ACKNOWLEDGED) == PARTITIONS * (RECORDS - 1)
    assert of_source.record_count(Cause.REJECT) == PARTITIONS

    offset_keys = [(partition, offset) for partition in range(PARTITIONS) for offset in range(len(FLIGHTS))]
    flown = {key for key in offset_keys if not is_cancelled(FLIGHTS[key[1]])}
    of_example = group_history(flights_group, site.rows(flights_group))
    assert of_example.count(RecordState.ACKNOWLEDGED) == len(flown)
    assert of_example.record_count(Cause.REJECT) == len(offset_keys) - len(flown)
    assert of_example.record_count(Cause.RELEASE) == sum(fails_at_first(*key) for key in offset_keys) > 0
    sink = DeltaTable(str(submission.folder / "flights")).to_pyarrow_table()
    written = zip(sink["partition"].to_pylist(), sink["offset"].to_pylist(), strict=True)
    assert sorted(written) == sorted(flown)

    refusals = result["refusals"]
    assert {name: text in refusals.get(name, "") for name, text in REFUSALS.items()} == dict.fromkeys(REFUSALS, True)
    assert "Use Kafka as the log (kafka.bootstrap.servers)" in refusals["source"]
    assert verify(site.rows(), site.settings.broker).findings == []
