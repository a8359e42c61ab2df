"""docs/metrics.md says what the catalogue holds."""

from __future__ import annotations

import re
from pathlib import Path

from sharegroup.metrics.catalogue import METRICS
from sharegroup.metrics.exposition import WORKER_COUNTERS
from tools.metrics_reference import metrics_reference

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_document_is_that_of_the_catalogue() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == metrics_reference()


def test_alerts_are_on_metrics_that_there_are() -> None:
    text = (DOCUMENT.parent / "operations.md").read_text(encoding="utf-8")
    alerted = set(re.findall(r"\b(?:kafka_server|sharegroup)_\w+", text))
    assert len(alerted) >= 10
    assert alerted <= {metric.name for metric in METRICS} | set(WORKER_COUNTERS)
