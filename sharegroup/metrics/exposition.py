"""How the metrics are shown: as Prometheus text, and as a document for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from prometheus_client import Metric as PrometheusMetric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from sharegroup.metrics.metric import Metric
from sharegroup.metrics.registry import MetricsRegistry


class RegistryCollector(Collector):
    """A registry as Prometheus' client library asks for it.

    Args:
        registry: the registry.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[PrometheusMetric]:
        """All metrics as they are now."""
        for metric, samples in self._registry.collect():
            family = PrometheusMetric(metric.name.removesuffix("_total"), _help(metric), metric.kind.value)
            for sample in samples:
                family.add_sample(metric.name + sample.suffix, dict(sample.labels), sample.value)
            yield family


def prometheus_text(registry: MetricsRegistry) -> str:
    """All metrics in Prometheus' text format."""
    return generate_latest(RegistryCollector(registry)).decode()


def metrics_document(registry: MetricsRegistry) -> list[dict[str, Any]]:
    """All metrics as lists and objects for JSON; a figure without a value is None."""
    return [
        {
            "name": metric.name,
            "kafka_name": metric.kafka_name,
            "kind": metric.kind.value,
            "samples": [
                {
                    "name": metric.name + sample.suffix,
                    "labels": dict(sample.labels),
                    "value": None if math.isnan(sample.value) else sample.value,
                }
                for sample in samples
            ],
        }
        for metric, samples in registry.collect()
    ]


def _help(metric: Metric) -> str:
    return f"{metric.meaning} Kafka: {metric.kafka_name}" if metric.kafka_name else metric.meaning
