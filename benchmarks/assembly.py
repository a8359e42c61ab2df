"""Bringing a population of simulated members into their groups, until each has fetched without an error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.channel import Channel, NewRequest
from benchmarks.member import MemberRequest, SimulatedMember
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import AlterGroupConfigRequest

_ASSEMBLY_TIMEOUT_S = 600
_RETRY_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The members of one loader.

    Attributes:
        workers_per_group: members of a group that acquire and acknowledge records.
        idlers_per_group: members of a group that fetch from a topic without records.
    """

    group_ids: tuple[str, ...]
    workers_per_group: int
    idlers_per_group: int
    records_topic: str = "records"
    idle_topic: str = "idle"
    records_per_fetch: int = 5


@dataclass(frozen=True, slots=True)
class Members:
    """Simulated members by their work."""

    workers: tuple[SimulatedMember, ...]
    idlers: tuple[SimulatedMember, ...]

    @property
    def all(self) -> tuple[SimulatedMember, ...]:
        """Workers and idlers."""
        return self.workers + self.idlers


def new_members(channel: Channel, population: Population) -> Members:
    """Make the members; nothing is sent."""

    def made(topic: str, count: int) -> tuple[SimulatedMember, ...]:
        return tuple(
            SimulatedMember(group_id, channel.new_member_id(), topic)
            for group_id in population.group_ids
            for _ in range(count)
        )

    return Members(
        made(population.records_topic, population.workers_per_group),
        made(population.idle_topic, population.idlers_per_group),
    )


def assemble(channel: Channel, population: Population) -> Members:
    """Configure the groups, let the members join, and open a share session for each.

    Raises:
        TimeoutError: it took longer than ten minutes.
    """
    members = new_members(channel, population)
    start_at_earliest(channel, population.group_ids)
    join(channel, members.all)
    open_sessions(channel, members.all, population.records_per_fetch)
    return members


def start_at_earliest(channel: Channel, group_ids: Sequence[str]) -> None:
    """Let the groups begin at the start of their topics, and lock records for as long as a group may.

    A member of a low load holds its records until its next request is due.
    """
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
    body = AlterGroupConfigRequest(set=settings)
    administrator = channel.new_member_id()
    requests = [
        NewRequest(channel.next_correlation_id(), group_id, administrator, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
        for group_id in group_ids
    ]
    for response in channel.call_all(requests, _ASSEMBLY_TIMEOUT_S).values():
        if response.envelope.body.get("error_code"):
            raise RuntimeError(f"A group cannot be configured: {response.envelope.body}.")


def join(channel: Channel, members: Sequence[SimulatedMember]) -> None:
    """Send heartbeats until each member has an assignment."""
    give_up_s = time.monotonic() + _ASSEMBLY_TIMEOUT_S
    by_id = {member.member_id: member for member in members}
    while outside := [member for member in members if not member.has_joined]:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{len(outside)} of {len(members)} members have no assignment.")
        channel.send([numbered(channel, member.heartbeat()) for member in outside])
        pause_ends_s = time.monotonic() + _RETRY_PAUSE_S
        while (remaining_s := pause_ends_s - time.monotonic()) > 0:
            for response in channel.receive(int(1_000 * remaining_s) + 1):
                # A pushed assignment has no request.
                if response.envelope.api_key == ApiKey.SHARE_GROUP_HEARTBEAT:
                    by_id[response.envelope.member_id].receive(response.envelope)


def open_sessions(channel: Channel, members: Sequence[SimulatedMember], max_records: int) -> None:
    """Fetch until each member had a response without an error."""
    give_up_s = time.monotonic() + _ASSEMBLY_TIMEOUT_S
    closed = list(members)
    while closed:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{len(closed)} of {len(members)} members have no share session.")
        requests = {(new := numbered(channel, member.fetch(max_records))).correlation_id: new for member in closed}
        responses = channel.call_all(list(requests.values()), _ASSEMBLY_TIMEOUT_S)
        failed = []
        for correlation_id, member in zip(requests, closed, strict=True):
            if member.receive(responses[correlation_id].envelope).error_codes:
                member.reset_session()
                failed.append(member)
        closed = failed
        if closed:
            time.sleep(_RETRY_PAUSE_S)


def numbered(channel: Channel, member_request: MemberRequest) -> NewRequest:
    """The request with a new correlation id."""
    member = member_request.member
    return NewRequest(
        channel.next_correlation_id(),
        member.group_id,
        member.member_id,
        member_request.api_key,
        member_request.body,
    )
