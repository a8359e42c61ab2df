"""Request → response: the latency of requests that come at random times, from when each is due to its response.

    python -m benchmarks.round_trip --log local --load idle

Idle is one request every 2 s; busy is 500 requests/s of 20 groups. Half of the requests have a durable effect. Batch
boundaries and upkeep are included.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost, step_text
from benchmarks.loader import Loaders, populations
from benchmarks.report import Figure, latency_figures, print_figures
from benchmarks.site import IDLE_TOPIC, RECORDS_TOPIC, Site, add_arguments, open_site
from benchmarks.window import Window, merged

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Load:
    """A load of the benchmark.

    Attributes:
        groups: groups that they are divided among.
        loaders: processes that make them.
        workers: members of a group that fetch and acknowledge.
        idlers: members of a group that fetch nothing.
    """

    rate_per_s: float
    groups: int
    loaders: int
    workers: int
    idlers: int


LOADS: Mapping[str, Load] = {"idle": Load(0.5, 1, 1, 2, 1), "busy": Load(500, 20, 2, 6, 4)}
TARGETS_MS: Mapping[tuple[str, str], tuple[float, float]] = {
    ("local", "idle"): (20, 70),
    ("local", "busy"): (30, 110),
    ("kafka", "idle"): (25, 85),
    ("kafka", "busy"): (40, 125),
}
"""(Log, load) → p50 and p99."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=600, has_warm_up=True)
    parser.add_argument("--load", choices=tuple(LOADS), default="idle", help="how many requests come")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure one log with one load."""
    load = LOADS[options.load]
    fill(site, load.rate_per_s * (options.duration + options.warm_up), load.groups)
    template = Population(group_ids=(), workers_per_group=load.workers, idlers_per_group=load.idlers)
    with (
        ProcessorHost(options.host, site) as host,
        Loaders(site.channel, populations(load.groups, load.loaders, template)) as loaders,
    ):
        windows = list(
            loaders.run(
                rate_per_s=load.rate_per_s, duration_s=options.duration, seed=options.seed, warm_up_s=options.warm_up
            )
        )
        print(step_text(host.figures()))
        print(f"state table: {dict(site.table_operations())}")
    return figures(f"round_trip.{options.log}.{options.load}", merged(windows), TARGETS_MS[options.log, options.load])


def fill(site: Site, request_count: float, group_count: int) -> None:
    """Create the topics, with twice as many records as the fetches of one group can take."""
    records = 2 * 5 * request_count / 4 / group_count
    site.create_topic(RECORDS_TOPIC, PARTITIONS, int(records / PARTITIONS) + 1_000)
    site.create_topic(IDLE_TOPIC, 1)


def figures(name: str, window: Window, targets_ms: tuple[float, float]) -> list[Figure]:
    """The figures of all windows together."""
    print_load(window)
    return latency_figures(name, window.latencies_ms, *targets_ms) + latency_figures(
        f"{name}.durable", window.durable_latencies_ms
    )


def print_load(window: Window) -> None:
    """Print how much of the load was completed, and how."""
    print(
        f"requests: {window.offered:,} offered, {window.completed:,} completed, {sum(window.durable):,} with a durable "
        f"effect, {window.lost} lost, errors {dict(window.errors) or 'none'}"
    )


if __name__ == "__main__":
    main()
