"""All that a group member knows, as one state machine: membership, share session, and acquisitions that wait.

No I/O, no clock: requests and answers go in and out, and the time is an argument.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.client.acquisition import Acquisition, HeldRange, unread
from sharegroup.client.fetch_ahead import FetchAhead
from sharegroup.client.membership import Membership
from sharegroup.client.session_events import Acknowledged, Acquired, SessionEvent
from sharegroup.client.settings import MemberSettings
from sharegroup.client.share_session import ShareSession
from sharegroup.errors import ApiError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatResponse
from sharegroup.protocol.messages import Message, ResponseEnvelope, parsed
from sharegroup.protocol.share_fetch import ShareFetchResponse

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment on two clocks: `now_ms` times requests, `epoch_ms` is the log's time, which lock deadlines are in."""

    now_ms: int
    epoch_ms: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a member stands with its group.

    Attributes:
        is_stable: whether it is in the group.
        member_epoch: its epoch; 0 before it is in.
        partition_count: share-partitions that it may fetch from.
        answer_count: answers so far.
        empty_fetch_count: fetches so far that were answered without records, and without an error.
    """

    is_stable: bool
    member_epoch: int
    partition_count: int
    answer_count: int
    empty_fetch_count: int


class MemberProtocol:
    """The state machine of one group member.

    Args:
        settings: who the member is and how it fetches.
        now_ms: the time, on the clock that never goes back.
    """

    def __init__(self, settings: MemberSettings, now_ms: int) -> None:
        correlation_ids = itertools.count(settings.first_correlation_id)
        self._settings = settings
        self._membership = Membership(settings.rack_id, settings.fetch.request_timeout_ms, correlation_ids)
        self._session = ShareSession(settings.fetch, correlation_ids)
        self._ahead = FetchAhead(settings.fetch)
        self._subscription: tuple[str, ...] = ()
        self._topic_names: dict[str, str] = {}
        self._waiting: deque[Acquisition] = deque()
        self._results: list[Acknowledged] = []
        self._leader_epoch = -1
        self._answer_count = 0
        self._empty_fetch_count = 0
        self._last_poll_ms = now_ms
        self._has_lapsed = False
        self._prefetches = True
        self._is_closing = False

    @property
    def has_acquisition(self) -> bool:
        """Whether an acquisition waits to be taken."""
        return bool(self._waiting)

    @property
    def has_results(self) -> bool:
        """Whether results wait to be taken."""
        return bool(self._results)

    @property
    def has_error(self) -> bool:
        """Whether there is an error of the membership to be taken."""
        return self._membership.has_error

    @property
    def is_done(self) -> bool:
        """Whether the session is closed and the group left, after `close`."""
        return self._is_closing and self._session.is_closed and self._membership.is_outside

    @property
    def standing(self) -> Standing:
        """How the member stands with its group."""
        membership = self._membership
        partition_count = len(membership.assignment)
        return Standing(
            membership.is_stable, membership.epoch, partition_count, self._answer_count, self._empty_fetch_count
        )

    @property
    def unanswered_partitions(self) -> set[PartitionKey]:
        """Partitions with acknowledgements that wait to be sent or answered."""
        return self._session.unanswered_partitions

    def subscribe(self, topics: Iterable[str], at: Instant) -> None:
        """Join the group with these topics, or change them; no topics is to leave. What waits of others goes back."""
        self._subscription = tuple(topics)
        self._has_lapsed = False
        self._last_poll_ms = at.now_ms
        self._membership.subscribe(self._subscription)
        self._readmit(at)

    def polled(self, now_ms: int, wants_records: bool = True) -> None:
        """Somebody asks for records, or shows at least that it is there."""
        self._last_poll_ms = now_ms
        self._prefetches |= wants_records
        if self._has_lapsed:
            self._has_lapsed = False
            self._membership.subscribe(self._subscription)

    def take(self, at: Instant, max_records: int | None = None) -> Acquisition | None:
        """The acquisition that waits longest, if any; those whose locks have ended are dropped.

        Args:
            at: the time.
            max_records: so many ranges of it as reach this number; the others go on waiting. None is all of it.
        """
        self.polled(at.now_ms)
        while self._waiting:
            oldest = self._waiting.popleft()
            if not _is_lost(oldest, at):
                taken, rest = oldest.divided(max_records)
                if rest is not None:
                    self._waiting.appendleft(rest)
                return taken
        self._ahead.ran_out()
        return None

    def take_results(self) -> list[Acknowledged]:
        """What became of acknowledgements since the last call; each is told once."""
        taken, self._results = self._results, []
        return taken

    def take_error(self) -> ApiError | None:
        """An error of the membership that the application must hear of, once."""
        return self._membership.take_error()

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Send these with the next request."""
        for acknowledgement in acknowledgements:
            self._session.acknowledge(acknowledgement)

    def expire(self, at: Instant) -> None:
        """Let acknowledgements fail that were not answered in time."""
        self._absorb(self._session.expire(at.now_ms))

    def close(self, at: Instant, keeps_locks: bool = False) -> None:
        """Return what waits, send what is to be acknowledged, close the session, leave the group.

        To keep the locks of what was taken, the session is not closed but ended.
        """
        self._is_closing = True
        self._readmit(at)
        self._session.close(keeps_locks)

    def last_requests(self, at: Instant) -> list[tuple[int, ApiKey, Message]]:
        """What closes the session and leaves the group for somebody who cannot wait any longer; then `give_up`."""
        requests: list[tuple[int, ApiKey, Message]] = []
        if (final := self._session.last_request()) is not None:
            requests.append((final.correlation_id, final.api_key, final.body))
        self._membership.leave()
        if (heartbeat := self._membership.next_request(at.now_ms)) is not None:
            requests.append((heartbeat.correlation_id, ApiKey.SHARE_GROUP_HEARTBEAT, heartbeat.body))
        return requests

    def give_up(self) -> None:
        """Be done without answers: what is not acknowledged by now has failed."""
        self._absorb(self._session.give_up())

    def next_requests(self, at: Instant) -> list[tuple[int, ApiKey, Message]]:
        """(correlation id, kind, body) of all that is to be sent now."""
        self._lapse_if_due(at.now_ms)
        self._return_stale(at)
        self._session.set_partitions(self._membership.assignment)
        max_records = self._ahead.max_records if self._wants_records else 0
        requests: list[tuple[int, ApiKey, Message]] = []
        while (fetch := self._session.next_request(at.now_ms, max_records)) is not None:
            requests.append((fetch.correlation_id, fetch.api_key, fetch.body))
        if self._is_closing and self._session.is_final_sent:
            self._membership.leave()
        while (heartbeat := self._membership.next_request(at.now_ms)) is not None:
            requests.append((heartbeat.correlation_id, ApiKey.SHARE_GROUP_HEARTBEAT, heartbeat.body))
        return requests

    def send_failed(self, now_ms: int) -> None:
        """What `next_requests` gave last did not reach the log."""
        self._session.send_failed(now_ms)
        self._membership.send_failed(now_ms)

    def next_deadline_ms(self, at: Instant) -> int | None:
        """When `next_requests` may give something without further input, on the clock of `now_ms`."""
        deadlines = [self._session.next_deadline_ms, self._membership.next_deadline_ms]
        if self._waiting:
            deadlines.append(at.now_ms + max(self._waiting[0].stale_at_ms - at.epoch_ms, 0))
        deadlines.append(self._lapse_at_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def receive(self, envelope: ResponseEnvelope, now_ms: int) -> None:
        """Take an answer, or the announcement of a processor.

        Answers of a processor that another one has taken over from change nothing.

        Raises:
            InvalidRequestError: it is not readable.
        """
        if envelope.leader_epoch < self._leader_epoch:
            return
        self._note_leader(envelope, now_ms)
        self._answer_count += 1
        if envelope.api_key == ApiKey.SHARE_GROUP_HEARTBEAT:
            heartbeat = parsed(ShareGroupHeartbeatResponse, envelope.body)
            self._membership.receive(envelope.correlation_id, heartbeat, now_ms)
            self._topic_names.update({key[0]: topic for key, topic in self._membership.assignment.items()})
        elif envelope.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            answer = parsed(ShareFetchResponse, envelope.body)
            if envelope.api_key == ApiKey.SHARE_FETCH and self._session.awaits(envelope.correlation_id):
                self._empty_fetch_count += _is_empty(answer)
            self._absorb(self._session.receive(envelope.correlation_id, answer, now_ms))

    def _note_leader(self, envelope: ResponseEnvelope, now_ms: int) -> None:
        """Open the session anew if another processor has taken over; an answer of the session tells that itself."""
        is_first, is_new = self._leader_epoch < 0, envelope.leader_epoch > self._leader_epoch
        self._leader_epoch = envelope.leader_epoch
        is_announced = envelope.api_key == ApiKey.PROCESSOR_STARTED
        is_of_session = envelope.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        if is_new and (is_announced or not (is_first or is_of_session)):
            self._session.reopen(now_ms)

    def _absorb(self, events: Iterable[SessionEvent]) -> None:
        for event in events:
            if isinstance(event, Acquired):
                acquisition = self._acquisition(event)
                self._ahead.acquired(acquisition.record_count, event.max_records)
                self._admit(acquisition)
            else:
                self._results.append(event)

    def _acquisition(self, event: Acquired) -> Acquisition:
        ranges = tuple(
            HeldRange(
                r.topic_id,
                self._topic_names.get(r.topic_id, ""),
                r.partition,
                r.first_offset,
                r.last_offset,
                r.delivery_count,
                event.isolation_level,
            )
            for r in event.records
        )
        acquisition = Acquisition(ranges, event.lock_deadline_ms, event.lock_timeout_ms)
        excess_count = max(acquisition.record_count - event.max_records, 0) if event.max_records else 0
        return replace(acquisition, excess_count=excess_count)

    def _admit(self, acquisition: Acquisition) -> None:
        """Let it wait to be taken; what the application does not want any more goes back unread."""
        wanted = () if self._is_closing else self._subscription
        kept = tuple(held for held in acquisition.ranges if held.topic in wanted)
        refused = [held for held in acquisition.ranges if held.topic not in wanted]
        self.acknowledge(unread(refused, "the member closes" if self._is_closing else "not subscribed any more"))
        if kept:
            self._waiting.append(replace(acquisition, ranges=kept))

    def _readmit(self, at: Instant) -> None:
        waiting, self._waiting = self._waiting, deque()
        for acquisition in waiting:
            if not _is_lost(acquisition, at):
                self._admit(acquisition)

    @property
    def _wants_records(self) -> bool:
        if not self._prefetches:
            return False
        waiting_count = sum(acquisition.record_count for acquisition in self._waiting)
        return len(self._waiting) < self._settings.prefetch_count or self._ahead.is_due(waiting_count)

    @property
    def _lapse_at_ms(self) -> int | None:
        interval_ms = self._settings.max_poll_interval_ms
        if interval_ms is None or self._has_lapsed or not self._subscription or self._membership.is_outside:
            return None
        return self._last_poll_ms + interval_ms

    def _lapse_if_due(self, now_ms: int) -> None:
        lapse_at_ms = self._lapse_at_ms
        if lapse_at_ms is not None and now_ms >= lapse_at_ms:
            self._has_lapsed = True
            self._membership.leave()

    def _return_stale(self, at: Instant) -> None:
        """Give back what the application is too slow for, and fetch nothing until it asks again.

        Otherwise records would be delivered to nobody, time and again, until their delivery count is used up.
        """
        while self._waiting and self._waiting[0].stale_at_ms <= at.epoch_ms:
            stale = self._waiting.popleft()
            self._prefetches = False
            self._ahead.went_stale()
            if not _is_lost(stale, at):
                self.acknowledge(unread(stale.ranges, "the member had no time for it"))


def _is_empty(answer: ShareFetchResponse) -> bool:
    """Whether there was nothing to acquire, and that was no error."""
    partitions = [partition for topic in answer.responses for partition in topic.partitions]
    return not answer.error_code and not any(found.acquired_records or found.error_code for found in partitions)


def _is_lost(acquisition: Acquisition, at: Instant) -> bool:
    """Whether the locks of an acquisition ended before it was taken, so that it must be dropped.

    To return it unread could fail, and all other acknowledgements in the same request with it.
    """
    if not acquisition.is_over(at.epoch_ms):
        return False
    _logger.warning(
        "%d ranges are dropped: their locks ended %d ms ago, before the records were asked for. If that repeats for a "
        "member that is not slow, the clocks of its host and of the processor differ.",
        len(acquisition.ranges),
        at.epoch_ms - acquisition.lock_deadline_ms,
    )
    return True
