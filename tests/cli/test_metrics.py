"""`sharegroup metrics` on a state table that real actors fill."""

from __future__ import annotations

import json
import time

from prometheus_client.parser import text_string_to_metric_families

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.metrics.catalogue import METRICS, Source
from sharegroup.protocol.group_records import ShareGroupMetadata
from sharegroup.protocol.rows import RecordType, StateRow
from tests.cli.conftest import CommandLine
from tests.cli.test_documents import DOCUMENTS
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.stored_commit import store


def shown(cli: CommandLine, *arguments: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Name → values of the labels by their names → value."""
    metrics: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(cli.out("metrics", *arguments)):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            metrics.setdefault(sample.name, {})[labels] = sample.value
    return metrics


def test_the_metrics_of_a_group_that_works(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * 30)
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    config: dict[str, object] = {
        "log.path": str(cli.folder / "events.log"),
        "group.id": "packers",
        "max.poll.records": 30,
    }
    with ShareConsumer(config) as member:
        member.subscribe(["orders"])
        assert len(member.poll(DEADLINE_S)) == 30
        labels = ("packers", "0", "orders")
        eventually(lambda: shown(cli)["sharegroup_locked_records"][labels] == 30, "the table shows the locks")
        metrics = shown(cli)
        assert metrics["sharegroup_lag"] == {labels: 30}
        assert metrics["sharegroup_transitions_total"] == {("acquire", "packers", "orders"): 30}
        assert metrics["kafka_server_sharepartitionmetrics_inflightmessagecount"] == {labels: 30}
        assert metrics["kafka_server_group_coordinator_metrics_group_count"] == {("share",): 1}
        assert metrics["kafka_server_share_coordinator_metrics_write_total"][()] >= 1
    eventually(lambda: shown(cli)["kafka_server_share_coordinator_metrics_event_queue_size"] == {(): 0}, "none waits")


def test_metrics_of_a_processor_are_not_shown(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    shown_names = {name.removesuffix("_count") for name in shown(cli)}
    names = {metric.name.removesuffix("_count") for metric in METRICS if metric.source in (Source.ROWS, Source.STATE)}
    assert shown_names <= names
    assert "sharegroup_members" in shown_names


def test_counters_can_be_those_of_the_last_minutes(cli: CommandLine, log: LocalLog) -> None:
    now_ms = time.time_ns() // 1_000_000
    for epoch, age_minutes in ((1, 90), (2, 30), (3, 0)):
        store(str(cli.folder / "state"), [group_epoch(epoch, now_ms - age_minutes * 60_000)])
    rebalances = "kafka_server_group_coordinator_metrics_share_group_rebalance_count"
    counts = {minutes: shown(cli, "--minutes", minutes)[rebalances][()] for minutes in ("10", "60", "120")}
    assert counts == {"10": 1, "60": 2, "120": 3}
    assert shown(cli)[rebalances] == {(): 2}
    assert "minutes" in cli.error("metrics", "--minutes", "0", exit_code=2)


def group_epoch(epoch: int, time_ms: int) -> StateRow:
    return StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id="packers",
        request_partition=0,
        request_offset=epoch,
        time_ms=time_ms,
        payload={"records": [ShareGroupMetadata(epoch=epoch).model_dump(mode="json")]},
    )


def test_json_has_the_figures_of_the_text(cli: CommandLine, log: LocalLog, admin: AdminClient) -> None:
    admin.alter_group_config("packers", {"share.auto.offset.reset": "earliest"})
    document = cli.json("metrics")
    (example,) = json.loads(DOCUMENTS["metrics"])
    assert {tuple(entry) for entry in document} == {tuple(example)}
    assert {tuple(sample) for entry in document for sample in entry["samples"]} == {tuple(example["samples"][0])}
    samples = {sample["name"]: sample["value"] for entry in document for sample in entry["samples"]}
    assert samples["sharegroup_members"] == shown(cli)["sharegroup_members"]["packers",] == 0


def test_a_missing_state_table_is_an_error(cli: CommandLine, log: LocalLog) -> None:
    assert "state" in cli.error("metrics")
