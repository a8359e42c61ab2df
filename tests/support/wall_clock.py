"""The wall clock of this process, off by as much as a test likes."""

from __future__ import annotations

import time

import pytest


def shift_wall_clock(patch: pytest.MonkeyPatch, by_ms: int) -> None:
    """Let Python's wall clock be ahead of the machine's; negative is behind."""
    real_time_ns = time.time_ns

    def time_ns() -> int:
        return real_time_ns() + by_ms * 1_000_000

    patch.setattr(time, "time_ns", time_ns)
    patch.setattr(time, "time", lambda: time_ns() / 1e9)
