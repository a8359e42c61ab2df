"""The cost of a commit that touches one share-partition, with many share-partitions, members or groups against few.

    python -m benchmarks.commit_cost --many partitions --count 10000

Two processors on one log take turns; one has many of them, the other one few. A member accepts one record at a time and
waits for the response; only its share-partition has records, all others are state that no commit needs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack

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
SHAPES = ("partitions", "members", "groups")
_SESSION_TIMEOUT_MS = 3_600_000
_JOINING_AT_ONCE = 1_000
# Members that only fill the state send no heartbeats while others are measured.
SETTINGS = {
    "group.share.max.size": 1_000,
    "group.share.max.session.timeout.ms": _SESSION_TIMEOUT_MS,
    "group.share.session.timeout.ms": _SESSION_TIMEOUT_MS,
    "group.share.assignors": "all",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--many", choices=SHAPES, default="partitions", help="what there are many of")
    parser.add_argument("--count", type=int, default=10_000, help="how many; members: 1,000 at most")
    parser.add_argument("--few", type=int, default=10, help="how many the other processor has")
    parser.add_argument("--samples", type=int, default=1_000, help="acknowledgements of each processor")
    options = parser.parse_args(arguments)
    with open_site(options, SETTINGS) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure both processors in turns."""
    counts = {"few": options.few, "many": options.count}
    latencies_ms: dict[str, list[float]] = {name: [] for name in counts}
    with ExitStack() as stack:
        members: dict[str, tuple[Channel, SimulatedMember]] = {}
        hosts: dict[str, ProcessorHost] = {}
        for name, count in counts.items():
            part = site.part(name)
            part.create_topic(name, count if options.many == "partitions" else 1)
            hosts[name] = stack.enter_context(ProcessorHost(options.host, part))
            channel = Channel(part.channel)
            stack.callback(channel.close)
            members[name] = channel, assembled(channel, name, options.many, count, options.samples)
        for number in range(options.samples + WARM_UP):
            for name, (channel, member) in members.items():
                latency_ms = acknowledge_one(channel, member)
                if number >= WARM_UP:
                    latencies_ms[name].append(latency_ms)
        for name, host in hosts.items():
            print(f"{name}: {step_text(host.figures())}")
    p50 = {name: percentile(values, 50) for name, values in latencies_ms.items()}
    name = f"commit_cost.{options.log}.{options.many}"
    return [
        *latency_figures(f"{name}.few_{options.few}", latencies_ms["few"]),
        *latency_figures(f"{name}.many_{options.count}", latencies_ms["many"]),
        Figure(f"{name}.ratio", p50["many"] / p50["few"], "x", TARGET_RATIO),
    ]


def assembled(channel: Channel, topic: str, many: str, count: int, samples: int) -> SimulatedMember:
    """Bring so many partitions, members or groups into the state; return the member that works.

    Args:
        many: what there are many of.
        samples: records that the member will accept.
    """
    channel.log.append(topic, 0, [NewRecord(None, b"x")] * (samples + WARM_UP + RECORDS_PER_FETCH))
    group_ids = [f"group-{number}" for number in range(count if many == "groups" else 1)]
    members = [
        SimulatedMember(group_id, channel.new_member_id(), topic)
        for group_id in group_ids
        for _ in range(count if many == "members" else 1)
    ]
    started_s = time.monotonic()
    for first in range(0, len(members), _JOINING_AT_ONCE):
        start_at_earliest(channel, group_ids[first : first + _JOINING_AT_ONCE])
        join(channel, members[first : first + _JOINING_AT_ONCE])
    open_sessions(channel, members[:1], RECORDS_PER_FETCH)
    print(f"{count} {many}: assembled in {time.monotonic() - started_s:.1f} s", flush=True)
    return members[0]


def acknowledge_one(channel: Channel, member: SimulatedMember) -> float:
    """Milliseconds from the acknowledgement of one record to its response; fetches records before, if none is held.

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
    response = channel.call_all([new])[new.correlation_id]
    if errors := member.receive(response.envelope).error_codes:
        raise RuntimeError(f"The acknowledgement of group {member.group_id} failed: errors {errors}.")
    return 1_000 * (response.seen_s - sent_s)


if __name__ == "__main__":
    main()
