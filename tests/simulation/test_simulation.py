"""A hundred simulated schedules, and known bugs that the simulator has to find."""

from __future__ import annotations

import pytest

from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.schedule import LEAST_FAULTS, LEAST_MESSAGES, LEAST_TAKEOVERS, run_schedule
from tests.simulation.sink_mutants import SINK_MUTANTS

_SEEDS = 100
_SEEDS_AT_ONCE = 10
_MOST_SEEDS = 1_000


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, _SEEDS, _SEEDS_AT_ONCE))
def test_schedules_are_well(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + _SEEDS_AT_ONCE):
        result = run_schedule(seed)
        assert not result.findings, f"see it: python -m tests.simulation --seed {seed} --trace"
        assert result.message_count >= LEAST_MESSAGES
        assert result.takeover_count >= LEAST_TAKEOVERS
        assert result.fault_count >= LEAST_FAULTS


def test_a_seed_always_gives_the_same_schedule() -> None:
    assert run_schedule(1) == run_schedule(1)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [*MUTANTS, *SINK_MUTANTS], ids=lambda mutant: mutant.name)
def test_a_known_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(mutant.is_detected_by(seed) for seed in range(mutant.first_seed, _MOST_SEEDS, mutant.step)), (
        f"{mutant.name} is not detected"
    )
