"""The CPU that a processor and its members use while nothing happens: without members, and with 10 that wait.

    python -m benchmarks.idle_cost --duration 60

The members are ShareConsumers in processes of their own, which poll a topic without records. With Kafka, the broker's
CPU is not in the figures. Both parts settle first and then take `--duration`, so all figures are there after nearly
three minutes; each is printed when it is measured. A JVM compiles for a minute after its start: with `--host spark`,
`--settle 90` shows what stays.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event, Semaphore

from benchmarks.host import ProcessorHost
from benchmarks.processes import cpu_by_pid_s, die_with_parent, used_s
from benchmarks.report import Figure, print_figures
from benchmarks.site import IDLE_TOPIC, Site, add_arguments, open_site
from sharegroup.client.share_consumer import ShareConsumer

TARGET_PERCENT = {0: 1.5, 10: 4.0}
"""Waiting members → percent of a core, on the embedded log."""
GROUP = "waiting"
_POLL_S = 1.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=60)
    parser.add_argument("--members", type=int, default=10, help="members that wait")
    parser.add_argument("--settle", type=float, default=20, help="seconds after a start that are not measured")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure without members, then with them."""
    site.create_topic(IDLE_TOPIC, 4)
    with ProcessorHost(options.host, site) as host:
        figures = measured(options, host, [])
        context = multiprocessing.get_context("spawn")
        stop, joined = context.Event(), context.Semaphore(0)
        members = [
            context.Process(target=wait_for_records, args=(site.settings.channel_properties, stop, joined), daemon=True)
            for _ in range(options.members)
        ]
        for member in members:
            member.start()
        for _ in members:
            if not joined.acquire(timeout=120):
                raise TimeoutError("The members did not start within 120 s.")
        figures += measured(options, host, members)
        stop.set()
        for member in members:
            member.join(30)
            member.kill()
    return figures


def measured(options: argparse.Namespace, host: ProcessorHost, members: Sequence[BaseProcess]) -> list[Figure]:
    """Percent of a core, of the processor alone and together with the members."""
    time.sleep(options.settle)
    host.check()
    member_pids = [member.pid for member in members if member.pid is not None]
    started_s, processor_before, members_before = time.monotonic(), cpu_by_pid_s(host.pids), cpu_by_pid_s(member_pids)
    time.sleep(options.duration)
    elapsed_s = time.monotonic() - started_s
    processor = 100 * used_s(processor_before, cpu_by_pid_s(host.pids)) / elapsed_s
    together = processor + 100 * used_s(members_before, cpu_by_pid_s(member_pids)) / elapsed_s
    # The targets are those of the embedded log.
    target = TARGET_PERCENT.get(len(members)) if options.log == "local" else None
    name = f"idle_cost.{options.log}.members_{len(members)}"
    figures = [Figure(f"{name}.processor", processor, "%"), Figure(f"{name}.together", together, "%", target)]
    for figure in figures:
        print(f"measured: {figure}", flush=True)
    return figures


def wait_for_records(properties: dict[str, str], stop: Event, joined: Semaphore) -> None:
    """Be a member that polls and gets nothing."""
    die_with_parent()
    with ShareConsumer({**properties, "group.id": GROUP}) as consumer:
        consumer.subscribe([IDLE_TOPIC])
        consumer.poll(timeout=_POLL_S)
        joined.release()
        while not stop.is_set():
            consumer.poll(timeout=_POLL_S)


if __name__ == "__main__":
    main()
