"""Requests/s that one processor sustains without a growing backlog: 100 groups, 1,000 members in two processes.

    python -m benchmarks.capacity --rate 2000 3000 4000 --duration 60

Half of the requests have a durable effect. With several rates each is offered for the duration, one after the other.
A rate is sustained if nearly all requests of its time are completed in it, the backlog of its last tenth is that of its
first tenth or small, and p99 is under 0.5 s.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost, step_text
from benchmarks.loader import Loaders, populations
from benchmarks.report import Figure, percentile, print_figures
from benchmarks.round_trip import fill, print_load
from benchmarks.site import Site, add_arguments, open_site
from benchmarks.window import Window, merged

TARGET_PER_S = 3_000
P99_TARGET_MS = 500


@dataclass(frozen=True, slots=True)
class Sustained:
    """The outcome of one rate.

    Attributes:
        offered_per_s: requests that fell due in a second.
        completed_per_s: responses seen in a second, before the end.
        first_backlog: mean backlog in the first tenth of the time.
        last_backlog: mean backlog in the last tenth.
    """

    offered_per_s: float
    completed_per_s: float
    first_backlog: float
    last_backlog: float
    p50_ms: float
    p99_ms: float

    @property
    def is_sustained(self) -> bool:
        """True if the backlog does not grow and responses come in time."""
        # A tenth of a second's requests is what lies on the way to and from the processor.
        bound = 1.5 * self.first_backlog + 0.1 * self.offered_per_s
        is_level = self.last_backlog <= bound and self.completed_per_s >= 0.98 * self.offered_per_s
        return is_level and self.p99_ms < P99_TARGET_MS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=600, has_warm_up=True)
    parser.add_argument("--rate", type=float, nargs="+", default=[TARGET_PER_S], help="requests/s, ascending")
    parser.add_argument("--groups", type=int, default=100, help="groups")
    parser.add_argument("--members", type=int, default=1_000, help="members of all groups together")
    parser.add_argument("--loaders", type=int, default=2, help="processes that simulate the members")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Offer one rate after the other."""
    fill(site, sum(options.rate) * (options.duration + options.warm_up), options.groups)
    each = options.members // options.groups
    workers = max(1, round(0.6 * each))
    template = Population(group_ids=(), workers_per_group=workers, idlers_per_group=each - workers)
    name = f"capacity.{options.log}"
    figures: list[Figure] = []
    sustained_per_s = 0.0
    with (
        ProcessorHost(options.host, site) as host,
        Loaders(site.channel, populations(options.groups, options.loaders, template)) as loaders,
    ):
        for rate in options.rate:
            host.check()
            windows: list[Window] = []
            for window in loaders.run(
                rate_per_s=rate,
                duration_s=options.duration,
                seed=options.seed,
                warm_up_s=options.warm_up,
                window_s=options.duration / 20,
            ):
                windows.append(window)
                print(
                    f"{rate:g}/s window {window.index}: offered {window.offered}, completed {window.completed}, "
                    f"backlog {window.backlog}, p99 {percentile(window.latencies_ms, 99):.1f} ms",
                    flush=True,
                )
            outcome = outcome_of(windows, options.duration)
            print_load(merged(windows))
            print(step_text(host.figures()))
            if outcome.is_sustained:
                sustained_per_s = max(sustained_per_s, rate)
            figures += figures_of(f"{name}.{rate:g}", outcome)
    return [*figures, Figure(f"{name}.sustained", sustained_per_s, "requests/s", TARGET_PER_S, is_lower_better=False)]


def outcome_of(windows: Sequence[Window], duration_s: float) -> Sustained:
    """Come from windows, the last of which has the responses after the end, to an outcome."""
    in_time = windows[:-1]
    tenth = max(1, len(in_time) // 10)
    latencies_ms = merged(windows).latencies_ms
    return Sustained(
        offered_per_s=sum(window.offered for window in in_time) / duration_s,
        completed_per_s=sum(window.completed for window in in_time) / duration_s,
        first_backlog=statistics.fmean(window.backlog for window in in_time[:tenth]),
        last_backlog=statistics.fmean(window.backlog for window in in_time[-tenth:]),
        p50_ms=percentile(latencies_ms, 50),
        p99_ms=percentile(latencies_ms, 99),
    )


def figures_of(name: str, outcome: Sustained) -> list[Figure]:
    """The figures of one rate."""
    return [
        Figure(f"{name}.offered", outcome.offered_per_s, "requests/s"),
        Figure(f"{name}.completed", outcome.completed_per_s, "requests/s"),
        Figure(f"{name}.backlog_start", outcome.first_backlog, "requests"),
        Figure(f"{name}.backlog_end", outcome.last_backlog, "requests"),
        Figure(f"{name}.p50", outcome.p50_ms, "ms"),
        Figure(f"{name}.p99", outcome.p99_ms, "ms", P99_TARGET_MS),
    ]


if __name__ == "__main__":
    main()
