import os
from pathlib import Path

import pytest

from benchmarks.capacity import outcome_of
from benchmarks.host import HostEvent, commit_times_ms
from benchmarks.hour import growth, last_over_first
from benchmarks.processes import cpu_by_pid_s, pss_bytes, session_pids, used_s
from benchmarks.report import Figure, check_load, latency_figures, percentile, round_numbers, sync_times_ms
from benchmarks.window import Window, longest_silence_s, merged


@pytest.mark.parametrize(
    ("figure", "line"),
    [
        (Figure("round_trip.local.idle.p50", 18.24, "ms", 20), "round_trip.local.idle.p50 18.2 ms target 20 met"),
        (Figure("round_trip.local.idle.p99", 71, "ms", 70), "round_trip.local.idle.p99 71.0 ms target 70 short"),
        (
            Figure("capacity.local.sustained", 2500, "requests/s", 3000, False),
            "capacity.local.sustained 2500 requests/s target 3000 short",
        ),
        (Figure("large_state.local.silence", 0.2513, "s", 0.3), "large_state.local.silence 0.251 s target 0.3 met"),
        (
            Figure("queues.together.time", 1.3, "s", 1.2, peer=2.4),
            "queues.together.time 1.30 s peer 2.40 s target 1.2 short",
        ),
        (Figure("round_trip.local.idle.max", 99.96, "ms"), "round_trip.local.idle.max 100.0 ms"),
    ],
)
def test_line_of_a_figure(figure: Figure, line: str) -> None:
    assert str(figure) == line


def test_a_figure_that_is_not_a_number_is_short() -> None:
    assert str(latency_figures("x", [], 20)[0]) == "x.p50 nan ms target 20 short"


def test_percentiles() -> None:
    assert percentile([4.0], 99) == 4.0
    assert percentile(list(range(101)), 99) == 99
    assert percentile(list(range(101)), 50) == 50


def test_a_busy_machine_is_refused_unless_any_load_is_allowed() -> None:
    with pytest.raises(SystemExit, match="--any-load"):
        check_load(False, load=0.31)
    check_load(False, load=0.3)
    check_load(True, load=4)


def test_sync_times_leave_no_files(tmp_path: Path) -> None:
    assert len(sync_times_ms(tmp_path, 3)) == 3
    assert not list(tmp_path.iterdir())


def test_windows_merge() -> None:
    first, second = Window(3, offered=2, backlog=1), Window(3, offered=3, backlog=2, lost=1)
    first.add(10.0, 10.5, True)
    second.add(11.0, 11.25, False)
    first.errors[25] += 1
    second.errors[25] += 1
    together = merged([first, second])
    assert (together.index, together.offered, together.backlog, together.lost) == (3, 5, 3, 1)
    assert together.latencies_ms == [500, 250]
    assert together.durable_latencies_ms == [500]
    assert together.errors == {25: 2}


@pytest.mark.parametrize(
    ("due_s", "seen_s", "silence_s"),
    [
        ([], [], 0),
        ([1], [1.5], 0.5),
        # Nobody waits between the two.
        ([1, 10], [1.5, 10.25], 0.5),
        # One waits all the time, but others get responses.
        ([1, 1.25, 1.5], [2.0, 1.5, 1.75], 0.5),
        # A response in between does not shorten the silence after it.
        ([1, 1], [1.25, 3], 1.75),
    ],
)
def test_longest_silence(due_s: list[float], seen_s: list[float], silence_s: float) -> None:
    assert longest_silence_s(due_s, seen_s) == pytest.approx(silence_s)


def windows(*counts: tuple[int, int, int]) -> list[Window]:
    """Windows with these numbers of offered and completed requests, and this backlog."""
    made = []
    for index, (offered, completed, backlog) in enumerate(counts):
        window = Window(index, offered=offered, backlog=backlog)
        for _ in range(completed):
            window.add(1.0, 1.1, True)
        made.append(window)
    return made


def test_a_rate_is_sustained_while_the_backlog_is_level() -> None:
    outcome = outcome_of(windows((100, 98, 2), (100, 100, 2), (0, 2, 0)), 2)
    assert (outcome.offered_per_s, outcome.completed_per_s) == (100, 99)
    assert outcome.p99_ms == pytest.approx(100)
    assert outcome.is_sustained


def test_a_growing_backlog_is_not_sustained() -> None:
    assert not outcome_of(windows((100, 90, 10), (100, 88, 22), (0, 22, 0)), 2).is_sustained


def test_commit_times_come_from_cumulative_figures() -> None:
    figures = [(0, 0.0), (2, 10.0), (2, 10.0), (4, 40.0)]
    events = [HostEvent("begun", 0, {})]
    events += [HostEvent("figures", 1, {"commits": count, "commit_ms": ms}) for count, ms in figures]
    assert commit_times_ms(events) == [5, 15]


def test_a_long_round_is_not_repeated() -> None:
    times_s = iter([0.0, 29.0, 29.0, 60.0])
    assert list(round_numbers(5, lambda: next(times_s))) == [0, 1]
    assert list(round_numbers(5, lambda: 0.0)) == [0, 1, 2, 3, 4]


def test_growth() -> None:
    assert growth([1, 2, 10, 10, 10, 10]) == 1
    assert growth([5, 10, 20, 30, 40, 60]) == 1.5
    assert growth([0, 0]) == 1
    assert last_over_first([10, 40, 40, 40, 40, 15]) == 1.5
    assert last_over_first([10]) == 1


def test_figures_of_processes() -> None:
    own = os.getpid()
    assert own in session_pids(os.getsid(own))
    assert cpu_by_pid_s([own])[own] > 0
    assert used_s({1: 5.0, 2: 3.0}, {1: 6.0, 3: 2.0}) == 3.0
    assert pss_bytes(own) > 1_000_000
    assert pss_bytes(2**22 + 1) == 0
