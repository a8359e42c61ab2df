"""Verification of a long history, by Spark and without a JVM: transitions/s, CPU, and memory.

    python -m benchmarks.verify_history --millions 1 10 --share-partitions 1000 1

The history is generated and not measured (`benchmarks/history.py`). CPU is that of all processes of the run, for each
transition. Memory is the proportional set size (PSS) of all of them, which is sampled; the peak of their sum counts. It
is to grow with the heap that Spark is given and not with the history. 100 million transitions need some GB on the disk,
and as much again while they are verified.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self
from unittest.mock import patch

from benchmarks.history import History, write_history
from benchmarks.report import Figure, check_load, print_figures, print_head
from sharegroup.audit.verification.findings import Verification
from sharegroup.audit.verification.verify_table import verify_table
from sharegroup.config.broker import BrokerConfig
from sharegroup.spark.session import build_session
from sharegroup.spark.verify_by_spark import ROWS_PER_TASK, verify_by_spark

_SAMPLE_S = 0.2
_MEGABYTE = 1024 * 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WAYS = ("spark", "table")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[1.0], help="transitions, in millions")
    parser.add_argument("--share-partitions", type=int, nargs="+", default=[1_000, 1], help="number of them")
    parser.add_argument("--by", choices=_WAYS, nargs="+", default=_WAYS, help="with Spark, or without a JVM")
    parser.add_argument("--cores", type=int, default=2, help="cores of Spark")
    parser.add_argument("--heap", default="1g", help="heap of the driver's JVM")
    parser.add_argument("--rows-per-task", type=int, default=ROWS_PER_TASK, help="rows that a task checks")
    parser.add_argument("--folder", type=Path, help="folder for a new folder with all data (default: the system's)")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")
    options = parser.parse_args(arguments)
    check_load(options.any_load)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=options.folder) as folder:
        print_head(options, Path(folder))
        with patch.dict(os.environ, SPARK_LOCAL_DIRS=folder, TMPDIR=folder):
            print_figures(_figures(options, folder))


def _figures(options: argparse.Namespace, folder: str) -> list[Figure]:
    histories: dict[str, History] = {}
    for millions in options.millions:
        for count in options.share_partitions:
            path = str(Path(folder, f"state-{millions}-{count}"))
            histories[path] = write_history(path, int(millions * 1_000_000), count)
    figures: list[Figure] = []
    if "table" in options.by:
        for path, history in histories.items():
            figures += _in_new_process(path, history)
    if "spark" in options.by:
        settings = {"spark.master": f"local[{options.cores}]", "spark.driver.memory": options.heap}
        spark = build_session("benchmark", settings)
        for path, history in histories.items():

            def by_spark(path: str) -> Verification:
                return verify_by_spark(spark, path, BrokerConfig(), rows_per_task=options.rows_per_task)

            figures += _measured("spark", path, history, by_spark)
        spark.stop()
    return figures


def _in_new_process(path: str, history: History) -> list[Figure]:
    """Measure without what generated the history."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, ("table", path, history, _without_spark))


def _without_spark(path: str) -> Verification:
    return verify_table(path, BrokerConfig())


def _measured(way: str, path: str, history: History, verify: Callable[[str], Verification]) -> list[Figure]:
    cpu_s = _cpu_s()
    with _Memory() as memory:
        started_s = time.perf_counter()
        verification = verify(path)
        duration_s = time.perf_counter() - started_s
    cpu_s = _cpu_s() - cpu_s
    assert verification.finding_count == 0, verification.findings[0]
    assert verification.row_count == history.row_count
    assert verification.transition_count == history.transition_count
    count = history.transition_count
    name = f"verify.{way}.{count}.{Path(path).name.rpartition('-')[2]}"
    figures = [
        Figure(f"{name}.rate", count / duration_s, "transitions/s"),
        Figure(f"{name}.duration", duration_s, "s"),
        Figure(f"{name}.cpu", 1_000_000 * cpu_s / count, "us/transition"),
        Figure(f"{name}.memory", memory.peak_bytes / _MEGABYTE, "MB"),
    ]
    print(*figures, sep="\n", flush=True)
    return figures


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
    """Samples the memory of this process and all its descendants."""

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
