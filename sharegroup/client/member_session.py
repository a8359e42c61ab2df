"""The member's side of its share session (KIP-932): requests and their responses. No I/O, no clock.

One request is outstanding at a time, with one exception: a fetch that may be parked can be overtaken by the next
request, which makes the leader complete the parked fetch first. A request without a response is sent again unchanged,
so the leader recognises it. After an error of the whole request the session is opened again.

When another processor has taken over, the sessions and the parked fetches of the one before are lost: the session is
opened again at once. Unconfirmed acknowledgements are repeated first, unchanged: the processor has kept the last
request of each member that had a durable effect, and responds to its repetition without applying it again.

Every acknowledgement ends in exactly one `Acknowledged`: with the leader's response, by `expire`, or by `give_up`.
Acknowledgements that were not applied, because of an error of the session or a loading leader, are sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sharegroup.client.acknowledgement_request import acknowledge_error, topics_with
from sharegroup.client.acquired_again import unacknowledged
from sharegroup.client.exchange import Backoff, Request
from sharegroup.client.held_records import Acquisition, HeldRange, acquired_ranges, remaining_lock_ms, unread
from sharegroup.client.pending_acknowledgements import (
    Acknowledged,
    Acknowledgement,
    PendingAcknowledgements,
    by_partition,
    failed,
)
from sharegroup.client.refusals import FetchCompleted, fetch_completed
from sharegroup.client.session_request import SessionRequest
from sharegroup.client.settings import FetchSettings
from sharegroup.core.records import PartitionKey
from sharegroup.errors import ApiError, CoordinatorLoadInProgressError, RequestTimedOutError, api_error
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.message_portions import MAX_PORTION_BYTES
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    next_epoch,
)
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite

MAX_ACKNOWLEDGEMENT_BYTES = MAX_PORTION_BYTES
"""Bytes of the acknowledgements of one request, which each topic takes. The next request carries the rest."""

_ABANDONED_KEPT = 64


class WritesToResolve(NamedTuple):
    """Writes that the member is to look up in its sink."""

    writes: tuple[UnresolvedWrite, ...]


SessionEvent = Acquisition | Acknowledged | FetchCompleted | WritesToResolve
"""A response of the leader is one or more of these."""


class MemberSession:
    """The state machine of one member's share session.

    Args:
        topic_names: topic id → topic name; it grows with the assignments.
    """

    def __init__(self, settings: FetchSettings, correlation_ids: Iterator[int], topic_names: Mapping[str, str]) -> None:
        self.partitions: set[PartitionKey] = set()
        """Share-partitions of the fetches from now on."""
        self.pending = PendingAcknowledgements()
        """Acknowledgements for the next request."""
        self.sink: Sink | None = None
        """The table that fetches name from now on; None if results are not written exactly once."""
        self.is_closed = False
        self._settings = settings
        self._correlation_ids = correlation_ids
        self._topic_names = topic_names
        self._epoch = INITIAL_EPOCH
        self._partitions_of_leader: set[PartitionKey] = set()
        self._pending_since_ms: int | None = None
        self._outstanding: list[SessionRequest] = []
        self._abandoned: deque[int] = deque(maxlen=_ABANDONED_KEPT)
        self._backoff = Backoff()
        self._is_closing = False
        self._keeps_locks = False
        self._waits_for_responses = False

    @property
    def unconfirmed_partitions(self) -> set[PartitionKey]:
        """Partitions with acknowledgements that wait to be sent, or for the response."""
        return {ack.key for ack in self._sent}.union(self.pending.partitions)

    @property
    def _sent(self) -> Iterator[Acknowledgement]:
        """Acknowledgements without a response."""
        return (ack for outstanding in self._outstanding for ack in outstanding.acknowledgements)

    @property
    def can_send(self) -> bool:
        """Return True if a request can be sent before there is a response."""
        if not self._outstanding:
            return True
        return len(self._outstanding) == 1 and self._outstanding[0].may_be_parked

    @property
    def may_ask_at_ms(self) -> int | None:
        """The time from which a request without a cause of its own may be sent; None before the next response."""
        return None if self._outstanding or self.is_closed else self._backoff.until_ms

    @property
    def is_final_sent(self) -> bool:
        """True if the request that closes the session was sent, or the session is closed."""
        return self.is_closed or any(outstanding.is_final for outstanding in self._outstanding)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which `next_request` may return a request without further input; None if it will not."""
        if self.is_closed:
            return None
        if self._backoff.until_ms:
            return self._backoff.until_ms
        return self._outstanding[-1].resend_at_ms if self._outstanding else None

    def close(self, keeps_locks: bool = False, waits_for_responses: bool = False) -> None:
        """Send no further fetch, send pending acknowledgements, and close: the leader releases the records still held.

        Args:
            keeps_locks: send no close: held records stay locked until their locks end.
            waits_for_responses: close when all acknowledgements have responses: refused ones can be sent again.
        """
        self._is_closing = True
        self._keeps_locks = keeps_locks
        self._waits_for_responses = waits_for_responses

    def last_request(self) -> SessionRequest | None:
        """Return a request that closes the session without waiting for earlier responses, or for its own.

        None if there is nothing to close, or if the close was sent.
        """
        is_needed = self._epoch != INITIAL_EPOCH or self.pending
        if self.is_final_sent or self._keeps_locks or not is_needed:
            return None
        request = self._acknowledge(FINAL_EPOCH)
        self._outstanding.append(request)
        return request

    def give_up(self) -> list[Acknowledged]:
        """Close without the leader: unconfirmed acknowledgements have failed."""
        unconfirmed = [*self._sent, *self.pending]
        self._outstanding = []
        self.pending = PendingAcknowledgements()
        self.is_closed = True
        return failed(unconfirmed, RequestTimedOutError("The acknowledgement got no response before the close."))

    def next_request(
        self, now_ms: int, max_records: int, is_urgent: bool = True, asks_for_writes: bool = False
    ) -> SessionRequest | None:
        """Return the request to send now; None if there is none before the next response or deadline.

        Args:
            now_ms: time on a monotonic clock.
            max_records: records to fetch; 0 is none.
            is_urgent: send acknowledgements without a fetch, too; otherwise they wait for the next one.
            asks_for_writes: fetch without records, if nothing else is to be sent: its response may have writes that the
                member is to look up.
        """
        if self.is_closed or not self._backoff.is_over(now_ms):
            return None
        if self._outstanding and now_ms >= self._outstanding[-1].resend_at_ms:
            return self._outstanding[-1].sent(now_ms, self._settings.request_timeout_ms)
        if not self.can_send:
            return None
        since_ms = now_ms if self._pending_since_ms is None else self._pending_since_ms
        request = self._closing_request() if self._is_closing else self._running_request(max_records, is_urgent)
        if request is None and asks_for_writes and not (self._is_closing or self._outstanding):
            request = self._fetch(max_records=0)
        if request is not None:
            request.since_ms = since_ms
            self._outstanding.append(request.sent(now_ms, self._settings.request_timeout_ms))
            self._epoch = next_epoch(request.request.body.share_session_epoch)
        return request

    def expire(self, now_ms: int) -> list[Acknowledged]:
        """Give up acknowledgements that have waited too long to be sent, or for the response; call it regularly.

        Those that were sent may have been applied. The session is opened again, since the leader may not know an
        epoch without a response.
        """
        timeout_ms = self._settings.acknowledge_timeout_ms
        if timeout_ms is None or self._is_closing:
            return []
        expired: list[Acknowledgement] = []
        if not self.pending:
            self._pending_since_ms = None
        elif self._pending_since_ms is None:
            self._pending_since_ms = now_ms
        elif now_ms >= self._pending_since_ms + timeout_ms:
            expired += self.pending
            self.pending, self._pending_since_ms = PendingAcknowledgements(), None
        last = self._outstanding[-1] if self._outstanding else None
        if last is not None and last.acknowledgements and now_ms >= last.since_ms + timeout_ms:
            expired = [*last.acknowledgements, *expired]
            self._abandoned.extend(outstanding.request.correlation_id for outstanding in self._outstanding)
            self._outstanding = []
            self._epoch = INITIAL_EPOCH
        return failed(expired, RequestTimedOutError(f"The acknowledgement got no response within {timeout_ms} ms."))

    def send_failed(self, now_ms: int) -> None:
        """Send the latest request again after a pause: it did not reach the log."""
        if self._outstanding:
            self._outstanding[-1].sent_ms, self._outstanding[-1].resend_at_ms = None, now_ms
            self._backoff.failed(now_ms)

    def reopen(self, now_ms: int) -> None:
        """Open the session again: another processor has taken over, which does not know it.

        A parked fetch is lost; records that it acquires after all are returned unread. Unconfirmed acknowledgements and
        a close are sent again at once, and the session is opened when they have their responses.
        """
        kept: list[SessionRequest] = []
        for outstanding in self._outstanding:
            if outstanding.acknowledgements or outstanding.is_final:
                outstanding.resend_at_ms = now_ms
                kept.append(outstanding)
            else:
                self._abandoned.append(outstanding.request.correlation_id)
        self._outstanding = kept
        self._epoch = INITIAL_EPOCH
        self._backoff.succeeded()

    def receive(
        self, correlation_id: int, response: ShareFetchResponse, now_ms: int, published_ms: int = -1
    ) -> list[SessionEvent]:
        """Handle a response; a repeated one changes nothing.

        Args:
            published_ms: time at which it was published, in the time of its deadline; -1 is unknown.
        """
        ids = [outstanding.request.correlation_id for outstanding in self._outstanding]
        if correlation_id not in ids:
            if correlation_id in self._abandoned:
                self._abandoned.remove(correlation_id)
                held = self._acquired(response, self.sink)
                self.pending.put_back(unread(held, "the response came after the session was opened again"))
            return []
        position = ids.index(correlation_id)
        # The response to the later request also ends the parked fetch before it, which carried no acknowledgements.
        self._abandoned.extend(ids[:position])
        completed = self._outstanding[position]
        del self._outstanding[: position + 1]
        events: list[SessionEvent] = []
        if completed.request.api_key is ApiKey.SHARE_FETCH:
            events.append(fetch_completed(response))
        if response.error_code:
            return events + self._refused(completed, api_error(response.error_code, response.error_message), now_ms)
        if completed.is_final:
            self.is_closed = True
        return events + self._completed(completed, response, now_ms, published_ms)

    def _running_request(self, max_records: int, is_urgent: bool) -> SessionRequest | None:
        fetches = max_records > 0 and bool(self.partitions)
        if not fetches and not is_urgent:
            return None
        if self._epoch == INITIAL_EPOCH:
            if self.pending:
                return self._fetch(max_records=0)
            return self._fetch(max_records) if fetches else None
        if self.pending:
            # A fetch adds the partitions that it names to the session, so it carries no acknowledgements of others.
            if fetches and self.partitions.issuperset(self.pending.partitions):
                return self._fetch(max_records)
            return self._acknowledge(self._epoch)
        if fetches and (not self._outstanding or self.partitions != self._partitions_of_leader):
            return self._fetch(max_records)
        return None

    def _closing_request(self) -> SessionRequest | None:
        if self._outstanding:
            # Ends the parked fetch; if it acquires records after all, they can be returned before the close.
            return self._acknowledge(self._epoch)
        if (self._epoch == INITIAL_EPOCH or self._keeps_locks) and not self.pending:
            self.is_closed = True
            return None
        if self._epoch == INITIAL_EPOCH:
            return self._fetch(max_records=0)
        waits = self._waits_for_responses and bool(self.pending)
        stays_open = self._keeps_locks or waits or not self.pending.fits(MAX_ACKNOWLEDGEMENT_BYTES)
        return self._acknowledge(self._epoch if stays_open else FINAL_EPOCH)

    def _fetch(self, max_records: int) -> SessionRequest:
        opens = self._epoch == INITIAL_EPOCH
        acknowledgements = () if opens else self._taken()
        known = set() if opens else self._partitions_of_leader
        forgotten: dict[str, list[int]] = {}
        for topic_id, partition in sorted(known - self.partitions):
            forgotten.setdefault(topic_id, []).append(partition)
        body = constructed(
            ShareFetchRequest,
            share_session_epoch=self._epoch,
            max_wait_ms=self._settings.max_wait_ms if max_records else 0,
            max_records=max_records,
            batch_size=min(self._settings.batch_size, max(max_records, 1)),
            acquire_mode=self._settings.acquire_mode,
            topics=topics_with(self.partitions - known, acknowledgements),
            forgotten_topics_data=[ForgottenTopic(topic_id=t, partitions=numbers) for t, numbers in forgotten.items()],
            sink=self.sink,
        )
        self._partitions_of_leader = set(self.partitions)
        return SessionRequest(Request(next(self._correlation_ids), ApiKey.SHARE_FETCH, body), acknowledgements)

    def _acknowledge(self, epoch: int) -> SessionRequest:
        acknowledgements = self._taken()
        topics = topics_with((), acknowledgements)
        body = constructed(ShareAcknowledgeRequest, share_session_epoch=epoch, topics=topics)
        return SessionRequest(Request(next(self._correlation_ids), ApiKey.SHARE_ACKNOWLEDGE, body), acknowledgements)

    def _acquired(self, response: ShareFetchResponse, sink: Sink | None) -> tuple[HeldRange, ...]:
        return unacknowledged(acquired_ranges(response, self._topic_names, sink), self.pending, self._sent)

    def _taken(self) -> tuple[Acknowledgement, ...]:
        # The time of the remaining ones, and of new ones, begins with the next request.
        self._pending_since_ms = None
        return tuple(self.pending.take(MAX_ACKNOWLEDGEMENT_BYTES))

    def _refused(self, completed: SessionRequest, error: ApiError, now_ms: int) -> list[Acknowledged]:
        """Begin a new session; the leader applied nothing of this request.

        It may apply the acknowledgements of the next one, so the session is opened when that one has its response.
        """
        self._epoch = INITIAL_EPOCH
        later, self._outstanding = self._outstanding, []
        for outstanding in later:
            if outstanding.acknowledgements:
                self._outstanding.append(outstanding)
            else:
                self._abandoned.append(outstanding.request.correlation_id)
        if not self._outstanding:
            self._backoff.failed(now_ms)
        if not error.retriable:
            return failed(completed.acknowledgements, error)
        self.pending.put_back(completed.acknowledgements)
        return []

    def _completed(
        self, completed: SessionRequest, response: ShareFetchResponse, now_ms: int, published_ms: int
    ) -> list[SessionEvent]:
        responses = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        events: list[SessionEvent] = []
        is_loading = False
        for key, acknowledgements in by_partition(completed.acknowledgements).items():
            error = acknowledge_error(responses.get(key))
            if isinstance(error, CoordinatorLoadInProgressError) and not completed.is_final:
                self.pending.put_back(acknowledgements)
                is_loading = True
            else:
                events.append(Acknowledged(tuple(acknowledgements), error))
        body = completed.request.body
        fetch = body if isinstance(body, ShareFetchRequest) else None
        if response.unresolved:
            events.append(WritesToResolve(tuple(response.unresolved)))
        if ranges := self._acquired(response, None if fetch is None else fetch.sink):
            requested_count = 0 if fetch is None else fetch.max_records
            timeout_ms = response.acquisition_lock_timeout_ms
            # The response may have been on its way for long, but no longer than the request is old.
            lock_ms = remaining_lock_ms(response, published_ms)
            deadline_ms = min(now_ms + lock_ms, completed.latest_lock_start_ms(now_ms) + timeout_ms)
            events.append(Acquisition(ranges, deadline_ms, timeout_ms, requested_count))
        if is_loading or (not ranges and any(partition.error_code for partition in responses.values())):
            self._backoff.failed(now_ms)
        else:
            self._backoff.succeeded()
        return events
