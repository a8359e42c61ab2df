"""100,000 share-partitions: the longest silence under load, the recovery, and the memory.

    python -m benchmarks.large_state --duration 600

100 groups with 1,000 share-partitions each get requests at random times while the table's upkeep runs. Then the
processor is killed and started again. A silence is a time in which requests wait and nobody gets a response; recovery
is from the new process's first step, after its imports, to the first response.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.assembly import Population, numbered
from benchmarks.channel import Channel
from benchmarks.host import ProcessorHost, commit_text, step_text
from benchmarks.loader import Loaders, populations
from benchmarks.member import SimulatedMember
from benchmarks.processes import pss_bytes
from benchmarks.report import Figure, latency_figures, print_figures
from benchmarks.round_trip import print_load
from benchmarks.site import IDLE_TOPIC, RECORDS_TOPIC, Site, add_arguments, open_site
from benchmarks.window import Window, longest_silence_s, merged

SILENCE_TARGET_S = 0.3
RECOVERY_TARGET_S = 10.0
MEMORY_TARGET_GB = 2.0
_RESPONSE_TIMEOUT_S = 300
_SAMPLE_INTERVAL_S = 2.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=600, has_warm_up=True)
    parser.add_argument("--groups", type=int, default=100, help="groups, all on one topic")
    parser.add_argument("--partitions", type=int, default=1_000, help="partitions of the topic")
    parser.add_argument("--rate", type=float, default=200, help="requests/s")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure under load, then kill and measure the recovery."""
    # Twice what the fetches of a group can take.
    records = 2 * 5 * options.rate * (options.duration + options.warm_up) / 4 / options.groups
    site.create_topic(RECORDS_TOPIC, options.partitions, int(records / options.partitions) + 10)
    site.create_topic(IDLE_TOPIC, 1)
    template = Population(group_ids=(), workers_per_group=2, idlers_per_group=0)
    name = f"large_state.{options.log}"
    with ProcessorHost(options.host, site) as host, MemoryWatch(host) as memory:
        began_s = time.monotonic()
        with Loaders(site.channel, populations(options.groups, 1, template)) as loaders:
            print(f"assembled in {time.monotonic() - began_s:.1f} s: {table_text(site)}", flush=True)
            windows: list[Window] = []
            for window in loaders.run(
                rate_per_s=options.rate, duration_s=options.duration, seed=options.seed, warm_up_s=options.warm_up
            ):
                windows.append(window)
                print_window(window, host)
        loaded = merged(windows)
        print_load(loaded)
        print(step_text(host.figures()))
        print(f"after the load: {table_text(site)}", flush=True)
        silence_s = longest_silence_s(loaded.due_s, loaded.seen_s)
        under_load = memory.peak_bytes
        recovery = measured_recovery(host, site)
        print(f"memory after the recovery: {host.pss_bytes() / 1e9:.2f} GB", flush=True)
    return [
        Figure(f"{name}.silence", silence_s, "s", SILENCE_TARGET_S),
        *latency_figures(name, loaded.latencies_ms),
        recovery.figure(name, options.host),
        Figure(f"{name}.memory", under_load / 1e9, "GB", MEMORY_TARGET_GB),
        Figure(f"{name}.memory_recovery", memory.peak_bytes / 1e9, "GB", MEMORY_TARGET_GB),
    ]


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long a recovery took, in seconds.

    Attributes:
        from_launch_s: from the start of the new process to the first response.
        from_first_step_s: from its first step after the imports; None when the host does not tell it.
    """

    from_launch_s: float
    from_first_step_s: float | None

    def figure(self, name: str, host: str) -> Figure:
        """The figure; with Spark the JVM's start is in it, and it has no target."""
        if self.from_first_step_s is None:
            return Figure(f"{name}.recovery_from_launch_{host}", self.from_launch_s, "s")
        return Figure(f"{name}.recovery", self.from_first_step_s, "s", RECOVERY_TARGET_S)


def measured_recovery(host: ProcessorHost, site: Site) -> Recovery:
    """Kill the processor, let a request wait, start the processor again, and wait for the response."""
    channel = Channel(site.channel)
    host.kill()
    member = SimulatedMember("group-0", channel.new_member_id(), RECORDS_TOPIC)
    new = numbered(channel, member.heartbeat())
    channel.send([new])
    launched_s = time.monotonic()
    host.start()
    give_up_s = launched_s + _RESPONSE_TIMEOUT_S
    while time.monotonic() < give_up_s:
        host.check()
        for response in channel.receive(1_000):
            if response.envelope.correlation_id == new.correlation_id:
                channel.close()
                begun_s = next((e.time_s for e in reversed(host.events()) if e.event == "begun"), None)
                print(f"recovery: {response.seen_s - launched_s:.2f} s from the launch", flush=True)
                return Recovery(response.seen_s - launched_s, None if begun_s is None else response.seen_s - begun_s)
    raise TimeoutError(f"The restarted processor did not respond within {_RESPONSE_TIMEOUT_S} s.")


@dataclass
class MemoryWatch:
    """Watches the memory of a processor and its upkeep from a thread.

    Attributes:
        peak_bytes: their highest memory together.
        peak_by_program: module or script → its highest memory.
    """

    host: ProcessorHost
    peak_bytes: int = 0
    peak_by_program: dict[str, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> MemoryWatch:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for program, size in sorted(self.peak_by_program.items()):
            print(f"memory peak: {size / 1e9:.2f} GB {program}")

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_INTERVAL_S):
            sizes = {pid: pss_bytes(pid) for pid in self.host.pids}
            self.peak_bytes = max(self.peak_bytes, sum(sizes.values()))
            for pid, size in sizes.items():
                program = _program(pid)
                self.peak_by_program[program] = max(self.peak_by_program.get(program, 0), size)


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    return " ".join(words)[:80]


def table_text(site: Site) -> str:
    """The state table, for people."""
    return (
        f"state table {len(site.table_files()):,} files, log {len(site.table_log_files()):,} files, "
        f"operations {dict(site.table_operations())}"
    )


def print_window(window: Window, host: ProcessorHost, seconds: float = 10) -> None:
    """Print a line for one window."""
    now_s = time.monotonic()
    print(
        f"window {window.index}: {_latency_text(window.latencies_ms)}, offered {window.offered}, completed "
        f"{window.completed}, backlog {window.backlog}, {commit_text(host.commit_times_ms(now_s - seconds, now_s))}",
        flush=True,
    )


def _latency_text(latencies_ms: Sequence[float]) -> str:
    return ", ".join(
        f"{figure.name.rpartition('.')[2]} {figure.value:.1f} ms" for figure in latency_figures("", latencies_ms)
    )


if __name__ == "__main__":
    main()
