"""What a registry says, in a form that tests can compare."""

from __future__ import annotations

from sharegroup.metrics.metric import Metric
from sharegroup.metrics.registry import MetricsRegistry


def values(registry: MetricsRegistry, metric: Metric) -> dict[tuple[str, ...], float]:
    """Values of a metric's labels → value; nothing when it is not shown."""
    return {
        tuple(sample.labels.values()): sample.value
        for found, samples in registry.collect()
        for sample in samples
        if found is metric
    }


def everything(registry: MetricsRegistry) -> dict[str, float]:
    """All series, as `name{label=value}` → value."""
    return {
        f"{metric.name}{sample.suffix}{dict(sample.labels)}": sample.value
        for metric, samples in registry.collect()
        for sample in samples
    }
