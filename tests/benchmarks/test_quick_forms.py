"""Each benchmark for some seconds: it runs, and tells all its figures. The times are not looked at."""

import pytest

from benchmarks import capacity, commit_cost, hour, idle_cost, large_state, round_trip, wake_up

pytestmark = pytest.mark.slow


def figures(main, arguments, capsys):
    """Name → value of the figures that a benchmark prints."""
    main([*arguments.split(), "--any-load"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("machine: ") for line in lines)
    assert any(line.startswith("disk: ") for line in lines)
    named = [line.split() for line in lines if line.partition(" ")[0].count(".") >= 2]
    return {words[0]: float(words[1]) for words in named}


@pytest.mark.parametrize("load", ["idle", "busy"])
def test_round_trip(load, capsys):
    found = figures(round_trip.main, f"--load {load} --duration 3 --warm-up 1", capsys)
    statistics = ("p50", "p99", "max")
    names = [f"round_trip.local.{load}.{part}{name}" for part in ("", "durable.") for name in statistics]
    assert list(found) == names
    assert all(value > 0 for value in found.values())


def test_capacity(capsys):
    found = figures(capacity.main, "--rate 20 50 --groups 4 --members 20 --duration 2 --warm-up 0.5", capsys)
    assert found["capacity.local.50.answered"] == pytest.approx(found["capacity.local.50.offered"], rel=0.5)
    assert "capacity.local.sustained" in found


def test_wake_up(capsys):
    found = figures(wake_up.main, "--rounds 2 --groups 3 --partitions 4", capsys)
    assert found["wake_up.local.max"] >= found["wake_up.local.p50"] > 0


def test_commit_cost(capsys):
    found = figures(commit_cost.main, "--samples 10 --partitions 20", capsys)
    assert found["commit_cost.local.ratio"] > 0
    assert found["commit_cost.local.partitions_20.p50"] > 0


def test_large_state(capsys):
    found = figures(large_state.main, "--duration 2 --warm-up 1 --groups 3 --partitions 10 --rate 50", capsys)
    assert found["large_state.local.silence"] > 0
    assert found["large_state.local.recovery"] > 0
    assert found["large_state.local.memory"] > 0


def test_idle_cost(capsys):
    found = figures(idle_cost.main, "--duration 2 --members 2 --settle 1", capsys)
    assert found["idle_cost.local.members_2.together"] >= found["idle_cost.local.members_2.processor"]
    assert "idle_cost.local.members_0.together" in found


def test_hour(capsys):
    found = figures(hour.main, "--duration 3 --warm-up 0.5 --rate 50 --groups 2", capsys)
    assert found["hour.local.commit_ratio"] > 0
    assert found["hour.local.table_log_files"] > 0
