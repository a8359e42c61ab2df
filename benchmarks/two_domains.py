"""Two domains side by side: the same load for one processor of all groups, and for two with half of the groups each.

    python -m benchmarks.two_domains --log kafka --rate 500 --groups 20

With two domains, each has a log (or topics), a state table and a processor of its own, and serves its groups only. Both
variants get the same requests at the same time from two loaders. The figures are those of both domains together, and of
each by itself. There is no target: on a machine with two cores, two processors share what one had.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost, step_text
from benchmarks.loader import Loaders, populations
from benchmarks.processes import cpu_by_pid_s, used_s
from benchmarks.report import Figure, latency_figures, print_figures
from benchmarks.round_trip import PARTITIONS, print_load
from benchmarks.site import Site, add_arguments, open_site
from benchmarks.window import Window, merged
from sharegroup.config.loader import load_settings

DOMAINS = ("alice", "bob")
ONE = "both"
"""The domain of the variant with one processor."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=120, has_warm_up=True)
    parser.add_argument("--rate", type=float, default=500, help="requests/s of both domains together")
    parser.add_argument("--groups", type=int, default=20, help="groups of both domains together")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure one processor, then two."""
    figures: list[Figure] = []
    for variant, domains in (("one_processor", (ONE, ONE)), ("two_processors", DOMAINS)):
        print(f"{variant}:", flush=True)
        figures += _measured(options, site, f"two_domains.{options.log}.{variant}", domains)
    return figures


def _measured(options: argparse.Namespace, site: Site, name: str, domains: tuple[str, str]) -> list[Figure]:
    """Measure the loads of both domains with a processor for each different name among `domains`."""
    sites = {domain: _site_of(site, domain) for domain in dict.fromkeys(domains)}
    for domain, own in sites.items():
        _fill(own, domain, options)
    with ExitStack() as stack:
        hosts = [stack.enter_context(ProcessorHost(options.host, own)) for own in sites.values()]
        loaders = [
            stack.enter_context(Loaders(sites[served].channel, _population(options, served, domain)))
            for served, domain in zip(domains, DOMAINS, strict=True)
        ]
        before = _cpu_s(hosts)
        with ThreadPoolExecutor(len(loaders)) as pool:
            windows = list(pool.map(lambda each: _offered(options, *each), enumerate(loaders)))
        used = used_s(before, _cpu_s(hosts))
        for host in hosts:
            host.check()
            print(step_text(host.figures()))
    for window in windows:
        print_load(window)
    together = merged(windows)
    seconds = options.duration + options.warm_up
    return [
        *latency_figures(name, together.latencies_ms),
        *(
            figure
            for domain, window in zip(DOMAINS, windows, strict=True)
            for figure in latency_figures(f"{name}.{domain}", window.latencies_ms)
        ),
        Figure(f"{name}.completed", together.completed / options.duration, "requests/s", is_lower_better=False),
        Figure(f"{name}.processor_cpu", used / seconds, "cores"),
    ]


def _cpu_s(hosts: Sequence[ProcessorHost]) -> dict[int, float]:
    return cpu_by_pid_s([pid for host in hosts for pid in host.pids])


def _site_of(site: Site, domain: str) -> Site:
    """Return the site of one domain: on a broker its topics, else its log, are its own."""
    folder = site.folder / domain
    folder.mkdir()
    values: dict[str, object] = {
        "state.table.path": folder / "state",
        "checkpoint.path": folder / "checkpoint",
        "request.topic.name": f"{domain}.requests",
        "response.topic.name": f"{domain}.responses",
        "metrics.domain": domain,
    }
    if not site.settings.kafka.bootstrap_servers:
        values["log.path"] = folder / "log.db"
    if domain != ONE:
        # The group of the example's configuration file has no members here.
        values["processor.group.pattern"] = f"orders|{domain}-.*"
    overrides = (*site.overrides, *(f"{key}={value}" for key, value in values.items()))
    return replace(site, folder=folder, overrides=overrides, settings=load_settings(site.config, {}, overrides))


def _topics(domain: str) -> tuple[str, str]:
    return f"{domain}.records", f"{domain}.idle"


def _fill(site: Site, domain: str, options: argparse.Namespace) -> None:
    """Create the topics, with twice as many records as the fetches of one group can take."""
    requests = options.rate * (options.duration + options.warm_up)
    records, idle = _topics(domain)
    site.create_topic(records, PARTITIONS, int(2 * 5 * requests / 4 / options.groups / PARTITIONS) + 1_000)
    site.create_topic(idle, 1)


def _population(options: argparse.Namespace, served: str, domain: str) -> list[Population]:
    """Return the members of one domain's groups, for one loader."""
    records, idle = _topics(served)
    template = Population(group_ids=(), workers_per_group=6, idlers_per_group=4, records_topic=records, idle_topic=idle)
    return populations(max(options.groups // 2, 1), 1, template, domain)


def _offered(options: argparse.Namespace, number: int, loaders: Loaders) -> Window:
    """Offer the load of one domain."""
    return merged(
        loaders.run(
            rate_per_s=options.rate / 2,
            duration_s=options.duration,
            seed=2 * options.seed + number,
            warm_up_s=options.warm_up,
        )
    )


if __name__ == "__main__":
    main()
