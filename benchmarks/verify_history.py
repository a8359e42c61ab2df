"""Verification of a long history, by Spark and without a JVM: transitions/s, CPU, and memory.

    python -m benchmarks.verify_history --millions 1 10 --share-partitions 1000 1

The history is generated and not measured (`benchmarks/history.py`). CPU is that of all processes of the run, for each
transition. Memory is the proportional set size (PSS) of all of them, which is sampled; the peak of their sum counts, or
that of the resident memory of the first one, which needs no samples, if it is higher. It is to grow with the heap that
Spark is given and not with the history, so a warm-up lets the JVM use its heap first. Time a transition and memory of
the longest history are compared with those of the shortest: medians of the rounds, where a round is under 30 s. 100
million transitions need half a GB on the disk, and 4 GB while they are verified.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, Self, TypeVar
from unittest.mock import patch

from benchmarks.history import History, write_history
from benchmarks.report import Figure, check_load, print_figures, print_head, print_round, print_rounds, round_numbers
from sharegroup.audit.verification.findings import Verification
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.config.broker import BrokerConfig
from sharegroup.spark.session import build_session
from sharegroup.spark.verify_by_spark import ROWS_PER_TASK, verify_by_spark

TARGET_RATIO = 1.1
_SAMPLE_S = 0.2
_MEGABYTE = 1024 * 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WAYS = ("spark", "table")

P = ParamSpec("P")
R = TypeVar("R")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[1.0], help="transitions, in millions")
    parser.add_argument("--share-partitions", type=int, nargs="+", default=[1_000, 1], help="number of them")
    parser.add_argument("--by", choices=_WAYS, nargs="+", default=_WAYS, help="with Spark, or without a JVM")
    parser.add_argument("--cores", type=int, default=2, help="cores of Spark")
    parser.add_argument("--heap", default="512m", help="heap of the driver's JVM")
    parser.add_argument("--rows-per-task", type=int, default=ROWS_PER_TASK, help="rows that a task checks")
    parser.add_argument("--rounds", type=int, default=5, help="verifications of a history; one of 30 s is not repeated")
    parser.add_argument("--warm-up", type=int, default=4, help="verifications of the shortest by Spark, uncounted")
    parser.add_argument("--folder", type=Path, help="folder for a new folder with all data (default: the system's)")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")
    options = parser.parse_args(arguments)
    check_load(options.any_load)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=options.folder) as folder:
        print_head(options, Path(folder))
        with patch.dict(os.environ, SPARK_LOCAL_DIRS=folder, TMPDIR=folder):
            costs = list(_costs(options, folder))
            for rounds in costs:
                print_rounds([cost.figures for cost in rounds])
            print_figures(_ratios([_median(rounds) for rounds in costs]))


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of one verification.

    Attributes:
        name: the way, and the share-partitions of the history.
        transition_count: length of the history.
        duration_s: of the verification.
        cpu_s: of all processes.
        memory_bytes: peak of all processes.
    """

    name: str
    transition_count: int
    duration_s: float
    cpu_s: float
    memory_bytes: int

    @property
    def figures(self) -> list[Figure]:
        """The cost as figures."""
        way, _, share_partitions = self.name.partition(".")
        count, name = self.transition_count, f"verify.{way}.{self.transition_count}.{share_partitions}"
        return [
            Figure(f"{name}.rate", count / self.duration_s, "transitions/s"),
            Figure(f"{name}.duration", self.duration_s, "s"),
            Figure(f"{name}.cpu", 1_000_000 * self.cpu_s / count, "us/transition"),
            Figure(f"{name}.memory", self.memory_bytes / _MEGABYTE, "MB"),
        ]


def _median(rounds: Sequence[_Cost]) -> _Cost:
    return replace(
        rounds[0],
        duration_s=statistics.median(cost.duration_s for cost in rounds),
        cpu_s=statistics.median(cost.cpu_s for cost in rounds),
        memory_bytes=round(statistics.median(cost.memory_bytes for cost in rounds)),
    )


