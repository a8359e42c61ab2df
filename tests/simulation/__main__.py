"""Run schedules: `python -m tests.simulation --seeds 0:1000 --jobs 2`, or one with `--seed 42 --trace`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.schedule import Result, run_schedule

_SEEDS_AT_ONCE = 10
_SHOWN_FINDINGS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run schedules, and say of each that fails what is wrong and how to see it.

    Returns:
        Exit code: 1 if a schedule failed.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run simulated schedules.")
    parser.add_argument("--seeds", type=_seeds, default=range(1_000), help="first seed, and the one after the last")
    parser.add_argument("--seed", type=int, help="only this one, in this process")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        return _show(Console(), run_schedule(arguments.seed, arguments.trace))
    return _run_all(arguments.seeds, arguments.jobs)


def _run_all(seeds: range, jobs: int) -> int:
    console = Console()
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started_s = time.perf_counter()
    failed_count = message_count = 0
    faults: Counter[str] = Counter()
    with (
        Progress(*columns, console=console, refresh_per_second=1) as progress,
        ProcessPoolExecutor(jobs, initializer=_use_one_core) as pool,
    ):
        task = progress.add_task("", total=len(seeds))
        for completed in as_completed([pool.submit(_run, portion) for portion in _portions(seeds)]):
            for result in completed.result():
                progress.advance(task)
                message_count += result.message_count
                faults += result.faults
                failed_count += _show(console, result) if result.findings else 0
    minutes = (time.perf_counter() - started_s) / 60
    console.print(
        f"{len(seeds)} schedules with {message_count} messages, {failed_count} failed; "
        f"{len(seeds) / minutes:.0f} a minute"
    )
    console.print("Faults: " + ", ".join(f"{count} {name}" for name, count in faults.most_common()), highlight=False)
    return int(failed_count > 0)


def _portions(seeds: range) -> Iterator[range]:
    return (seeds[start : start + _SEEDS_AT_ONCE] for start in range(0, len(seeds), _SEEDS_AT_ONCE))


def _use_one_core() -> None:
    """Compute in the process's own thread: each core has a process."""
    pa.set_cpu_count(1)


def _run(seeds: range) -> list[Result]:
    logging.disable(logging.CRITICAL)
    return [_result(seed) for seed in seeds]


def _result(seed: int) -> Result:
    try:
        return run_schedule(seed)
    except Exception as error:  # A schedule that ends in an exception has failed, and the others go on.
        return Result(seed, [f"{type(error).__name__}: {error}"])


def _show(console: Console, result: Result) -> int:
    if not result.findings:
        console.print(
            f"Seed {result.seed}: {result.message_count} messages, {result.takeover_count} takeovers, "
            f"{result.fault_count} faults; all is well."
        )
        return 0
    console.print(f"Seed {result.seed} failed with {len(result.findings)} findings:", style="bold red")
    for finding in result.findings[:_SHOWN_FINDINGS]:
        console.print(f"  {finding}", markup=False, highlight=False)
    console.print(f"  See it: python -m tests.simulation --seed {result.seed} --trace", highlight=False)
    return 1


def _seeds(text: str) -> range:
    first, separator, end = text.partition(":")
    return range(int(first), int(end)) if separator else range(int(first))


if __name__ == "__main__":
    sys.exit(main())
