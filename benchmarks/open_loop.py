"""The open loop of one loader: sends each request when it is due, and times its response from then.

A request is sent by a member that has none outstanding. While no such member is there, or while an append takes its
time, the request waits, and its waiting counts. The caller's thread sends, and one more receives.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from benchmarks.assembly import Members, numbered
from benchmarks.channel import Channel, NewRequest, SeenResponse
from benchmarks.member import MemberRequest, SimulatedMember
from benchmarks.schedule import Arrival, RequestKind, arrivals
from benchmarks.window import Window
from sharegroup.protocol.api_key import ApiKey

_KEEP_ALIVE_S = 25.0
"""A member whose last heartbeat is older sends one beside the schedule: it would leave its group otherwise."""
_GIVE_UP_S = 60.0
"""A request without a response for so long is lost."""
_LONGEST_WAIT_S = 1.0
_WARM_UP_SEED = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The requests that a loader offers.

    Attributes:
        rate_per_s: mean number of requests in a second.
        duration_s: how long they are measured.
        warm_up_s: how long requests are sent before that, and not measured.
        start_s: when the warm-up starts, on the monotonic clock.
        seed: the same seed gives the same schedule.
        durable_share: part of the requests that shall have a durable effect.
    """

    rate_per_s: float
    duration_s: float
    warm_up_s: float
    start_s: float
    seed: int
    window_s: float = 10.0
    durable_share: float = 0.5
    records_per_fetch: int = 5


@dataclass(frozen=True, slots=True)
class _Outstanding:
    member: SimulatedMember
    due_s: float
    is_measured: bool
    is_heartbeat: bool


