"""An hour of 1,000 requests/s with upkeep: do commits become slower, do files and logs grow without a bound?

    python -m benchmarks.hour --duration 3600

A line each 10 s. The time of a commit in the last sixth of the run is compared with that in the first; so are memory
and the files of the state table. A job of Spark does not tell its commit times: there, the latencies of requests with a
durable effect are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost, step_text
from benchmarks.large_state import print_window, table_text
from benchmarks.loader import Loaders, populations
from benchmarks.report import Figure, latency_figures, percentile, print_figures
from benchmarks.round_trip import fill, print_load
from benchmarks.site import Site, add_arguments, open_site, total_bytes
from benchmarks.window import Window, merged

TARGET_RATIO = 1.1
WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes on the disk and in memory at the end of a window.

    Attributes:
        table_files: data files of the state table, those of earlier versions included.
        memory_bytes: memory of processor and upkeep.
    """

    table_files: int
    table_bytes: int
    table_log_files: int
    log_bytes: int
    memory_bytes: int

    @classmethod
    def of(cls, site: Site, host: ProcessorHost) -> Sizes:
        """The sizes now."""
        files = site.table_files()
        return cls(len(files), total_bytes(files), len(site.table_log_files()), site.log_bytes(), host.pss_bytes())

    def __str__(self) -> str:
        return (
            f"state table {self.table_files:,} files {self.table_bytes / 1e6:.1f} MB, its log "
            f"{self.table_log_files:,} files; embedded log {self.log_bytes / 1e6:.1f} MB; memory "
            f"{self.memory_bytes / 1e6:.0f} MB"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=3_600, has_warm_up=True)
    parser.add_argument("--rate", type=float, default=1_000, help="requests/s")
    parser.add_argument("--groups", type=int, default=20, help="groups")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Offer the load, and compare the first sixth with the last."""
    fill(site, options.rate * (options.duration + options.warm_up), options.groups)
    template = Population(group_ids=(), workers_per_group=10, idlers_per_group=5)
    windows: list[Window] = []
    sizes: list[Sizes] = []
    with (
        ProcessorHost(options.host, site) as host,
        Loaders(site.channel, populations(options.groups, 2, template)) as loaders,
    ):
        started_s = time.monotonic()
        for window in loaders.run(
            rate_per_s=options.rate,
            duration_s=options.duration,
            seed=options.seed,
            warm_up_s=options.warm_up,
            window_s=WINDOW_S,
        ):
            host.check()
            windows.append(window)
            sizes.append(Sizes.of(site, host))
            print_window(window, host, WINDOW_S)
            print(f"  {sizes[-1]}", flush=True)
        ended_s = time.monotonic()
        sixth_s = options.duration / 6
        first_ms = host.commit_times_ms(ended_s - options.duration, ended_s - options.duration + sixth_s)
        last_ms = host.commit_times_ms(ended_s - sixth_s, ended_s)
        print(f"{ended_s - started_s:.0f} s: {step_text(host.figures())}")
        print(table_text(site))
    print_load(merged(windows))
    name = f"hour.{options.log}"
    sixth = max(1, len(windows) // 6)
    if not first_ms or not last_ms:
        completed = [window for window in windows if window.durable_latencies_ms]
        first_ms = merged(completed[:sixth]).durable_latencies_ms
        last_ms = merged(completed[-sixth:]).durable_latencies_ms
    first, last = percentile(first_ms, 50), percentile(last_ms, 50)
    return [
        *latency_figures(name, merged(windows).latencies_ms),
        Figure(f"{name}.commit_first", first, "ms"),
        Figure(f"{name}.commit_last", last, "ms"),
        Figure(f"{name}.commit_ratio", last / first, "x", TARGET_RATIO),
        Figure(f"{name}.memory_ratio", last_over_first([size.memory_bytes for size in sizes]), "x", TARGET_RATIO),
        Figure(f"{name}.table_files_ratio", last_over_first([size.table_files for size in sizes]), "x", TARGET_RATIO),
        Figure(
            f"{name}.table_log_files_ratio",
            last_over_first([size.table_log_files for size in sizes]),
            "x",
            TARGET_RATIO,
        ),
        Figure(f"{name}.table_log_files", max(size.table_log_files for size in sizes), "files"),
        Figure(f"{name}.table_files", max(size.table_files for size in sizes), "files"),
        Figure(f"{name}.table_files_growth", growth([size.table_files for size in sizes]), "x"),
        Figure(f"{name}.log_bytes_growth", growth([size.log_bytes for size in sizes]), "x"),
    ]


def last_over_first(values: list[int]) -> float:
    """The highest value in the last sixth over the highest in the first: what an hour has grown to since it began."""
    sixth = max(1, len(values) // 6)
    return max(values[-sixth:]) / max(values[:sixth])


def growth(values: list[int]) -> float:
    """The highest value in the last sixth over the highest in the half before it: 1 is bounded."""
    sixth = max(1, len(values) // 6)
    before = max(values[len(values) // 3 : -sixth] or values[:1])
    return max(values[-sixth:]) / before if before else 1.0


if __name__ == "__main__":
    main()
