"""Each benchmark for some seconds: it runs, and tells all its figures. The times are not checked."""

from collections.abc import Callable, Sequence

import pytest

from benchmarks import (
    capacity,
    commit_cost,
    dashboard_cost,
    first_response,
    flood,
    hour,
    idle_cost,
    large_group,
    large_state,
    live_audit,
    recovery,
    round_trip,
    standby,
    store_commits,
    two_domains,
    upkeep_cost,
    verify_history,
    wake_up,
)

pytestmark = pytest.mark.slow


def figures(
    main: Callable[[Sequence[str]], None], arguments: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, float]:
    """Name → value of the figures that a benchmark prints."""
    main([*arguments.split(), "--any-load"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("machine: ") for line in lines)
    assert any(line.startswith("disk: ") for line in lines)
    named = [line.split() for line in lines if line.partition(" ")[0].count(".") >= 2]
    return {words[0]: float(words[1]) for words in named}


@pytest.mark.long("a benchmark of several seconds")
@pytest.mark.parametrize("load", ["idle", "busy"])
def test_round_trip(load: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(round_trip.main, f"--load {load} --duration 3 --warm-up 1", capsys)
    statistics = ("p50", "p99", "max")
    names = [f"round_trip.local.{load}.{part}{name}" for part in ("", "durable.") for name in statistics]
    assert list(results) == names
    assert all(value > 0 for value in results.values())


@pytest.mark.long("a benchmark of several seconds")
def test_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(capacity.main, "--rate 20 50 --groups 4 --members 20 --duration 1 --warm-up 0.2", capsys)
    assert results["capacity.local.50.completed"] > 0
    assert results["capacity.local.50.offered"] > 0
    assert "capacity.local.sustained" in results


def test_wake_up(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(wake_up.main, "--rounds 2 --groups 3 --partitions 4", capsys)
    assert results["wake_up.local.max"] >= results["wake_up.local.p50"] > 0


@pytest.mark.long("a benchmark of several seconds")
@pytest.mark.parametrize("many", commit_cost.SHAPES)
def test_commit_cost(many: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(commit_cost.main, f"--samples 5 --many {many} --count 8 --few 2", capsys)
    p50 = {name: results[f"commit_cost.local.{many}.{name}.p50"] for name in ("few_2", "many_8")}
    assert results[f"commit_cost.local.{many}.ratio"] == pytest.approx(p50["many_8"] / p50["few_2"], rel=0.2)


@pytest.mark.long("a benchmark of several seconds")
def test_recovery(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(recovery.main, "--commits 5 --rounds 1 --quiet 1", capsys)
    names = ("commits_5.at_once", "commits_5", "commits_1", "ratio")
    assert list(results) == [f"recovery.local.{name}" for name in names]
    assert all(value > 0 for value in results.values())


@pytest.mark.long("a benchmark of several seconds")
def test_large_group(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--members 4 --partitions 2 --record-locks 100 200 --duration 0.5 --warm-up 0.2"
    results = figures(large_group.main, arguments, capsys)
    assert results["large_group.local.ideal"] == 800
    for locks in (100, 200):
        rate = results[f"large_group.local.locks_{locks}.rate"]
        # No more than all members can work; what a member began before the measured time counts when it ends in it.
        assert 0 < rate < 2 * 800
        assert results[f"large_group.local.locks_{locks}.of_ideal"] == pytest.approx(rate / 800, rel=0.05)


@pytest.mark.long("a benchmark of several seconds")
def test_large_state(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(large_state.main, "--duration 2 --warm-up 0.2 --groups 3 --partitions 10 --rate 50", capsys)
    assert results["large_state.local.silence"] > 0
    assert results["large_state.local.recovery"] > 0
    assert results["large_state.local.memory"] > 0


@pytest.mark.long("a benchmark of several seconds")
def test_idle_cost(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(idle_cost.main, "--duration 1 --members 2 --settle 0.2", capsys)
    assert results["idle_cost.local.members_2.together"] >= results["idle_cost.local.members_2.processor"]
    assert "idle_cost.local.members_0.together" in results


@pytest.mark.long("a benchmark of several seconds")
def test_hour(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(hour.main, "--duration 1 --warm-up 0.2 --rate 50 --groups 2", capsys)
    assert results["hour.local.commit_ratio"] > 0
    assert results["hour.local.table_log_files"] > 0


@pytest.mark.long("a benchmark of several seconds")
def test_flood(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(flood.main, "--duration 1 --warm-up 0.2 --rate 40 --groups 3 --pairs 1", capsys)
    assert results["flood.local.p99_ratio"] > 0


def test_first_response(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(first_response.main, "--samples 1", capsys)
    assert results["first_response.local.plain.max"] >= results["first_response.local.plain.p50"] > 0


@pytest.mark.long("a benchmark of several seconds")
def test_standby(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(standby.main, "--rounds 1", capsys)
    assert list(results) == [f"standby.local.plain.{way}.{name}" for way in standby.WAYS for name in ("p50", "max")]
    assert all(value > 0 for value in results.values())


def test_upkeep_cost(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(upkeep_cost.main, "--rate 600 --duration 1", capsys)
    assert results["upkeep_cost.table.cpu"] > 0
    assert results["upkeep_cost.table.log_files"] > 0


@pytest.mark.long("an S3 server")
def test_store_commits(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(store_commits.main, "--delay-ms 5 --commits 3", capsys)
    assert results["store_commits.s3.requests"] == 4
    trips_ms = results["store_commits.s3.round_trips"]
    assert trips_ms > 4 * 5
    ratio = results["store_commits.s3.commit.p50"] / trips_ms
    assert results["store_commits.s3.ratio"] == pytest.approx(ratio, rel=0.2)


@pytest.mark.long("a benchmark of several seconds")
def test_dashboard_cost(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--rate 20 --groups 2 --members 4 --duration 2 --warm-up 0.2 --rounds 1"
    results = figures(dashboard_cost.main, arguments, capsys)
    parts = ("without.processor", "with.processor", "with.dashboard")
    assert all(results[f"dashboard_cost.local.{part}"] > 0 for part in parts)


@pytest.mark.long("a benchmark of several seconds")
def test_verify_history(capsys: pytest.CaptureFixture[str]) -> None:
    """Without Spark, whose session would be that of other tests."""
    results = figures(verify_history.main, "--millions 0.01 0.02 --share-partitions 4 1 --by table --rounds 2", capsys)
    each = ["rate", "duration", "cpu", "memory"]
    assert [name.rpartition(".")[2] for name in results] == [*each * 4, *["time_ratio", "memory_ratio"] * 2]
    assert all(value > 0 for value in results.values())


@pytest.mark.long("a streaming query of a benchmark")
@pytest.mark.spark
def test_live_audit(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(live_audit.main, "--rate 50 --groups 2 --members 10 --duration 2 --warm-up 0.2", capsys)
    assert results["live_audit.local.50.findings"] == 0
    assert results["live_audit.local.50.recovery"] >= 0
    assert results["live_audit.local.50.lag_max"] >= results["live_audit.local.50.lag_p50"] >= 0
    assert results["live_audit.local.50.cpu"] > 0


@pytest.mark.long("a benchmark of several seconds")
def test_two_domains(capsys: pytest.CaptureFixture[str]) -> None:
    results = figures(two_domains.main, "--duration 1 --warm-up 0.2 --rate 40 --groups 4", capsys)
    for variant in ("one_processor", "two_processors"):
        name = f"two_domains.local.{variant}"
        assert results[f"{name}.completed"] > 0
        assert results[f"{name}.max"] == max(results[f"{name}.{domain}.max"] for domain in two_domains.DOMAINS)
        assert results[f"{name}.processor_cpu"] > 0
