"""The cost of a commit that touches one share-partition, in a group with 1,000 of them and in a group with one.

    python -m benchmarks.commit_cost --samples 1000

The member of each group accepts one record at a time and waits for the answer; the groups take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from benchmarks.assembly import join, numbered, open_sessions, start_at_earliest
from benchmarks.channel import Channel
from benchmarks.host import ProcessorHost, step_text
from benchmarks.member import SimulatedMember
from benchmarks.report import Figure, latency_figures, percentile, print_figures
from benchmarks.site import Site, add_arguments, open_site
from sharegroup.logs.port import NewRecord

TARGET_RATIO = 1.2
RECORDS_PER_FETCH = 100
WARM_UP = 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--samples", type=int, default=1_000, help="acknowledgements of each group")
    parser.add_argument("--partitions", type=int, default=1_000, help="share-partitions of the large group")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure both groups in turns."""
    partition_counts = {"large": options.partitions, "small": 1}
    for name, count in partition_counts.items():
        site.create_topic(name, count)
    latencies_ms: dict[str, list[float]] = {name: [] for name in partition_counts}
    with ProcessorHost(options.host, site) as host:
        channel = Channel(site.channel)
        # Only partition 0 has records: the others are state that no commit needs.
        for name in partition_counts:
            channel.log.append(name, 0, [NewRecord(None, b"x")] * (options.samples + WARM_UP + RECORDS_PER_FETCH))
        members = {name: SimulatedMember(name, channel.new_member_id(), name) for name in partition_counts}
        start_at_earliest(channel, list(members))
        join(channel, list(members.values()))
        open_sessions(channel, list(members.values()), RECORDS_PER_FETCH)
        for number in range(options.samples + WARM_UP):
            for name, member in members.items():
                latency_ms = acknowledge_one(channel, member)
                if number >= WARM_UP:
                    latencies_ms[name].append(latency_ms)
        print(step_text(host.figures()))
        channel.close()
    ratio = percentile(latencies_ms["large"], 50) / percentile(latencies_ms["small"], 50)
    name = f"commit_cost.{options.log}"
    return [
        *latency_figures(f"{name}.partitions_1", latencies_ms["small"]),
        *latency_figures(f"{name}.partitions_{options.partitions}", latencies_ms["large"]),
        Figure(f"{name}.ratio", ratio, "x", TARGET_RATIO),
    ]


def acknowledge_one(channel: Channel, member: SimulatedMember) -> float:
    """Milliseconds from the acknowledgement of one record to its answer; fetches records before, if none is held.

    Raises:
        RuntimeError: there are no records, or the acknowledgement failed.
    """
    # A heartbeat in each turn would be measured, too; one with each fetch keeps the member in its group.
    while not member.held:
        channel.call(numbered(channel, member.heartbeat()))
        errors = member.receive(channel.call(numbered(channel, member.fetch(RECORDS_PER_FETCH, 1_000)))).error_codes
        if errors:
            raise RuntimeError(f"The fetch of group {member.group_id} failed: errors {errors}.")
    new = numbered(channel, member.acknowledge(1))
    sent_s = time.monotonic()
    answer = channel.call_all([new])[new.correlation_id]
    if errors := member.receive(answer.envelope).error_codes:
        raise RuntimeError(f"The acknowledgement of group {member.group_id} failed: errors {errors}.")
    return 1_000 * (answer.seen_s - sent_s)


if __name__ == "__main__":
    main()
