"""The values of a registry, in a form that tests can compare."""

from __future__ import annotations

from sharegroup.metrics.catalogue import Metric
from sharegroup.metrics.registry import MetricsRegistry


def values(registry: MetricsRegistry, metric: Metric) -> dict[tuple[str, ...], float]:
    """Values of a metric's labels → value; nothing when it is not shown."""
    return {
        tuple(sample.labels.values()): sample.value
        for known, family in registry.families()
        for sample in family.samples
        if known is metric
    }


def everything(registry: MetricsRegistry) -> dict[str, float]:
    """All series, as `name{label=value}` → value."""
    return {f"{sample.name}{sample.labels}": sample.value for family in registry.collect() for sample in family.samples}
