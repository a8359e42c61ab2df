"""The audits by Spark on a cluster, as programs that a user submits."""

from __future__ import annotations

import json

import pytest

from sharegroup.exit_code import ExitCode
from tests.cluster.submitted import CLASS_PATH, Submission
from tests.kafka.site import KafkaSite

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long("a Spark cluster of several JVMs")]


def test_verify_and_the_live_auditor(submission: Submission, site: KafkaSite) -> None:
    group, topic = site.new_group(site.new_name("group")), site.new_topic(2, 50)
    with site.consumer(group, topic) as consumer:
        site.poll(consumer, 100)
        consumer.commit_sync()
    site.until(lambda: site.is_drained(group, topic), "all records are finished")
    site.stop()

    verify = ("jobs/replay_audit.py", "verify", "--config", "share.yaml", "--output", "json")
    replay = submission.submit(*verify, flags=submission.packages("spark"), spark_cores_max="1")
    follow = ("jobs/live_audit.py", "--config", "share.yaml", "--output", "audit", "--once")
    live = submission.submit(*follow, flags=CLASS_PATH, spark_cores_max="1")

    assert replay.exit_code() == ExitCode.OK, replay.output
    report = json.JSONDecoder().raw_decode(replay.output, replay.output.index("{\n"))[0]
    assert report["findings"] == []
    assert report["transition_count"] > 0
    assert live.exit_code() == ExitCode.OK, live.output
    assert not (submission.folder / "audit" / "findings").exists()
    marker = site.reader.last_marker()
    assert marker is not None
    # Its minute may not be over yet, so that there may be no statistics.
    offsets = submission.folder / "audit" / "_checkpoint" / "offsets"
    newest = max((file for file in offsets.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    assert json.loads(newest.read_text().splitlines()[-1])["commit_id"] == marker.commit_id
