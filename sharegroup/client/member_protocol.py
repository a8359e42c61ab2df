"""The state machine of a group member: membership, share session, and waiting acquisitions.

No I/O, no clock: requests and responses are values, and the time, of a monotonic clock, is an argument. Its parts are
public, and its callers use them directly. An operation on several parts is a method of the protocol.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from dataclasses import replace

from sharegroup.client.acknowledgement_results import AcknowledgementResults
from sharegroup.client.acquired_again import withdraw_acknowledged
from sharegroup.client.application_polls import ApplicationPolls
from sharegroup.client.exchange import FollowedProcessor, Request
from sharegroup.client.held_locks import HeldLocks
from sharegroup.client.held_records import Acquisition, ReadRange, unread
from sharegroup.client.member_session import MemberSession, WritesToResolve
from sharegroup.client.member_writes import MemberWrites
from sharegroup.client.membership import Membership, MemberState, Standing
from sharegroup.client.pace import Pace
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.refusals import FetchCompleted, Refusals
from sharegroup.client.settings import MemberSettings
from sharegroup.client.waiting_acquisitions import WaitingAcquisitions
from sharegroup.event_log import Event
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatResponse
from sharegroup.protocol.messages import Message, ResponseEnvelope, parsed
from sharegroup.protocol.share_fetch import ShareFetchResponse
from sharegroup.protocol.write_resolution import ResolveWriteResponse

_LINGER_MS = 50
"""Time for which acknowledgements wait for a fetch, while records wait for the application."""

_logger = logging.getLogger(__name__)


class MemberProtocol:
    """The state machine of one group member.

    Attributes:
        membership: heartbeats and the assignment.
        session: fetches and acknowledgements.
        polls: when the application polled.
        writes: writes to look up, and reports of what the sink says of writes.
        results: results of acknowledgements, and the member's locks.
        pace: the sizes of polls and fetches.
        waiting: acquisitions that the application has not taken yet.
        refusals: refusals that concern the application.
        waited_ms: how long the polling thread has waited in polls so far, of all its members; no processing time.

    Args:
        now_ms: the present time, on a monotonic clock.
    """

    def __init__(self, settings: MemberSettings, now_ms: int) -> None:
        self._correlation_ids = itertools.count(settings.first_correlation_id)
        self._settings = settings
        self.membership = Membership(
            settings.rack_id,
            settings.fetch.request_timeout_ms,
            self._correlation_ids,
            settings.client_host,
            settings.client_process,
            has_sink=settings.sink is not None,
        )
        self.session = MemberSession(settings.fetch, self._correlation_ids, self.membership.topic_names)
        self.session.sink = settings.sink
        self.writes = MemberWrites(settings.fetch.request_timeout_ms, self._correlation_ids, now_ms)
        self.results = AcknowledgementResults(self.session, sends_apart=settings.sends_refused_apart)
        self.pace = Pace(settings.fetch)
        self.waiting = WaitingAcquisitions()
        self.refusals = Refusals()
        self._subscription: tuple[str, ...] = ()
        self._acquisition_count = 0
        self._processor = FollowedProcessor()
        self._response_count = 0
        self._empty_fetch_count = 0
        self.waited_ms = 0
        self.polls = ApplicationPolls(settings.max_poll_interval_ms, now_ms)
        self._prefetches = settings.fetch.may_fetch_ahead
        self._linger_until_ms: int | None = None
        self._is_closing = False

    @property
    def is_done(self) -> bool:
        """True if all is reported, the session closed and the group left, after `close`."""
        is_closed = self._is_closing and self.session.is_closed and self.membership.is_outside
        return is_closed and not self.writes.reports

    @property
    def standing(self) -> Standing:
        """The member's membership and fetch counts."""
        return Standing.of(self.membership, self._response_count, self._empty_fetch_count)

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        """Join the group with these topics, or leave it without topics; return waiting records of other topics."""
        self._subscription = tuple(topics)
        self.refusals.forget()
        self.polls.begin(now_ms)
        self.membership.subscribe(self._subscription)
        self._readmit(now_ms)

    def polled(self, now_ms: int, wants_records: bool = True) -> int | None:
        """Record that the application polls; without `wants_records`, only that it is alive.

        Returns:
            The time since the poll before, in ms, if the member left for it, and joins again now.
        """
        self.processed(now_ms)
        self._prefetches |= wants_records
        silent_ms = self.polls.polled(now_ms)
        if silent_ms is not None:
            self.membership.subscribe(self._subscription)
        return silent_ms

    def processed(self, now_ms: int) -> None:
        """Record that the application has processed the records of its last poll."""
        self.pace.polled(now_ms - self.waited_ms)

    def take(self, now_ms: int) -> Acquisition | None:
        """Take the oldest waiting acquisition, if any; drop those whose locks have ended."""
        self.polled(now_ms)
        oldest = self.waiting.take(now_ms)
        if oldest is None:
            self.pace.ran_out()
        else:
            self._prefetches = self._settings.fetch.may_fetch_ahead
        return oldest

    def fetch_next(self, max_records: int) -> None:
        """Fetch so many records with the next request: the application is about to take them."""
        self.pace.resize(max_records)
        self._prefetches = True

    def return_waiting(self, reason: str, now_ms: int) -> None:
        """Return the waiting records unread, and fetch nothing until the application polls again."""
        self._prefetches = False
        for waiting in self.waiting.take_all(now_ms):
            self.acknowledge(unread(waiting.ranges, reason))

    def ask(self, now_ms: int) -> None:
        """Record that the application wants records, and none have been read."""
        self.polled(now_ms)
        if not self.waiting:
            self.pace.ran_out()

    def deliver(self, parts: Iterable[tuple[int, ReadRange]], now_ms: int) -> list[bool]:
        """Deliver parts of waiting acquisitions to the application; False for those that no longer wait.

        They were returned, or their locks ended.

        Args:
            parts: number of the acquisition, and the part.
        """
        self.polled(now_ms)
        delivered: list[bool] = []
        missing: list[Acknowledgement] = []
        record_count = 0
        for number, part in parts:
            is_delivered = self.waiting.deliver(number, part.held, now_ms)
            delivered.append(is_delivered)
            if is_delivered:
                record_count += len(part.records)
                # With a sink they are given up with the commit of the others.
                missing += part.missing if part.held.write is None else ()
        if missing:
            self.acknowledge_later(missing, now_ms)
        if record_count:
            self.pace.delivered(record_count, now_ms - self.waited_ms)
            self._prefetches = self._settings.fetch.may_fetch_ahead
        return delivered

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Send acknowledgements with the next request; they replace unsent ones of the same offsets."""
        for acknowledgement in acknowledgements:
            self.session.pending.put(acknowledgement)
        withdraw_acknowledged(self.waiting, self.session.pending)
        self._linger_until_ms = None

    def acknowledge_later(self, acknowledgements: Iterable[Acknowledgement], now_ms: int) -> None:
        """Send acknowledgements with the next fetch, or soon: a separate request would delay that fetch."""
        until_ms = self._linger_until_ms if self.session.pending else now_ms + _LINGER_MS
        self.acknowledge(acknowledgements)
        self._linger_until_ms = until_ms

    def may_send(self, now_ms: int) -> bool:
        """Return True if `next_requests` may return a request now."""
        return self.session.can_send and (self._wants_records or not self._lingers(now_ms))

    def expire(self, now_ms: int) -> None:
        """Fail acknowledgements without a response in time."""
        self._settle(self.session.expire(now_ms))

    def close(self, now_ms: int, keeps_locks: bool = False) -> None:
        """Return waiting records, send pending acknowledgements, close the session, and leave the group.

        To keep the locks of taken records, the session is abandoned, not closed.
        """
        self._is_closing = True
        self._readmit(now_ms)
        self.session.close(keeps_locks, self._settings.sends_refused_apart)

    def last_requests(self, now_ms: int) -> list[Request[Message]]:
        """Return requests that close the session and leave the group without waiting for responses; then `give_up`."""
        requests: list[Request[Message]] = []
        if (final := self.session.last_request()) is not None:
            requests.append(final.request)
        self.membership.leave()
        if (heartbeat := self.membership.next_request(now_ms)) is not None:
            requests.append(heartbeat)
        return requests

    def give_up(self) -> None:
        """Close without responses: unconfirmed acknowledgements have failed."""
        self._settle(self.session.give_up())
        self.results.add(self.writes.reports.give_up())

    def next_requests(self, now_ms: int) -> list[Request[Message]]:
        """Return all requests to send now."""
        # 1. Give up what the application is too slow for.
        self.results.locks.expire(now_ms)
        self._lapse_if_due(now_ms)
        self._return_stale(now_ms)
        self._return_idle(now_ms)
        # 2. Report, fetch and acknowledge: what is reported is decided before a close gives the rest up.
        self.session.partitions = set(self.membership.assignment)
        max_records = self.pace.fetch_records if self._wants_records else 0
        requests: list[Request[Message]] = [*self.writes.reports.next_requests(now_ms)]
        is_urgent = not self._lingers(now_ms)
        asks = (asks_at_ms := self._asks_for_writes_at_ms) is not None and now_ms >= asks_at_ms
        while (sent := self.session.next_request(now_ms, max_records, is_urgent, asks)) is not None:
            requests.append(sent.request)
            if sent.request.api_key is ApiKey.SHARE_FETCH:
                self.writes.fetched(now_ms)
                asks = False
        # 3. Send heartbeats.
        if self._is_closing and self.session.is_final_sent:
            self.membership.leave()
        while (heartbeat := self.membership.next_request(now_ms)) is not None:
            requests.append(heartbeat)
        return requests

    def send_failed(self, now_ms: int) -> None:
        """Send the requests of the last `next_requests` again after a pause: they did not reach the log."""
        self.writes.reports.send_failed(now_ms)
        self.session.send_failed(now_ms)
        self.membership.send_failed(now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return the time at which `next_requests` may return a request without further input."""
        deadlines = [self.session.next_deadline_ms, self.membership.next_deadline_ms]
        deadlines += [self.writes.reports.next_deadline_ms, self._asks_for_writes_at_ms]
        if self.waiting:
            deadlines.append(max(self.waiting.stale_at_ms, now_ms))
            deadlines.append(self._linger_until_ms if self.session.pending else None)
            deadlines.append(self._idle_at_ms(now_ms) if self.waiting.are_returnable else None)
        deadlines.append(self._lapse_at_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def receive(self, envelope: ResponseEnvelope, now_ms: int) -> None:
        """Handle a response, or the announcement of a processor.

        Responses of a processor that another one has taken over from change nothing. Leader epochs rise within one
        state table: with one that was created again they restart, and the member joins again.

        Raises:
            InvalidRequestError: it cannot be parsed.
        """
        if self._processor.is_of_other_table(envelope):
            self._start_over(envelope, now_ms)
        if self._processor.is_outdated(envelope):
            return
        if self._processor.follow(envelope):
            self.session.reopen(now_ms)
            self.writes.reports.send_again()
        self._response_count += 1
        if envelope.api_key == ApiKey.SHARE_GROUP_HEARTBEAT:
            heartbeat = parsed(ShareGroupHeartbeatResponse, envelope.body)
            if (error := self.membership.receive(envelope.correlation_id, heartbeat, now_ms)) is not None:
                self.refusals.add(error)
        elif envelope.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            response = parsed(ShareFetchResponse, envelope.body)
            if response.other_member_waits:
                self.polls.noticed(now_ms)
            for event in self.session.receive(envelope.correlation_id, response, now_ms, envelope.published_ms):
                if isinstance(event, Acquisition):
                    self._acquired(event)
                elif isinstance(event, WritesToResolve):
                    self.writes.add_unresolved(event.writes)
                elif isinstance(event, FetchCompleted):
                    self._empty_fetch_count += event.is_empty
                    self.refusals.completed(event)
                else:
                    self._settle([event])
        elif envelope.api_key == ApiKey.RESOLVE_WRITE:
            reported = parsed(ResolveWriteResponse, envelope.body)
            self.results.add(self.writes.reports.receive(envelope.correlation_id, reported, now_ms))

    def _start_over(self, envelope: ResponseEnvelope, now_ms: int) -> None:
        """Join again: the state table was created again, so the group knows neither the member nor its locks."""
        before = self._processor.state_id
        self._processor.follow_other_table(envelope)
        now = self._processor.state_id
        _logger.warning(Event("state_table_replaced", group=self._settings.group_id, before=before, now=now))
        self.waiting.clear()
        self.results.locks = HeldLocks()
        self.session.reopen(now_ms)
        self.membership.start_over()

    def _acquired(self, fetched: Acquisition) -> None:
        self._acquisition_count += 1
        # Of several ranges, a fetch of the size of a poll counts the excess records.
        is_poll = fetched.requested_count == self._settings.fetch.max_poll_records
        acquisition = replace(
            fetched,
            number=self._acquisition_count,
            excess_count=max(fetched.record_count - fetched.requested_count, 0) if is_poll else 0,
        )
        self.pace.acquired(acquisition.record_count, acquisition.requested_count, acquisition.lock_timeout_ms)
        self.results.locks.acquired(acquisition)
        self._admit(acquisition)

    def _settle(self, results: Iterable[Acknowledged]) -> None:
        if self.results.add_or_send_apart(results):
            self._linger_until_ms = None

    def _admit(self, acquisition: Acquisition) -> None:
        """Let the application take an acquisition; return unread the ranges that it no longer wants."""
        wanted = () if self._is_closing else self._subscription
        kept = tuple(held for held in acquisition.ranges if held.topic in wanted)
        if acquisition.write is not None and len(kept) < len(acquisition.ranges):
            # Without a commit a write is given up as a whole.
            kept = ()
        refused = [held for held in acquisition.ranges if not kept or held.topic not in wanted]
        self.acknowledge(unread(refused, "the member closes" if self._is_closing else "not subscribed any more"))
        if kept:
            self.waiting.add(replace(acquisition, ranges=kept))

    def _readmit(self, now_ms: int) -> None:
        for acquisition in self.waiting.take_all(now_ms):
            self._admit(acquisition)

    @property
    def _asks_for_writes_at_ms(self) -> int | None:
        """When a fetch without records asks for writes to look up, if no other request is sent; None is never."""
        is_asked = self.session.sink is not None and not self._is_closing
        may_ask_at_ms = self.session.may_ask_at_ms
        if not is_asked or may_ask_at_ms is None or self.membership.state is not MemberState.STABLE:
            return None
        return self.writes.asks_at_ms(may_ask_at_ms)

    @property
    def _wants_records(self) -> bool:
        if not self._prefetches or not self.waiting:
            return self._prefetches
        return self._settings.fetch.may_fetch_ahead and self.pace.is_due(self.waiting.record_count)

    def _lingers(self, now_ms: int) -> bool:
        """Return True if acknowledgements wait for a fetch."""
        return self._linger_until_ms is not None and now_ms < self._linger_until_ms and bool(self.waiting)

    def _idle_at_ms(self, now_ms: int) -> int | None:
        """Return when waiting records are to be returned if no poll comes; None is never."""
        has_polls = self._settings.fetch.max_poll_records > 0
        return self.polls.idle_at_ms(now_ms, self.pace.patience_ms) if has_polls else None

    def _return_idle(self, now_ms: int) -> None:
        """Return the waiting records of an application that stopped polling, and fetch nothing until it polls again."""
        idle_at_ms = self._idle_at_ms(now_ms) if self.waiting.are_returnable else None
        if idle_at_ms is not None and now_ms >= idle_at_ms:
            self.pace.went_stale()
            cause = "another member waits" if self.polls.has_notice(now_ms) else "the application polls no more"
            self.return_waiting(cause, now_ms)

    @property
    def _lapse_at_ms(self) -> int | None:
        return None if not self._subscription or self.membership.is_outside else self.polls.lapse_at_ms

    def _lapse_if_due(self, now_ms: int) -> None:
        if (lapse_at_ms := self._lapse_at_ms) is not None and now_ms >= lapse_at_ms:
            self.polls.lapsed()
            self.membership.leave()

    def _return_stale(self, now_ms: int) -> None:
        """Return the records for which the application is too slow, and fetch nothing until it polls again.

        Otherwise records would be delivered unread again and again, until they reach the delivery limit.
        """
        if not self.waiting.has_stale(now_ms):
            return
        self._prefetches = False
        self.pace.went_stale()
        for acquisition in self.waiting.take_stale(now_ms):
            self.acknowledge(unread(acquisition.ranges, "the member had no time for it"))
