"""How far the live auditor falls behind a processor under load, and what it costs: the load of `capacity` beside it.

    python -m benchmarks.live_audit --rate 1000 --duration 120

The auditor is its job, with a JVM of its own. Its lag is the age of the oldest commit whose findings are not written,
read twice a second. The latencies of the requests show what it takes from the processor on this machine. With `--late
60` it starts when requests have come for a minute: `recovery` is the time from its first batch until its lag is below
the target for the first time, and the lag counts from then on.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.assembly import Population
from benchmarks.host import ProcessorHost
from benchmarks.loader import Loaders, populations
from benchmarks.processes import cpu_by_pid_s, session_pids, used_s
from benchmarks.report import Figure, percentile, print_figures
from benchmarks.round_trip import fill
from benchmarks.site import ROOT, Site, add_arguments, open_site
from benchmarks.window import Window, merged
from sharegroup.metrics.live_audit_metrics import COMMIT_ID, FINDINGS
from sharegroup.protocol.rows import RecordType
from sharegroup.state.reader import StateTableReader

LAG_TARGET_S = 10.0
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
_PORT = 9_471
_POLL_INTERVAL_S = 0.5
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 60


class Sample(NamedTuple):
    """The auditor at one time.

    Attributes:
        time_ms: the time; epoch ms.
        commit_id: the last commit whose findings are written.
    """

    time_ms: int
    commit_id: int
    finding_count: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=120, has_warm_up=True)
    parser.add_argument("--rate", type=float, default=1_000, help="requests/s")
    parser.add_argument("--groups", type=int, default=100, help="groups")
    parser.add_argument("--members", type=int, default=1_000, help="members of all groups together")
    parser.add_argument("--late", type=float, default=0, help="seconds of load before the auditor starts")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Offer the rate beside the auditor."""
    fill(site, options.rate * (options.duration + options.warm_up), options.groups)
    each = options.members // options.groups
    workers = max(1, round(0.6 * each))
    template = Population(group_ids=(), workers_per_group=workers, idlers_per_group=each - workers)
    with (
        ProcessorHost(options.host, site),
        Loaders(site.channel, populations(options.groups, 2, template)) as loaders,
        ThreadPoolExecutor(1) as threads,
    ):
        load: Callable[[], Future[list[Window]]] = partial(threads.submit, _offer, loaders, options)
        offered = load() if options.late else None
        if offered is not None:
            wait([offered], options.late)
        with _auditor(site) as auditor:
            _await_first(auditor)
            began_s = time.monotonic()
            before = cpu_by_pid_s(session_pids(auditor.pid))
            samples: list[Sample] = []
            offered = offered or load()
            while not offered.done():
                samples += filter(None, [_sample()])
                wait([offered], _POLL_INTERVAL_S)
            cpu_s = used_s(before, cpu_by_pid_s(session_pids(auditor.pid)))
            wall_s = time.monotonic() - began_s
    windows = offered.result()
    lags_s = _lags_s(site, samples)
    recovered = next((n for n, lag_s in enumerate(lags_s) if lag_s < LAG_TARGET_S), len(lags_s) - 1)
    latencies_ms = merged(windows).latencies_ms
    name = f"live_audit.{options.log}.{options.rate:g}"
    return [
        Figure(f"{name}.recovery", (samples[recovered].time_ms - samples[0].time_ms) / 1_000, "s"),
        Figure(f"{name}.lag_p50", percentile(lags_s[recovered:], 50), "s"),
        Figure(f"{name}.lag_p99", percentile(lags_s[recovered:], 99), "s", LAG_TARGET_S),
        Figure(f"{name}.lag_max", max(lags_s[recovered:]), "s"),
        Figure(f"{name}.findings", max(sample.finding_count for sample in samples), "findings", 0),
        Figure(f"{name}.commits", samples[-1].commit_id - samples[0].commit_id, "commits"),
        Figure(f"{name}.cpu", 100 * cpu_s / wall_s, "% of a core"),
        Figure(f"{name}.responses_p50", percentile(latencies_ms, 50), "ms"),
        Figure(f"{name}.responses_p99", percentile(latencies_ms, 99), "ms"),
    ]


def _offer(loaders: Loaders, options: argparse.Namespace) -> list[Window]:
    """Offer the load."""
    return list(
        loaders.run(
            rate_per_s=options.rate,
            duration_s=options.duration,
            seed=options.seed,
            warm_up_s=options.warm_up,
            window_s=options.duration / 20,
        )
    )


@contextmanager
def _auditor(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """The auditor's job until the context ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    flags = [*site.flags, "--output", str(site.folder / "audit"), "--metrics-port", str(_PORT)]
    with (site.folder / "auditor.log").open("wb") as output:
        process = subprocess.Popen(
            ["spark-submit", "--driver-java-options", _JAVA_OPTIONS, str(ROOT / "jobs" / "live_audit.py"), *flags],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for pid in session_pids(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


def _await_first(auditor: subprocess.Popen[bytes]) -> None:
    """Wait for the first batch of the auditor."""
    give_up_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < give_up_s and auditor.poll() is None:
        sample = _sample()
        if sample is not None and sample.commit_id > 0:
            return
        time.sleep(_POLL_INTERVAL_S)
    raise TimeoutError(f"The auditor wrote nothing within {_START_TIMEOUT_S} s.")


def _sample() -> Sample | None:
    """The auditor's metrics; None when it does not respond."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/metrics", timeout=5) as response:
            text = response.read().decode()
    except OSError:
        return None
    now_ms = time.time_ns() // 1_000_000
    values = re.findall(r"^(\w+)(?:{[^}]*})? ([0-9.e+]+)$", text, re.MULTILINE)
    commit_id = next((int(float(value)) for name, value in values if name == COMMIT_ID), 0)
    return Sample(now_ms, commit_id, sum(int(float(value)) for name, value in values if name == FINDINGS))


def _lags_s(site: Site, samples: Sequence[Sample]) -> list[float]:
    """The age of the oldest commit that was not checked, at each sample."""
    markers = StateTableReader(str(site.table)).rows([RecordType.COMMIT_MARKER])
    times_ms = {marker.commit_id: marker.time_ms for marker in markers}
    return [max(sample.time_ms - times_ms.get(sample.commit_id + 1, sample.time_ms), 0) / 1_000 for sample in samples]


if __name__ == "__main__":
    main()
