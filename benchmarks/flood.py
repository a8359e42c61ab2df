"""Measure the cost of one group that floods the processor for all others: their p99 while it sends ten times its share.

    python -m benchmarks.flood --log local --rate 500 --groups 20

All groups send the same at first; then one sends ten times as much, and the others what they sent before. The two are
compared in pairs, one after the other, and the figure is the median of the pairs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost, step_text
from benchmarks.loader import Loaders, populations
from benchmarks.report import Figure, latency_figures, percentile, print_figures
from benchmarks.round_trip import fill, print_load
from benchmarks.site import Site, add_arguments, open_site
from benchmarks.window import Window, merged

TARGET_RATIO = 2
FLOODING = "flood"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=60)
    parser.add_argument("--rate", type=float, default=500, help="requests/s of all groups together, before the flood")
    parser.add_argument("--groups", type=int, default=20, help="groups, the one that floods among them")
    parser.add_argument("--times", type=float, default=10, help="times its share that the one group sends")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before each measurement")
    parser.add_argument("--pairs", type=int, default=5, help="measurements without and with the flood")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure without and with the flood, in turn."""
    share_per_s = options.rate / options.groups
    seconds = options.pairs * 2 * (options.duration + options.warm_up)
    fill(site, options.times * share_per_s * seconds, group_count=1)
    template = Population(group_ids=(), workers_per_group=10, idlers_per_group=5)
    calm: list[Window] = []
    flooded: list[Window] = []
    with (
        ProcessorHost(options.host, site) as host,
        Loaders(site.channel, populations(options.groups - 1, 1, template)) as others,
        Loaders(site.channel, populations(1, 1, template, FLOODING)) as one,
    ):
        for pair in range(options.pairs):
            for times, windows in ((1, calm), (options.times, flooded)):
                host.check()
                windows.append(_offer(options, others, one, times * share_per_s, 2 * pair + (times > 1)))
                p99_ms = percentile(windows[-1].latencies_ms, 99)
                print(f"pair {pair}, {times:g} x: the others' p99 {p99_ms:.1f} ms", flush=True)
        print(step_text(host.figures()))
    for windows in (calm, flooded):
        print_load(merged(windows))
    name = f"flood.{options.log}"
    ratios = [
        percentile(after.latencies_ms, 99) / percentile(before.latencies_ms, 99)
        for before, after in zip(calm, flooded, strict=True)
    ]
    return [
        *latency_figures(f"{name}.calm", merged(calm).latencies_ms),
        *latency_figures(f"{name}.flooded", merged(flooded).latencies_ms),
        Figure(f"{name}.p99_ratio", statistics.median(ratios), "x", TARGET_RATIO),
    ]


def _offer(options: argparse.Namespace, others: Loaders, one: Loaders, one_per_s: float, seed: int) -> Window:
    """Offer both loads at once; return the windows of the others."""
    share_per_s = options.rate / options.groups

    def offer(loaders: Loaders, rate_per_s: float) -> Window:
        windows = loaders.run(
            rate_per_s=rate_per_s,
            duration_s=options.duration,
            seed=options.seed + seed,
            warm_up_s=options.warm_up,
            window_s=options.duration,
        )
        return merged(windows)

    with ThreadPoolExecutor(2) as threads:
        beside = threads.submit(offer, one, one_per_s)
        completed = offer(others, share_per_s * (options.groups - 1))
        beside.result()
    return completed


if __name__ == "__main__":
    main()
