"""A group of many members, each of which works for some milliseconds on each record, against the ideal.

    python -m benchmarks.large_group --log kafka --record-locks 2000 10000 --peer

The members are simulated by two processes, which send one request for each fetch: it accepts the records of the last
one. While a member works, its process does other members' work. The ideal is that all members work all the time. The
peer is as many of confluent-kafka's ShareConsumers as threads of two processes, on a broker of their own with Kafka's
default of 2,000 locks; where they cannot all join, it is reported as unmeasured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from uuid import uuid4

from benchmarks.assembly import join, numbered
from benchmarks.channel import Channel, ChannelSettings, NewRequest
from benchmarks.host import ProcessorHost, step_text
from benchmarks.large_group_peer import peer_rate
from benchmarks.member import SimulatedMember
from benchmarks.processes import die_with_parent
from benchmarks.report import Figure, print_figures
from benchmarks.site import Site, add_arguments, open_site
from sharegroup.client.admin import AdminClient
from sharegroup.protocol.api_key import ApiKey

TARGETS = {10_000: 0.5}
"""Locks → part of the ideal."""
SETTINGS = {
    "group.share.max.size": 1_000,
    "group.share.assignors": "all",
    "group.share.max.partition.max.record.locks": 1_000_000,
}
PROCESSES = 2
_HEARTBEAT_INTERVAL_S = 10.0
_MAX_WAIT_MS = 1_000
_RETRY_S = 0.2
_START_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Work:
    """The work of the members.

    Attributes:
        work_ms: work on each record.
        warm_up_s: time before what is measured.
        duration_s: time that is measured.
    """

    members: int
    work_ms: float
    records_per_fetch: int
    warm_up_s: float
    duration_s: float

    @property
    def ideal_rate(self) -> float:
        """Records a second while all members work all the time."""
        return 1_000 * self.members / self.work_ms


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, duration_s=20, has_warm_up=True)
    parser.add_argument("--members", type=int, default=300, help="members of the group")
    parser.add_argument("--partitions", type=int, default=6, help="partitions of the topic")
    parser.add_argument("--work-ms", type=float, default=5, help="work on each record")
    parser.add_argument("--record-locks", type=int, nargs="+", default=[10_000], help="locks of a share-partition")
    parser.add_argument("--records-per-fetch", type=int, default=100, help="records that a fetch asks for")
    parser.add_argument("--peer", action="store_true", help="measure confluent-kafka's ShareConsumers, too")
    options = parser.parse_args(arguments)
    work = Work(options.members, options.work_ms, options.records_per_fetch, options.warm_up, options.duration)
    with open_site(options, SETTINGS) as site:
        rates = run(options, site, work)
    peer = (
        peer_rate(work.members, options.partitions, work.work_ms, work.warm_up_s, work.duration_s)
        if options.peer
        else None
    )
    print_figures(figures(f"large_group.{options.log}", rates, work, peer))


def run(options: argparse.Namespace, site: Site, work: Work) -> dict[int, float]:
    """Return locks → records a second that were worked off."""
    rates: dict[int, float] = {}
    with ProcessorHost(options.host, site) as host:
        for locks in options.record_locks:
            # More than the ideal takes, joining included.
            records = 2 * work.ideal_rate * (work.warm_up_s + work.duration_s) / options.partitions
            topic = f"work-{uuid4().hex[:8]}"
            site.create_topic(topic, options.partitions, int(records) + 1_000)
            rates[locks] = measured(site, topic, locks, work)
        print(step_text(host.figures()))
    return rates


def figures(name: str, rates: dict[int, float], work: Work, peer: float | None) -> list[Figure]:
    """The figures of all numbers of locks."""
    made = [Figure(f"{name}.ideal", work.ideal_rate, "records/s")]
    peer_of_ideal = None if peer is None else peer / work.ideal_rate
    for locks, rate in rates.items():
        of_ideal, target = rate / work.ideal_rate, TARGETS.get(locks)
        made += [
            Figure(f"{name}.locks_{locks}.rate", rate, "records/s", None, False, peer),
            Figure(f"{name}.locks_{locks}.of_ideal", of_ideal, "of the ideal", target, False, peer_of_ideal),
        ]
    return made


def measured(site: Site, topic: str, record_locks: int, work: Work) -> float:
    """Let a new group work, and return the records a second."""
    group_id = f"group-{uuid4().hex[:8]}"
    with AdminClient(site.settings.channel_properties) as administrator:
        administrator.alter_group_config(
            group_id,
            {
                "share.auto.offset.reset": "earliest",
                "share.partition.max.record.locks": str(record_locks),
                "share.record.lock.duration.ms": "60000",
            },
        )
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES)
    results: Queue[int] = context.Queue()
    processes = [
        context.Process(
            target=work_off, args=(site.channel, number, group_id, topic, work, start, results), daemon=True
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    timeout_s = _START_TIMEOUT_S + work.warm_up_s + work.duration_s
    worked = sum(results.get(timeout=timeout_s) for _ in processes)
    for process in processes:
        process.join()
    return worked / work.duration_s


def work_off(
    settings: ChannelSettings,
    number: int,
    group_id: str,
    topic: str,
    work: Work,
    start: Barrier,
    results: Queue[int],
) -> None:
    """Be one of the processes: join with its part of the members, work, and report the records."""
    die_with_parent()
    channel = Channel(settings, number, PROCESSES)
    own = range(number, work.members, PROCESSES)
    members = [SimulatedMember(group_id, channel.new_member_id(), topic) for _ in own]
    join(channel, members)
    start.wait(_START_TIMEOUT_S)
    results.put(_Members(channel, members, work).run())
    channel.close()


class _Members:
    """Works for all members of a process until the time is over."""

    def __init__(self, channel: Channel, members: Sequence[SimulatedMember], work: Work) -> None:
        self._channel = channel
        self._work = work
        self._from_s = time.monotonic() + work.warm_up_s
        self._ends_s = self._from_s + work.duration_s
        self._by_id = {member.member_id: member for member in members}
        self._outstanding: dict[int, SimulatedMember] = {}
        self._numbers = count()
        # When each member has worked off what it holds, and then fetches.
        self._due: list[tuple[float, int, SimulatedMember]] = []
        self._heartbeats: list[tuple[float, int, SimulatedMember]] = []
        now_s = time.monotonic()
        for number, member in enumerate(members):
            heappush(self._due, (now_s, next(self._numbers), member))
            first_s = now_s + _HEARTBEAT_INTERVAL_S * number / len(members)
            heappush(self._heartbeats, (first_s, next(self._numbers), member))
        self._worked = 0

    def run(self) -> int:
        """Return the records that were worked off in the measured time."""
        while (now_s := time.monotonic()) < self._ends_s:
            if requests := [*self._fetches(now_s), *self._due_heartbeats(now_s)]:
                self._channel.send(requests)
            wake_s = min(self._ends_s, self._heartbeats[0][0], *(due[0] for due in self._due[:1]))
            for response in self._channel.receive(max(1, int(1_000 * (wake_s - time.monotonic())))):
                if response.envelope.api_key == ApiKey.SHARE_GROUP_HEARTBEAT:
                    if (member := self._by_id.get(response.envelope.member_id)) is not None:
                        member.receive(response.envelope)
                elif (member := self._outstanding.pop(response.envelope.correlation_id, None)) is not None:
                    failed = bool(member.receive(response.envelope).error_codes)
                    work_s = _held_records(member) * self._work.work_ms / 1_000
                    due_s = response.seen_s + (_RETRY_S if failed and not work_s else work_s)
                    heappush(self._due, (due_s, next(self._numbers), member))
        return self._worked

    def _fetches(self, now_s: float) -> list[NewRequest]:
        requests: list[NewRequest] = []
        while self._due and self._due[0][0] <= now_s:
            due_s, _, member = heappop(self._due)
            if self._from_s <= due_s:
                self._worked += _held_records(member)
            new = numbered(self._channel, member.accept_and_fetch(self._work.records_per_fetch, _MAX_WAIT_MS))
            self._outstanding[new.correlation_id] = member
            requests.append(new)
        return requests

    def _due_heartbeats(self, now_s: float) -> list[NewRequest]:
        requests: list[NewRequest] = []
        while self._heartbeats[0][0] <= now_s:
            _, _, member = heappop(self._heartbeats)
            heappush(self._heartbeats, (now_s + _HEARTBEAT_INTERVAL_S, next(self._numbers), member))
            requests.append(numbered(self._channel, member.heartbeat()))
        return requests


def _held_records(member: SimulatedMember) -> int:
    return sum(held.last_offset - held.first_offset + 1 for held in member.held)


if __name__ == "__main__":
    main()