def _ratios(costs: Sequence[_Cost]) -> list[Figure]:
    """Compare the longest history with the shortest, way by way."""
    figures: list[Figure] = []
    for name in dict.fromkeys(cost.name for cost in costs):
        alike = sorted((cost for cost in costs if cost.name == name), key=lambda cost: cost.transition_count)
        few, many = alike[0], alike[-1]
        if few is not many:
            time_ratio = (many.duration_s / many.transition_count) / (few.duration_s / few.transition_count)
            memory_ratio = many.memory_bytes / few.memory_bytes
            figures += [
                Figure(f"verify.{name}.time_ratio", time_ratio, "x", TARGET_RATIO),
                Figure(f"verify.{name}.memory_ratio", memory_ratio, "x", TARGET_RATIO),
            ]
    return figures


def _costs(options: argparse.Namespace, folder: str) -> Iterator[list[_Cost]]:
    """Verify each history in each way; yield the costs of its rounds."""
    histories: dict[str, History] = {}
    for millions in sorted(options.millions):
        for count in options.share_partitions:
            path = str(Path(folder, f"state-{millions}-{count}"))
            histories[path] = _in_new_process(write_history, path, int(millions * 1_000_000), count)
    if "table" in options.by:
        for path, history in histories.items():
            yield [
                _in_new_process(_measured, "table", path, history, _without_spark)
                for _ in round_numbers(options.rounds)
            ]
    if "spark" in options.by:
        settings = {"spark.master": f"local[{options.cores}]", "spark.driver.memory": options.heap}
        spark = build_session("benchmark", settings)
        by_spark = partial(verify_by_spark, spark, broker=BrokerConfig(), rows_per_task=options.rows_per_task)
        for _ in range(options.warm_up):
            for path in list(histories)[: len(options.share_partitions)]:
                by_spark(path)
        for path, history in histories.items():
            yield [_measured("spark", path, history, by_spark) for _ in round_numbers(options.rounds)]
        spark.stop()


def _in_new_process(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call a function whose memory does not count for what follows."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments, keywords)


def _without_spark(path: str) -> Verification:
    return verify_table(path, BrokerConfig())


def _measured(way: str, path: str, history: History, verify: Callable[[str], Verification]) -> _Cost:
    cpu_s = _cpu_s()
    with _Memory() as memory:
        started_s = time.perf_counter()
        verification = verify(path)
        duration_s = time.perf_counter() - started_s
    cpu_s = _cpu_s() - cpu_s
    assert verification.finding_count == 0, verification.findings[0]
    assert verification.row_count == history.row_count
    assert verification.transition_count == history.transition_count
    share_partitions = Path(path).name.rpartition("-")[2]
    cost = _Cost(f"{way}.{share_partitions}", history.transition_count, duration_s, cpu_s, memory.peak_bytes)
    print_round(cost.name, cost.figures)
    return cost


def _cpu_s() -> float:
    """Return the CPU of this process, all its descendants, and those of them that have ended."""
    return sum(map(_ticks, _descendants(os.getpid()))) / _TICKS_PER_S


def _ticks(process_id: int) -> int:
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    # utime, stime, cutime, cstime
    return sum(map(int, fields[11:15]))


class _Memory:
    """Samples the memory of this process and all its descendants.

    A short peak falls between two samples, so the highest resident memory of this process counts, too.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        own_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.peak_bytes = max(self.peak_bytes, own_bytes)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(_SAMPLE_S)
            self.peak_bytes = max(self.peak_bytes, sum(map(_pss_bytes, _descendants(os.getpid()))))


def _descendants(process_id: int) -> Iterator[int]:
    yield process_id
    for task in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _descendants(int(child))


def _pss_bytes(process_id: int) -> int:
    try:
        lines = Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()
    except OSError:
        # It has ended.
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
