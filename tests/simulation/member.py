"""A member: the production state machine, a network that loses and repeats, and an application that does anything."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sharegroup.client.exchange import Request
from sharegroup.client.held_records import Acquisition, HeldRange
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ApiError, GroupQuarantinedError
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import LogRecord, NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ResumeShareGroupRequest
from sharegroup.protocol.messages import Message, RequestEncoder, decoded_response, request
from sharegroup.protocol.share_fetch import INITIAL_EPOCH
from tests.simulation.helper import SimulatedHelper
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.sink import SimulatedSink
from tests.simulation.world import START_MS, Alarm, World

REQUEST_TOPIC = "__share_requests"
RESPONSE_TOPIC = "__share_responses"
_LONGEST_PAUSE_MS = 2_000
"""Responses and deadlines end a pause earlier."""


Record = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass
class Application:
    """The code that the members of a group run, and the sink that they write to.

    Attributes:
        crashed: called with a member that has died of a record; its process is gone.
        deadly: records that end the process of the member that handles them.
        sink_away_until_ms: until then nothing can be written, so nothing is accepted; virtual time.
        sink: the table that its results are written to exactly once; None where it is any other sink.
    """

    crashed: Callable[[SimulatedMember], None] = lambda _: None
    deadly: set[Record] = field(default_factory=set)
    sink_away_until_ms: int = 0
    sink: SimulatedSink | None = None

    def first_deadly(self, held: HeldRange) -> int | None:
        """Return the offset of the first deadly record of a range."""
        offsets = (
            offset
            for topic, partition, offset in self.deadly
            if (topic, partition) == (held.topic, held.partition) and held.first_offset <= offset <= held.last_offset
        )
        return min(offsets, default=None)

    def calm_down(self) -> None:
        """Have no fault any more."""
        self.deadly.clear()
        self.let_sink_be_away(0)

    def let_sink_be_away(self, until_ms: int) -> None:
        """Let nothing be written until a time."""
        self.sink_away_until_ms = until_ms
        if self.sink is not None:
            self.sink.away_until_ms = until_ms


@dataclass
class Network:
    """How a member's requests and responses travel.

    Attributes:
        repeat: probability that a request is appended twice, the second time at once.
        delayed_repeat: the same, the second time up to some seconds later, if the share session is the same still.
        unknown: probability that an append fails; half of them are in the log.
        lost: probability that a response is not read.
        late: probability that responses stay unread for seconds.
        reread: probability that the last responses are read again.
    """

    repeat: float = 0.0
    delayed_repeat: float = 0.0
    unknown: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    reread: float = 0.0


class SimulatedMember:
    """A member of a group.

    Args:
        world: time.
        log: request and response log.
        ledger: keeps accounts.
        topics: its subscription.
        network: how requests and responses travel.
        fetch: what it asks for.
        application: what handles its records.
        process: the process that it runs in; "" is one of its own.
        has_helper: whether another process speaks for it.
    """

    def __init__(
        self,
        world: World,
        log: StoredLog,
        ledger: Ledger,
        group_id: str,
        member_id: str,
        topics: list[str],
        network: Network,
        fetch: FetchSettings,
        application: Application | None = None,
        process: str = "",
        has_helper: bool = False,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.process = process or f"host:{member_id}"
        self.network = network
        self.is_good = False
        """It accepts whatever it gets, in time."""
        self.is_gone = False
        self.busy_until_ms = 0
        """Until then its application keeps the interpreter busy, and nothing else runs."""
        self.clock_error_ms = world.random.choice((0, 2_000, 16_000, 3_600_000, 2 * START_MS))
        """How far its clock is ahead of the world's: a monotonic clock begins anywhere, and is never set."""
        self._application = application if application is not None else Application()
        self._world = world
        self._log = log
        self._ledger = ledger
        self._key = member_id.encode()
        self._request_partition = partition_for(group_id, len(log.topic(REQUEST_TOPIC).end_offsets))
        self._reply_partition = partition_for(member_id, len(log.topic(RESPONSE_TOPIC).end_offsets))
        self._encoder = RequestEncoder(group_id, member_id, reply_partition=self._reply_partition)
        sink = self._application.sink
        settings = MemberSettings(
            group_id=group_id,
            member_id=member_id,
            client_process=self.process,
            fetch=fetch,
            sink=None if sink is None else sink.description,
        )
        self._protocol = MemberProtocol(settings, self._now_ms)
        self._protocol.subscribe(topics, self._now_ms)
        self._helper: SimulatedHelper | None = None
        if has_helper:
            self._helper = SimulatedHelper(
                world, log, ledger, REQUEST_TOPIC, self._request_partition, group_id, member_id, network.late
            )
        self._inbox: deque[bytes] = deque()
        self._response_count = 0
        self._read: deque[bytes] = deque(maxlen=4)
        self._reads_at_ms = 0
        self._opening_count = 0
        self._next_step = Alarm(world, self._step)
        self.wake(1, 20)

    def wake(self, first_ms: int = 1, last_ms: int = 10) -> None:
        """Do something soon."""
        self._next_step.set(self._world.now_ms + self._world.between(first_ms, last_ms))

    def deliver(self, record: LogRecord) -> None:
        """Take a response, or an announcement, from the response log."""
        if self.is_gone or record.value is None or record.partition != self._reply_partition:
            return
        if record.key is not None and record.key != self._key:
            return
        if record.key is not None and self._world.happens(self.network.lost):
            self._world.trace(self.member_id, "loses a response")
            return
        if self._world.happens(self.network.late):
            self._reads_at_ms = self._world.now_ms + self._world.random.randint(500, 8_000)
        self._inbox.append(record.value)
        self._next_step.set(max(self._reads_at_ms, self._world.now_ms + 1))

    def close(self, keeps_locks: bool = False) -> None:
        """Leave the group properly; the locks of what was taken may stay."""
        self._world.trace(self.member_id, "closes", "and keeps its locks" if keeps_locks else "")
        self._protocol.close(self._now_ms, keeps_locks)
        self.wake()

    def die(self) -> None:
        """Be gone without a word."""
        self._world.trace(self.member_id, "dies")
        self.is_gone = True
        if self._helper is not None:
            self._helper.process_ended()

    @property
    def _now_ms(self) -> int:
        """The time of its clock, in which the protocol's times are."""
        return self._world.now_ms + self.clock_error_ms

    def _step(self) -> None:
        if self.is_gone:
            return
        if self._world.now_ms < self.busy_until_ms:
            self._next_step.set(self.busy_until_ms)
            return
        self._receive()
        self._inform_helper(has_sent=False)
        self._protocol.expire(self._now_ms)
        self._poll()
        self._send()
        if self._protocol.is_done:
            self.is_gone = True
            if self._helper is not None:
                self._helper.close()
            return
        deadlines = [self._world.now_ms + _LONGEST_PAUSE_MS]
        if (deadline_ms := self._protocol.next_deadline_ms(self._now_ms)) is not None:
            deadlines.append(max(deadline_ms - self.clock_error_ms, self._world.now_ms + 1))
        if self._inbox:
            deadlines.append(max(self._reads_at_ms, self._world.now_ms + 1))
        self._next_step.set(min(deadlines))

    def _receive(self) -> None:
        if self._world.now_ms < self._reads_at_ms:
            return
        if self._read and self._world.happens(self.network.reread):
            self._world.trace(self.member_id, "reads responses again")
            self._inbox.extendleft(reversed(self._read))
            self._read.clear()
        while self._inbox:
            value = self._inbox.popleft()
            self._read.append(value)
            response = decoded_response(value)
            self._protocol.receive(response, self._now_ms)
            if (count := self._protocol.standing.response_count) > self._response_count:
                self._response_count = count
                self._ledger.seen(self.member_id, response.leader_epoch)

    def _poll(self) -> None:
        if (error := self._protocol.refusals.take()) is not None:
            self._hear(error)
        while (acquisition := self._protocol.take(self._now_ms)) is not None:
            self._process(acquisition)
        for result in self._protocol.results.take():
            self._note(result.error)

    def _hear(self, error: ApiError) -> None:
        if not isinstance(error, GroupQuarantinedError):
            raise error
        self._world.trace(self.member_id, "hears:", error)
        self._world.after(200, 2_000, self._resume)

    def _resume(self) -> None:
        """Let the group go on, as an administrator does."""
        envelope = request(ApiKey.RESUME_SHARE_GROUP, self.group_id, ResumeShareGroupRequest())
        record = NewRecord(self.group_id.encode(), envelope.encoded())
        if not self._log.is_away:
            self._log.append(REQUEST_TOPIC, self._request_partition, [record])

    def _note(self, error: ApiError | None) -> None:
        if error is not None:
            self._world.trace(self.member_id, "has a failed acknowledgement:", error)

    def _process(self, acquisition: Acquisition) -> None:
        if self._world.is_traced:
            self._world.trace(self.member_id, "takes", _shown(acquisition, self.clock_error_ms))
        for held in acquisition.ranges:
            if self.is_good:
                self._world.after(1, 50, self._acknowledging(held, AcknowledgeType.ACCEPT))
                continue
            cut = self._world.random.randint(held.first_offset, held.last_offset)
            for first, last in ((held.first_offset, cut), (cut + 1, held.last_offset)):
                if first <= last:
                    self._run_application(_part(held, first, last), acquisition.lock_timeout_ms)

    def _run_application(self, held: HeldRange, lock_ms: int) -> None:
        """Handle records in order, unless one of them ends the process, or the sink is away."""
        deadly = self._application.first_deadly(held)
        if deadly is not None:
            if held.first_offset < deadly:
                self._handle(_part(held, held.first_offset, deadly - 1), lock_ms)
            self._world.after(1, 300, self._crash)
        elif self._world.now_ms < self._application.sink_away_until_ms:
            if self._world.happens(0.7):
                self._world.after(1, 300, self._acknowledging(held, AcknowledgeType.RELEASE))
        else:
            self._handle(held, lock_ms)

    def _crash(self) -> None:
        if not self.is_gone:
            self.die()
            self._application.crashed(self)

    def _handle(self, held: HeldRange, lock_ms: int) -> None:
        """Decide what becomes of records."""
        chance = self._world.random.random()
        time_ms = self._world.random.randint(1, 300)
        if chance < 0.55:
            self._world.after(1, 300, self._acknowledging(held, AcknowledgeType.ACCEPT))
        elif chance < 0.68:
            self._world.after(1, 300, self._acknowledging(held, AcknowledgeType.RELEASE))
        elif chance < 0.73:
            self._world.after(1, 300, self._acknowledging(held, AcknowledgeType.UNREAD))
        elif chance < 0.76:
            self._world.after(1, 300, self._acknowledging(held, AcknowledgeType.REJECT))
        elif chance < 0.82:
            self._world.at(self._world.now_ms + time_ms, self._acknowledging(held, AcknowledgeType.RENEW))
            self._world.after(time_ms + 1, lock_ms, self._acknowledging(held, AcknowledgeType.ACCEPT))
        elif chance < 0.94:
            # About when the lock ends, before or after it.
            self._world.after(lock_ms - 200, lock_ms + 200, self._acknowledging(held, AcknowledgeType.ACCEPT))

    def _acknowledging(self, held: HeldRange, kind: AcknowledgeType) -> Callable[[], None]:
        def acknowledge() -> None:
            if self._world.now_ms < self.busy_until_ms:
                self._world.at(self.busy_until_ms, acknowledge)
            elif not self.is_gone:
                self._world.trace(self.member_id, kind.name, held.partition, held.first_offset, held.last_offset)
                self._protocol.acknowledge([self._acknowledgement(held, kind)])
                self.wake(0, 2)

        return acknowledge

    def _acknowledgement(self, held: HeldRange, kind: AcknowledgeType) -> Acknowledgement:
        return held.acknowledgement(kind)

    def _send(self) -> None:
        requests = self._protocol.next_requests(self._now_ms)
        self._inform_helper(has_sent=bool(requests))
        if not requests:
            return
        if self._log.is_away:
            self._protocol.send_failed(self._now_ms)
            return
        if self._world.happens(self.network.unknown):
            is_in = self._world.happens(0.5)
            self._world.trace(self.member_id, "does not know whether its requests are in:", is_in)
            if is_in:
                self._append(requests)
            self._protocol.send_failed(self._now_ms)
            return
        self._append(requests)
        if self._world.happens(self.network.repeat):
            self._world.trace(self.member_id, "sends its requests twice")
            self._append(requests)
        if self._world.happens(self.network.delayed_repeat):
            opening_count = self._opening_count
            self._world.after(10, 3_000, lambda: self._append_again(requests, opening_count))

    def _inform_helper(self, has_sent: bool) -> None:
        if self._helper is not None:
            self._helper.note(holds_records=self._protocol.results.locks.are_held(self._now_ms), has_sent=has_sent)

    def _append_again(self, requests: list[Request[Message]], opening_count: int) -> None:
        """Append requests late, as a producer that tries again does, but no longer than their session lives."""
        if opening_count == self._opening_count and not self.is_gone and not self._log.is_away:
            self._world.trace(self.member_id, "sends its requests again")
            self._append(requests)

    def _append(self, requests: list[Request[Message]]) -> None:
        for correlation_id, api_key, body in requests:
            value = self._encoder.encoded(api_key, correlation_id, body)
            offset = self._log.append(
                REQUEST_TOPIC, self._request_partition, [NewRecord(self.group_id.encode(), value)]
            )
            record = self._log.topic(REQUEST_TOPIC).partitions[self._request_partition][offset]
            self._opening_count += getattr(body, "share_session_epoch", None) == INITIAL_EPOCH
            self._ledger.requests.add((self.member_id, correlation_id), self.group_id, body, record)
            if self._world.is_traced:
                shown = body.model_dump(exclude_defaults=True)
                self._world.trace(self.member_id, "sends", api_key.name, correlation_id, "at", offset, shown)


def _part(held: HeldRange, first_offset: int, last_offset: int) -> HeldRange:
    return HeldRange(
        held.topic_id, held.topic, held.partition, first_offset, last_offset, held.delivery_count, held.isolation_level
    )


def _shown(acquisition: Acquisition, clock_error_ms: int) -> str:
    ranges = ", ".join(
        f"{held.topic}-{held.partition} {held.first_offset}..{held.last_offset} #{held.delivery_count}"
        for held in acquisition.ranges
    )
    return f"{ranges} until {acquisition.lock_deadline_ms - clock_error_ms - START_MS}"
