"""Wake-up: 100 groups wait for records of one topic with 1,000 partitions, and one partition grows.

    python -m benchmarks.wake_up --log kafka --rounds 200

Each group has one member, whose fetch waits. A round's time is from the append of one record until all groups have
their response. Then all accept the record and fetch again, and the next round begins at a random time.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from benchmarks.assembly import Population, assemble, numbered
from benchmarks.channel import Channel, NewRequest, SeenResponse
from benchmarks.host import ProcessorHost
from benchmarks.member import SimulatedMember
from benchmarks.report import Figure, latency_figures, print_figures
from benchmarks.site import IDLE_TOPIC, RECORDS_TOPIC, Site, add_arguments, open_site
from sharegroup.logs.port import NewRecord

TARGETS_MS = {"local": (70, 150), "kafka": (90, 200)}
"""Log → p50 and p99."""
_MAX_WAIT_MS = 600_000
_ROUND_TIMEOUT_S = 60
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 1.5
_HEARTBEAT_INTERVAL_S = 10.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=200, help="records that are appended, one after the other")
    parser.add_argument("--groups", type=int, default=100, help="groups that wait")
    parser.add_argument("--partitions", type=int, default=1_000, help="partitions of the topic")
    options = parser.parse_args(arguments)
    with open_site(options) as site:
        print_figures(run(options, site))


def run(options: argparse.Namespace, site: Site) -> list[Figure]:
    """Measure all rounds."""
    site.create_topic(RECORDS_TOPIC, options.partitions)
    site.create_topic(IDLE_TOPIC, 1)
    population = Population(
        group_ids=tuple(f"group-{number}" for number in range(options.groups)),
        workers_per_group=1,
        idlers_per_group=0,
        records_per_fetch=1,
    )
    with ProcessorHost(options.host, site) as host:
        channel = Channel(site.channel)
        members = assemble(channel, population).workers
        print(f"{len(members)} groups wait on {options.partitions} partitions", flush=True)
        source = random.Random(options.seed)
        waiting = WaitingMembers(channel, members)
        waiting.fetch()
        latencies_ms: list[float] = []
        for _ in range(options.rounds):
            waiting.pause(source.uniform(_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S))
            latencies_ms.append(waiting.wake(source.randrange(options.partitions)))
            host.check()
        channel.close()
    return latency_figures(f"wake_up.{options.log}", latencies_ms, *TARGETS_MS[options.log])


class WaitingMembers:
    """Members whose fetches wait for a record.

    Args:
        members: one member of each group, with an open session.
    """

    def __init__(self, channel: Channel, members: Sequence[SimulatedMember]) -> None:
        self._channel = channel
        self._members = members
        self._parked: dict[int, SimulatedMember] = {}
        self._heartbeat_due_s = time.monotonic() + _HEARTBEAT_INTERVAL_S

    def fetch(self) -> None:
        """Send a fetch for each member; it waits in the processor."""
        self._send_fetches(self._members)

    def pause(self, duration_s: float) -> None:
        """Keep the members in their groups, and fetch again for those that got a response without a record."""
        ends_s = time.monotonic() + duration_s
        while (remaining_s := ends_s - time.monotonic()) > 0:
            if time.monotonic() >= self._heartbeat_due_s:
                self._channel.send([numbered(self._channel, member.heartbeat()) for member in self._members])
                self._heartbeat_due_s = time.monotonic() + _HEARTBEAT_INTERVAL_S
            for response in self._channel.receive(int(1_000 * remaining_s) + 1):
                self._receive(response)

    def wake(self, partition: int) -> float:
        """Append a record, and return the milliseconds until each member has it; then accept it and fetch again.

        Raises:
            TimeoutError: some members got no response in time.
        """
        started_s = time.monotonic()
        self._channel.log.append(RECORDS_TOPIC, partition, [NewRecord(None, b"x")])
        last_s = started_s
        without = {member.member_id for member in self._members}
        while without:
            if time.monotonic() > started_s + _ROUND_TIMEOUT_S:
                raise TimeoutError(f"{len(without)} groups have no response after {_ROUND_TIMEOUT_S} s.")
            for response in self._channel.receive(1_000):
                if (woken := self._receive(response)) is not None:
                    without.discard(woken.member_id)
                    last_s = response.seen_s
        acknowledgements = [numbered(self._channel, member.acknowledge()) for member in self._members]
        responses = self._channel.call_all(acknowledgements)
        for member, new in zip(self._members, acknowledgements, strict=True):
            if errors := member.receive(responses[new.correlation_id].envelope).error_codes:
                raise RuntimeError(f"The acknowledgement of group {member.group_id} failed: errors {errors}.")
        self.fetch()
        return 1_000 * (last_s - started_s)

    def _receive(self, response: SeenResponse) -> SimulatedMember | None:
        """The member that got a record by this response; one that got none fetches again."""
        member = self._parked.pop(response.envelope.correlation_id, None)
        if member is None:
            return None
        if errors := member.receive(response.envelope).error_codes:
            raise RuntimeError(f"The fetch of group {member.group_id} failed: errors {errors}.")
        if member.held:
            return member
        self._send_fetches([member])
        return None

    def _send_fetches(self, members: Sequence[SimulatedMember]) -> None:
        requests: list[NewRequest] = []
        for member in members:
            new = numbered(self._channel, member.fetch(1, _MAX_WAIT_MS))
            self._parked[new.correlation_id] = member
            requests.append(new)
        self._channel.send(requests)


if __name__ == "__main__":
    main()
