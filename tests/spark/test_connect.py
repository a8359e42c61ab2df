"""Sessions of Spark Connect, each in a program of its own: what works there, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import leash
from tests.support.eventually import DEADLINE_S

pytestmark = pytest.mark.slow

WITHOUT_JVM = """
import sys
from pyspark import SparkContext
from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.spark.session import build_session, check_jars

check_jars()
try:
    build_session("remote")
except EnvironmentNotReadyError as error:
    print(error)
assert SparkContext._jvm is None
"""
MEMBERS = """
import json, sys, threading
from pathlib import Path
from sharegroup import AdminClient, NewRecord, load_settings, open_log
from sharegroup.errors import ConfigurationError
from sharegroup.spark import ProcessorQuery, acknowledge, build_session, process
from sharegroup.spark.connect import LOCAL_SERVER, is_connect

folder = Path(sys.argv[1])
log_path = str(folder / "log.db")
paths = {"log.path": log_path, "state.table.path": folder / "state", "checkpoint.path": folder / "checkpoint"}
spark = build_session("members")
assert is_connect(spark)
processor = ProcessorQuery(spark, load_settings(None, {}, [f"{key}={path}" for key, path in paths.items()]))
processor.start()
with open_log(log_path) as log:
    log.create_topic("orders", partition_count=1)
    log.append("orders", 0, [NewRecord(None, str(number).encode()) for number in range(30)])
admin = AdminClient({"log.path": log_path})
for group in ("handlers", "queries"):
    admin.alter_group_config(group, {"share.auto.offset.reset": "earliest"})

worker = {"log.path": log_path, "group.id": "handlers", "topics": "orders"}
try:
    process(spark, worker, lambda records: None, once_timeout_s=60)
except ConfigurationError as refused:
    print("worker refused" if LOCAL_SERVER in str(refused) else refused)

spark.conf.set(LOCAL_SERVER, "true")
seen = []
process(spark, worker, lambda records: seen.extend(row.offset for row in records.collect()), once_timeout_s=60)
print("worker", sorted(seen) == list(range(30)))
try:
    process(spark, worker, lambda records: records.selectExpr("length(value) AS size"), sink=folder / "results")
except ConfigurationError as refused:
    print("sink refused" if "ShareConsumer with the key sink" in str(refused) else refused)

from sharegroup.spark import register

register(spark)


def judge(records, batch_id):
    from sharegroup.spark import acknowledge

    acknowledge(records.where("offset % 10 > 0"), "accept")
    acknowledge(records.where("offset % 10 = 0"), "reject")


options = {"log.path": log_path, "group.id": "queries", "subscribe": "orders", "share.acknowledgement.mode": "explicit",
           "acknowledgement.folder": str(folder / "acknowledgements")}
stream = spark.readStream.format("sharegroup").options(**options).load()
query = stream.writeStream.foreachBatch(judge).option("checkpointLocation", str(folder / "query"))
query.trigger(availableNow=True).start().awaitTermination()
for group in ("handlers", "queries"):
    (offsets,) = admin.list_share_group_offsets({group: None})[group].values()
    print(group, offsets.start_offset, offsets.lag)
print("commits", processor.last_progress()["commits"] > 0)
processor.stop()
admin.close()
spark.stop()
"""


def environment(**variables: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_REMOTE"))}
    return {**own, "PYTHONPATH": str(ROOT), **variables}


def test_a_remote_session_without_a_server_starts_no_jvm() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_JVM],
        env=environment(SPARK_CONNECT_MODE_ENABLED="1"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert "SPARK_REMOTE=sc://HOST:15002" in ended.stdout


@pytest.mark.spark
@pytest.mark.long("a Spark Connect server, a JVM of its own")
def test_members_of_a_session_with_a_local_server(tmp_path: Path) -> None:
    ended = leash.run(
        [sys.executable, "-c", MEMBERS, str(tmp_path)],
        timeout_s=DEADLINE_S,
        cwd=tmp_path,
        env=environment(SPARK_REMOTE="local[4]"),
    )
    assert ended.returncode == 0, ended.stderr
    expected = ["worker refused", "worker True", "sink refused", "handlers 30 0", "queries 30 0", "commits True"]
    assert ended.stdout.splitlines() == expected
