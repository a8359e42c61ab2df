"""Metrics as Prometheus reads them from a processor."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import DEADLINE_S

Series = dict[tuple[str, ...], float]


def scraped(port: int) -> dict[str, Series]:
    """Return name → values of its labels by their names → value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as response:
        text = response.read().decode()
    series: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            series.setdefault(sample.name, {})[labels] = sample.value
    return series
