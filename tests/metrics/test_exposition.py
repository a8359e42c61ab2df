"""The text that Prometheus reads."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from sharegroup.config.broker import BrokerConfig
from sharegroup.metrics.catalogue import METRICS
from sharegroup.metrics.exposition import metrics_document, prometheus_text
from sharegroup.metrics.group_metrics import GroupMetrics
from sharegroup.metrics.registry import MetricsRegistry
from sharegroup.state.fold import fold
from tests.audit.conftest import worked_on


def registry() -> MetricsRegistry:
    rows = worked_on(BrokerConfig())
    made = MetricsRegistry(max_series=100)
    GroupMetrics(made, fold(rows), lambda topics: {}, BrokerConfig()).count(rows)
    return made


def test_the_text_has_the_values_of_the_registry() -> None:
    held = registry()
    families = {family.name: family for family in text_string_to_metric_families(prometheus_text(held))}
    known = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    assert families.keys() <= known.keys()
    assert {name: families[name].type for name in families} == {name: known[name].kind.value for name in families}
    read = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for f in families.values()
        for sample in f.samples
    }
    assert read == {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in held.collect()
        for sample in family.samples
    }
    assert read[("kafka_server_sharegroupmetrics_recordacknowledgements_total", (("ackType", "Accept"),))] == 15


def test_the_document_has_the_same_figures_and_is_json() -> None:
    held = registry()
    document = json.loads(json.dumps(metrics_document(held), allow_nan=False))
    assert [entry["name"] for entry in document] == [metric.name for metric, _ in held.families()]
    (locked,) = (entry for entry in document if entry["name"] == "sharegroup_locked_records")
    assert locked["samples"] == [
        {
            "name": "sharegroup_locked_records",
            "labels": {"group": "group-1", "topic": "orders", "partition": "0"},
            "value": 16,
        }
    ]
