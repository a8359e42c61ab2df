"""A known bug that is put in on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sharegroup.errors import StateTableError
from tests.simulation.schedule import run_schedule


@dataclass(frozen=True)
class Mutant:
    """A bug.

    Attributes:
        name: what goes wrong.
        apply: puts it in.
        first_seed: the first schedule to try; those before it are known not to show the bug.
        step: from one seed to the next.
    """

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    first_seed: int = 0
    step: int = 1

    def is_detected_by(self, seed: int) -> bool:
        """Return True if the schedule of a seed fails, be it by an error of a part or a torn state table."""
        try:
            return bool(run_schedule(seed).findings)
        except (AssertionError, StateTableError, ValueError):
            return True
