"""The counters as figures of one micro-batch, for the progress of the streaming query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sharegroup.actor.effects import Effect, Persist
from sharegroup.core.record_state import Cause
from sharegroup.metrics.answer_metrics import ANSWER_COUNTERS, answer_increments
from sharegroup.metrics.catalogue import (
    ACQUISITION_LOCK_TIMEOUT,
    DELIVERY_LIMIT_REACHED,
    RECORD_ACKNOWLEDGEMENTS,
    REDELIVERIES,
    SHARE_GROUP_REBALANCE_COUNT,
    TRANSITIONS,
    WRITE_TOTAL,
)
from sharegroup.metrics.metric import Metric
from sharegroup.metrics.row_increments import ACKNOWLEDGE_TYPES, row_increments

OBSERVATION = "sharegroup"
"""Name of the observed metrics."""

_SERIES: tuple[tuple[Metric, str], ...] = (
    *((RECORD_ACKNOWLEDGEMENTS, found) for found in ACKNOWLEDGE_TYPES),
    (ACQUISITION_LOCK_TIMEOUT, ""),
    *((metric, "") for metric in ANSWER_COUNTERS),
    (SHARE_GROUP_REBALANCE_COUNT, ""),
    (WRITE_TOTAL, ""),
    *((TRANSITIONS, cause.value) for cause in Cause),
    (REDELIVERIES, ""),
    (DELIVERY_LIMIT_REACHED, ""),
)
"""A counter, and its type or cause where it is apart by one; groups and topics are added up."""

BATCH_FIGURES = tuple(f"{metric.short_name}.{kind}" if kind else metric.short_name for metric, kind in _SERIES)
"""Names of the figures: Kafka's, with the acknowledgement type after a dot, and ours."""


def batch_figures(effects: Sequence[Effect]) -> list[int]:
    """What effects add to the counters, in the order of `BATCH_FIGURES`."""
    counts: Counter[tuple[Metric, str]] = Counter()
    rows = (effect.row for effect in effects if isinstance(effect, Persist))
    for metric, labels, amount in [
        *(step for row in rows for step in row_increments(row)),
        *answer_increments(effects),
    ]:
        counts[metric, labels[-1] if metric in (RECORD_ACKNOWLEDGEMENTS, TRANSITIONS) else ""] += amount
    return [counts[series] for series in _SERIES]
