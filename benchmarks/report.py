"""The report of a benchmark: settings, machine, figures, and one line for each measured target."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HIGHEST_LOAD = 0.3
"""Load average of the last minute above which nothing is measured."""
FIGURES_VARIABLE = "BENCHMARK_FIGURES"
"""Environment variable with the file that figures are appended to, as JSON lines; `python -m benchmarks` sets it."""
LONGEST_REPEATED_S = 30.0
"""Duration of a round above which it is not repeated."""
_SYNCS = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure, with its target.

    Attributes:
        name: benchmark, log, part and statistic, with dots between them.
        target: the bound; None when there is none.
        is_lower_better: the target is the highest value that meets it, else the lowest.
        peer: what the peer reached in the same run, in the same unit; None when there is no peer.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    is_lower_better: bool = True
    peer: float | None = None

    @property
    def is_met(self) -> bool:
        """True if there is no target, or the value meets it."""
        if self.target is None:
            return True
        return self.value <= self.target if self.is_lower_better else self.value >= self.target

    def __str__(self) -> str:
        text = f"{self.name} {number_text(self.value)} {self.unit}"
        if self.peer is not None:
            text += f" peer {number_text(self.peer)} {self.unit}"
        if self.target is None:
            return text
        return f"{text} target {self.target:g} {'met' if self.is_met else 'short'}"


def number_text(value: float) -> str:
    """The value with three significant digits, or more from 100 on: a ratio of 1.14 is not one of 1.1."""
    size = abs(value)
    if size < 1:
        return f"{value:.3g}"
    return f"{value:.{0 if size >= 1_000 else 1 if size >= 10 else 2}f}"


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile by linear interpolation; not a number when there are no values."""
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def check_load(allows_any: bool, load: float | None = None) -> None:
    """Refuse to measure on a machine that is busy with something else.

    Args:
        allows_any: measure all the same.
        load: the load average; None reads the machine's.

    Raises:
        SystemExit: the load average is too high.
    """
    load = os.getloadavg()[0] if load is None else load
    if load > HIGHEST_LOAD and not allows_any:
        raise SystemExit(
            f"The load average is {load:.2f}; figures count below {HIGHEST_LOAD}. Wait, or give --any-load."
        )


def print_head(options: argparse.Namespace, folder: Path) -> None:
    """Print the settings and the machine, fsync times of the folder's disk included."""
    print(f"settings: {' '.join(f'{key}={value}' for key, value in sorted(vars(options).items()))}")
    print(f"machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, Python {platform.python_version()}")
    syncs_ms = sync_times_ms(folder)
    print(
        f"disk: create, write and fsync with the folder's p50 {percentile(syncs_ms, 50):.2f} ms, "
        f"p99 {percentile(syncs_ms, 99):.2f} ms, in {folder}",
        flush=True,
    )


def sync_times_ms(folder: Path, count: int = _SYNCS) -> list[float]:
    """How long it takes to make a small file durable: create, write, fsync, fsync of the folder."""
    times_ms: list[float] = []
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number in range(count):
            path = folder / f"sync-{number}"
            started_s = time.perf_counter()
            with path.open("wb") as file:
                file.write(b"x" * 4_096)
                file.flush()
                os.fsync(file.fileno())
            os.fsync(directory)
            times_ms.append(1_000 * (time.perf_counter() - started_s))
            path.unlink()
    finally:
        os.close(directory)
    return times_ms


def round_numbers(count: int, monotonic_s: Callable[[], float] = time.monotonic) -> Iterator[int]:
    """Yield the number of each round, from 0; a round of more than 30 s is the last one.

    Args:
        count: how many rounds, if they are short.
        monotonic_s: a clock for durations, in seconds.
    """
    for number in range(count):
        started_s = monotonic_s()
        yield number
        if monotonic_s() - started_s > LONGEST_REPEATED_S:
            return


def print_round(name: int | str, figures: Sequence[Figure]) -> None:
    """Print the figures of a round in one line, as it ends."""
    print(f"round {name}: {', '.join(map(str, figures))}", flush=True)


def print_rounds(rounds: Sequence[Sequence[Figure]]) -> None:
    """Print one line for the median of each figure; each round is recorded by itself.

    Args:
        rounds: the figures of each round, which have the same names in the same order.
    """
    medians = [
        dataclasses.replace(
            of_rounds[0],
            value=statistics.median(figure.value for figure in of_rounds),
            peer=None
            if of_rounds[0].peer is None
            else statistics.median(figure.peer for figure in of_rounds if figure.peer is not None),
        )
        for of_rounds in zip(*rounds, strict=True)
    ]
    _print(medians)
    _record([figure for of_round in rounds for figure in of_round])


def print_figures(figures: Sequence[Figure]) -> None:
    """Print one line for each figure, and record it."""
    _print(figures)
    _record(figures)


def _record(figures: Sequence[Figure]) -> None:
    if path := os.environ.get(FIGURES_VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(dataclasses.asdict(figure)) + "\n" for figure in figures)


def _print(figures: Sequence[Figure]) -> None:
    for figure in figures:
        print(figure)
    print(f"{sum(figure.is_met for figure in figures)} of {len(figures)} figures are met or have no target", flush=True)


def latency_figures(
    name: str, latencies_ms: Sequence[float], p50_target: float | None = None, p99_target: float | None = None
) -> list[Figure]:
    """p50, p99 and maximum of latencies in ms."""
    return [
        Figure(f"{name}.p50", percentile(latencies_ms, 50), "ms", p50_target),
        Figure(f"{name}.p99", percentile(latencies_ms, 99), "ms", p99_target),
        Figure(f"{name}.max", max(latencies_ms, default=float("nan")), "ms"),
    ]