class OpenLoop:
    """One run of a loader.

    Args:
        members: members with open sessions.
        emit: receives each window when it is over.
    """

    def __init__(self, channel: Channel, members: Members, offer: Offer, emit: Callable[[Window], None]) -> None:
        self._channel = channel
        self._offer = offer
        self._emit = emit
        self._measured_from_s = offer.start_s + offer.warm_up_s
        self._ends_s = self._measured_from_s + offer.duration_s
        self._members = {member.member_id: member for member in members.all}
        self._free = {RequestKind.DURABLE: list(members.workers), RequestKind.EMPTY_FETCH: list(members.idlers)}
        self._kind_of = {
            **dict.fromkeys(members.workers, RequestKind.DURABLE),
            **dict.fromkeys(members.idlers, RequestKind.EMPTY_FETCH),
        }
        self._has_idlers = bool(members.idlers)
        self._random = random.Random(offer.seed)
        # They begin at different times, so that those beside the schedule do not come all at once.
        self._heartbeats = deque(
            (offer.start_s - _KEEP_ALIVE_S * (1 - number / len(members.all)), member)
            for number, member in enumerate(self._random.sample(members.all, len(members.all)))
        )
        self._queues: dict[RequestKind, deque[float]] = {kind: deque() for kind in RequestKind}
        self._outstanding: dict[int, _Outstanding] = {}
        self._measured_outstanding = 0
        self._window = Window(-1)
        self._window_ends_s = self._measured_from_s
        self._changed = threading.Condition()
        self._is_over = False
        self._failure: Exception | None = None

    def run(self) -> None:
        """Send all requests, and wait for their responses; raises what the log raises."""
        receiver = threading.Thread(target=self._receive_all, name="receiver")
        receiver.start()
        try:
            self._send_all()
        finally:
            self._is_over = True
            self._channel.wake()
            receiver.join()

    def _send_all(self) -> None:
        upcoming = self._schedule()
        arrival = next(upcoming, None)
        while True:
            with self._changed:
                if self._failure is not None:
                    raise self._failure
                now_s = time.monotonic()
                while arrival is not None and arrival.due_s <= now_s:
                    self._cut_windows(arrival.due_s)
                    self._queues[self._kind(arrival)].append(arrival.due_s)
                    self._window.offered += 1
                    arrival = next(upcoming, None)
                self._cut_windows(now_s)
                batch = self._take_requests(now_s)
                if not batch:
                    if now_s >= self._ends_s:
                        self._give_up(now_s)
                        if not self._measured_outstanding and not any(self._queues.values()):
                            break
                    wake_s = min(now_s + _LONGEST_WAIT_S, self._window_ends_s, self._heartbeats[0][0] + _KEEP_ALIVE_S)
                    wake_s = min(wake_s, arrival.due_s) if arrival is not None else wake_s
                    # The queues hold requests only while no member is free: a response ends this wait.
                    self._changed.wait(max(0.0, wake_s - time.monotonic()))
            if batch:
                self._channel.send(batch)
        self._emit(self._window)

    def _schedule(self) -> Iterator[Arrival]:
        offer = self._offer
        # The warm-up has a schedule of its own, so that its length does not change what is measured.
        warm_up = arrivals(offer.rate_per_s, offer.warm_up_s, offer.seed + _WARM_UP_SEED, offer.durable_share)
        measured = arrivals(offer.rate_per_s, offer.duration_s, offer.seed, offer.durable_share)
        for start_s, phase in ((offer.start_s, warm_up), (self._measured_from_s, measured)):
            for arrival in phase:
                yield Arrival(start_s + arrival.due_s, arrival.kind)

    def _kind(self, arrival: Arrival) -> RequestKind:
        if arrival.kind is RequestKind.EMPTY_FETCH and not self._has_idlers:
            return RequestKind.HEARTBEAT
        return arrival.kind

    def _take_requests(self, now_s: float) -> list[NewRequest]:
        """Match what is due with members that are free."""
        batch: list[NewRequest] = []
        for kind, free in self._free.items():
            queue = self._queues[kind]
            while queue and free:
                position = self._random.randrange(len(free))
                free[position], free[-1] = free[-1], free[position]
                batch.append(self._register(self._fetch_or_acknowledge(kind, free.pop()), queue.popleft()))
        heartbeats = self._queues[RequestKind.HEARTBEAT]
        while heartbeats:
            batch.append(self._register(self._oldest_heartbeat(now_s), heartbeats.popleft()))
        while self._heartbeats[0][0] + _KEEP_ALIVE_S <= now_s:
            batch.append(self._register(self._oldest_heartbeat(now_s), None))
        return batch

    def _fetch_or_acknowledge(self, kind: RequestKind, member: SimulatedMember) -> MemberRequest:
        records = self._offer.records_per_fetch
        return member.next_durable(records) if kind is RequestKind.DURABLE else member.fetch(records)

    def _oldest_heartbeat(self, now_s: float) -> MemberRequest:
        _, member = self._heartbeats.popleft()
        self._heartbeats.append((now_s, member))
        return member.heartbeat()

    def _register(self, member_request: MemberRequest, due_s: float | None) -> NewRequest:
        new = numbered(self._channel, member_request)
        is_measured = due_s is not None and due_s >= self._measured_from_s
        self._measured_outstanding += is_measured
        self._outstanding[new.correlation_id] = _Outstanding(
            member_request.member,
            time.monotonic() if due_s is None else due_s,
            is_measured,
            new.api_key == ApiKey.SHARE_GROUP_HEARTBEAT,
        )
        return new

    def _cut_windows(self, now_s: float) -> None:
        """End the windows that are over; what comes after the last one are late responses, a window of their own."""
        while now_s >= self._window_ends_s:
            self._give_up(now_s)
            window = self._window
            window.backlog = self._measured_outstanding + sum(map(len, self._queues.values()))
            self._emit(window)
            self._window = Window(window.index + 1)
            is_last = self._window_ends_s >= self._ends_s
            self._window_ends_s = inf if is_last else min(self._window_ends_s + self._offer.window_s, self._ends_s)

    def _give_up(self, now_s: float) -> None:
        """Forget requests that wait too long for their response."""
        for correlation_id, outstanding in list(self._outstanding.items()):
            if now_s >= outstanding.due_s + _GIVE_UP_S:
                del self._outstanding[correlation_id]
                self._measured_outstanding -= outstanding.is_measured
                self._window.lost += outstanding.is_measured
                if not outstanding.is_heartbeat:
                    outstanding.member.reset_session()
                    self._free[self._kind_of[outstanding.member]].append(outstanding.member)

    def _receive_all(self) -> None:
        try:
            while not self._is_over:
                responses = self._channel.receive(1_000)
                if responses:
                    with self._changed:
                        for response in responses:
                            self._receive(response)
                        if any(self._queues.values()) or not self._measured_outstanding:
                            self._changed.notify()
        except Exception as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify()

    def _receive(self, response: SeenResponse) -> None:
        envelope = response.envelope
        if envelope.api_key == ApiKey.PROCESSOR_STARTED:
            for member in self._members.values():
                member.reset_session()
            return
        outstanding = self._outstanding.pop(envelope.correlation_id, None)
        if outstanding is None:
            # A pushed assignment, or a response that comes twice.
            return
        outcome = outstanding.member.receive(envelope)
        if not outstanding.is_heartbeat:
            self._free[self._kind_of[outstanding.member]].append(outstanding.member)
        self._window.errors.update(outcome.error_codes)
        if outstanding.is_measured:
            self._measured_outstanding -= 1
            self._window.add(outstanding.due_s, response.seen_s, outcome.is_durable)
