"""A Spark worker on a cluster: its handler runs in executors, and they may be killed."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from sharegroup.audit.history.group_history import group_history
from sharegroup.audit.verification.verify import verify
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.exit_code import ExitCode
from tests.cluster.submitted import Submission
from tests.kafka.site import KafkaSite
from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("a Spark cluster of several JVMs")]

PARTITIONS = 2
RECORDS = 120

HANDLER = """
import json
import os
import time
from pathlib import Path

FOLDER = Path.cwd()


def handle(records):
    folder = FOLDER

    def through_the_gate(batches):
        import sharegroup

        for batch in batches:
            if not (folder / "gate").exists():
                # The parent of this process is Spark's daemon, and its parent the executor.
                executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
                file = folder / f"{executor}.tmp"
                file.write_text(json.dumps({"executor": executor, "package": sharegroup.__file__}))
                file.rename(folder / "at_the_gate")
                while not (folder / "gate").exists():
                    time.sleep(0.05)
            yield batch

    passed = records.select("topic", "partition", "offset", "delivery_count")
    passed = passed.mapInArrow(through_the_gate, passed.schema)
    passed.write.format("delta").mode("append").save(str(folder / "sink"))
"""


def test_records_of_a_killed_executor_are_delivered_again(
    submission: Submission, cluster: SparkCluster, site: KafkaSite
) -> None:
    group, topic = site.new_group(site.new_name("group")), site.new_topic(PARTITIONS, RECORDS)
    (submission.folder / "handlers.py").write_text(HANDLER)
    worker = submission.submit(
        *("jobs/share_worker.py", "--config", "share.yaml"),
        *("--group", group, "--topic", topic, "handlers:handle"),
        # With Spark's default of 4 it runs the tasks of a lost executor again, and the handler does not notice.
        spark_task_maxFailures="1",
    )
    task = json.loads(worker.await_file(submission.folder / "at_the_gate"))
    assert task["package"].startswith("./sharegroup.zip/")
    cluster.kill_executor(task["executor"])
    (submission.folder / "gate").touch()
    site.until(lambda: site.is_drained(group, topic), "all records are finished")
    assert worker.stop() == ExitCode.OK, worker.output

    history = group_history(group, site.rows(group))
    assert history.count(RecordState.ACKNOWLEDGED) == PARTITIONS * RECORDS
    written = DeltaTable(str(submission.folder / "sink")).to_pyarrow_table()
    offset_keys = set(zip(written["partition"].to_pylist(), written["offset"].to_pylist(), strict=True))
    assert offset_keys == {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
    assert history.record_count(Cause.RELEASE) == 0
    assert "event=handler_failed" in worker.output
    site.stop()
    assert verify(site.rows(), site.settings.broker).findings == []
