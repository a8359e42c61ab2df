"""The settings of the interpreter hold while a processor of this process runs, and no longer."""

from __future__ import annotations

import gc
import sys

from sharegroup.processor.interpreter import COLLECTOR_THRESHOLDS, SWITCH_INTERVAL_S, InterpreterSettings


def in_force() -> tuple[float, tuple[int, int, int], bool]:
    return sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count() > 0


def test_the_last_processor_that_stops_puts_back_what_was_there_before() -> None:
    before = in_force()
    first, second = InterpreterSettings(), InterpreterSettings()
    first.apply()
    second.apply()
    try:
        first.restore()
        assert in_force() == (SWITCH_INTERVAL_S, COLLECTOR_THRESHOLDS, True)
    finally:
        second.restore()
    assert in_force() == before


def test_a_processor_counts_once_however_often_it_is_stopped() -> None:
    before = in_force()
    first, second = InterpreterSettings(), InterpreterSettings()
    first.restore()
    first.apply()
    second.apply()
    first.restore()
    first.restore()
    assert in_force() == (SWITCH_INTERVAL_S, COLLECTOR_THRESHOLDS, True)
    second.restore()
    assert in_force() == before
