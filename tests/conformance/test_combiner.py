"""Kafka's own PersisterStateBatchCombiner, recorded, against the combiner: every line equal."""

from __future__ import annotations

from typing import Any

from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap
from sharegroup.core.state_batches import StateBatch, combined
from tests.conformance.quadruples import Quadruple, quadruples, state_batches


def as_runs(batches: list[StateBatch]) -> list[Quadruple]:
    """The batches as a share-partition holds them: neighbours that are equal and touch are one run."""
    runs = RunMap(Run(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches)
    return [[run.first_offset, run.last_offset, int(run.state), run.delivery_count] for run in runs]


def test_combination(combination: dict[str, Any]) -> None:
    existing, new = state_batches(combination["existing"]), state_batches(combination["new"])
    result = combined(existing, new, combination["start_offset"])
    assert quadruples(result) == combination["expect"]
    assert as_runs(result) == combination.get("expect_merged", combination["expect"])
