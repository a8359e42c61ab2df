"""The cost of the dashboard: the CPU of a processor with and without it, and its own, under the load of `capacity`.

    python -m benchmarks.dashboard_cost --rate 100 --duration 60

Rounds without the dashboard and with it take turns under the same load, so that what grows with the state table is in
both. A program asks the dashboard as its page does: all groups and one of them, every two seconds. The latencies of the
requests show what it takes from the processor on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost
from benchmarks.loader import Loaders, populations
from benchmarks.processes import cpu_by_pid_s, used_s
from benchmarks.report import Figure, percentile, print_figures
from benchmarks.round_trip import fill
from benchmarks.site import ROOT, Site, add_arguments, open_site
from benchmarks.window import merged

_ASK_INTERVAL_S = 2.0


@dataclass
class Measured:
    """Rounds of one kind together.

    Attributes:
        processor_s: CPU time of the processor.
        dashboard_s: CPU time of the dashboard.
        wall_s: duration of the rounds.
        latencies_ms: of all requests.
    """

    processor_s: float = 0.0
    dashboard_s: float = 0.0
    wall_s: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=60, has_warm_up=True)
    parser.add_argument("--rate", type=float, default=100, help="requests/s")
    parser.add_argument("--groups", type=int, default=20, help="groups")
    parser.add_argument("--members", type=int, default=100, help="members of all groups together")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each kind, which share the duration")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure rounds without and with the dashboard in turns."""
    round_s = options.duration / options.rounds
    fill(site, options.rate * 2 * options.rounds * (round_s + options.warm_up), options.groups)
    each = options.members // options.groups
    workers = max(1, round(0.6 * each))
    template = Population(group_ids=(), workers_per_group=workers, idlers_per_group=each - workers)
    results = {False: Measured(), True: Measured()}
    with (
        ProcessorHost(options.host, site) as host,
        Loaders(site.channel, populations(options.groups, 1, template)) as loaders,
    ):
        for number in range(2 * options.rounds):
            has_dashboard = number % 2 == 1
            with ExitStack() as stack:
                pids = [stack.enter_context(_dashboard(site)).pid] if has_dashboard else []
                _round(options, round_s, number, loaders, host.pids, pids, results[has_dashboard])
    return list(_figures(f"dashboard_cost.{options.log}", results))


def _round(
    options: argparse.Namespace,
    round_s: float,
    seed: int,
    loaders: Loaders,
    processor_pids: list[int],
    dashboard_pids: list[int],
    result: Measured,
) -> None:
    started_s, processor, dashboard = time.monotonic(), cpu_by_pid_s(processor_pids), cpu_by_pid_s(dashboard_pids)
    windows = list(
        loaders.run(rate_per_s=options.rate, duration_s=round_s, seed=seed, warm_up_s=options.warm_up, window_s=round_s)
    )
    result.processor_s += used_s(processor, cpu_by_pid_s(processor_pids))
    result.dashboard_s += used_s(dashboard, cpu_by_pid_s(dashboard_pids))
    result.wall_s += time.monotonic() - started_s
    result.latencies_ms += merged(windows).latencies_ms


def _figures(name: str, results: dict[bool, Measured]) -> Iterator[Figure]:
    for has_dashboard, result in results.items():
        part = f"{name}.{'with' if has_dashboard else 'without'}"
        yield Figure(f"{part}.processor", 100 * result.processor_s / result.wall_s, "% of a core")
        yield Figure(f"{part}.responses_p50", percentile(result.latencies_ms, 50), "ms")
        yield Figure(f"{part}.responses_p99", percentile(result.latencies_ms, 99), "ms")
    with_it = results[True]
    yield Figure(f"{name}.with.dashboard", 100 * with_it.dashboard_s / with_it.wall_s, "% of a core")


@contextmanager
def _dashboard(site: Site) -> Iterator[subprocess.Popen[str]]:
    """The dashboard until the context ends, with a browser that polls it."""
    program = "from sharegroup.programs.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "dashboard", "--port", "0", "--output", "json", *site.flags],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    over = threading.Event()
    try:
        assert process.stdout is not None
        document = ""
        while not document.rstrip().endswith("}"):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("The dashboard ended at its start.")
            document += line
        poller = threading.Thread(target=_poll, args=(json.loads(document)["url"], over), daemon=True)
        poller.start()
        yield process
        over.set()
        poller.join()
    finally:
        over.set()
        process.send_signal(signal.SIGTERM)
        process.wait()


def _poll(url: str, over: threading.Event) -> None:
    """Ask as the page does."""
    while not over.wait(_ASK_INTERVAL_S):
        groups = _asked(f"{url}groups")["groups"]
        if groups:
            _asked(f"{url}group?{urllib.parse.urlencode({'id': groups[0]['group_id']})}")


def _asked(url: str) -> dict[str, list[dict[str, str]]]:
    with urllib.request.urlopen(url, timeout=60) as response:
        document: dict[str, list[dict[str, str]]] = json.load(response)
        return document


if __name__ == "__main__":
    main()
