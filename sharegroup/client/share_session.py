"""The member's side of its share session (KIP-932): what to send next, and what an answer means. No I/O, no clock.

One request is outstanding at a time, with one exception: a fetch that may be parked can be overtaken by the next
request, which makes the leader answer the parked fetch first. A request without an answer is sent again as it was,
so the leader knows it again. After an error of the whole request the session opens anew.

When another processor has taken over, the sessions and the parked fetches of the one before are lost: the session
opens anew at once. Acknowledgements under way are repeated first, as they were: the processor has kept the last request
of each member that had a durable effect, and answers its repeat without applying it again.

Every acknowledgement ends in exactly one `Acknowledged` event: with the leader's answer, by `expire`, or by `give_up`.
What an error of the session, or a leader that is still loading, kept from being judged is sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey, PendingAcknowledgements
from sharegroup.client.backoff import Backoff
from sharegroup.client.session_events import (
    Acknowledged,
    Acquired,
    SessionEvent,
    acknowledge_error,
    acquired_records,
    by_partition,
    settled,
    topics_with,
)
from sharegroup.client.settings import FetchSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import ApiError, CoordinatorLoadInProgressError, RequestTimedOutError, api_error
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)

MAX_EPOCH = 2**31 - 1
MAX_RANGES_PER_REQUEST = 5_000
"""Acknowledged ranges that one request carries; 5,000 are about 350 KB. The rest goes with the next request."""

_ABANDONED_KEPT = 64


def epoch_after(epoch: int) -> int:
    """The epoch of the request after one with this epoch; it wraps to 1, since 0 opens a session."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A request to send; the same object again when it is to be repeated."""

    correlation_id: int
    api_key: ApiKey
    body: ShareFetchRequest | ShareAcknowledgeRequest
    acknowledgements: tuple[Acknowledgement, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether it closes the session."""
        return self.body.share_session_epoch == FINAL_EPOCH

    @property
    def may_be_parked(self) -> bool:
        """Whether the leader may keep it waiting for records; one with acknowledgements is answered at once."""
        return isinstance(self.body, ShareFetchRequest) and self.body.max_wait_ms > 0 and not self.acknowledgements


@dataclass(slots=True)
class _Outstanding:
    request: SessionRequest
    resend_at_ms: int
    since_ms: int
    """When the oldest of its acknowledgements was there to be sent."""


class ShareSession:
    """The state machine of one member's share session.

    Args:
        settings: what fetches ask for.
        correlation_ids: never gives a number twice.
    """

    def __init__(self, settings: FetchSettings, correlation_ids: Iterator[int]) -> None:
        self.is_closed = False
        self._settings = settings
        self._correlation_ids = correlation_ids
        self._epoch = INITIAL_EPOCH
        self._partitions: set[PartitionKey] = set()
        self._partitions_of_leader: set[PartitionKey] = set()
        self._pending = PendingAcknowledgements()
        self._pending_since_ms: int | None = None
        self._outstanding: list[_Outstanding] = []
        self._abandoned: deque[int] = deque(maxlen=_ABANDONED_KEPT)
        self._backoff = Backoff()
        self._is_closing = False
        self._keeps_locks = False

    @property
    def unanswered_partitions(self) -> set[PartitionKey]:
        """Partitions with acknowledgements that wait to be sent or answered."""
        sent = {ack.key for outstanding in self._outstanding for ack in outstanding.request.acknowledgements}
        return sent.union(self._pending.partitions)

    @property
    def is_final_sent(self) -> bool:
        """Whether the request that closes the session is on its way, or the session is closed."""
        return self.is_closed or any(outstanding.request.is_final for outstanding in self._outstanding)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `next_request` may give something without further input; None when it will not."""
        if self.is_closed:
            return None
        if self._backoff.until_ms:
            return self._backoff.until_ms
        return self._outstanding[-1].resend_at_ms if self._outstanding else None

    def set_partitions(self, partitions: Iterable[PartitionKey]) -> None:
        """Fetch from these share-partitions from now on."""
        self._partitions = set(partitions)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Send this with the next request; it replaces what was not sent yet for the same offsets."""
        self._pending.put(acknowledgement)

    def close(self, keeps_locks: bool = False) -> None:
        """Fetch no more; send what is pending, and close. What the member still holds then is released.

        Args:
            keeps_locks: send no close, so that it stays held until its locks end: the leader forgets an idle session.
        """
        self._is_closing = True
        self._keeps_locks = keeps_locks

    def last_request(self) -> SessionRequest | None:
        """What closes the session without waiting for the answers to earlier requests; nobody waits for its own.

        None when there is nothing to close, or the close is on its way.
        """
        if self.is_final_sent or self._keeps_locks or self._epoch == INITIAL_EPOCH:
            return None
        request = self._acknowledge(FINAL_EPOCH)
        self._outstanding.append(_Outstanding(request, resend_at_ms=0, since_ms=0))
        return request

    def give_up(self) -> list[SessionEvent]:
        """Close without the leader: what it did not answer has failed."""
        unanswered = [ack for outstanding in self._outstanding for ack in outstanding.request.acknowledgements]
        unanswered += self._pending
        self._outstanding = []
        self._pending = PendingAcknowledgements()
        self.is_closed = True
        return settled(unanswered, RequestTimedOutError("The acknowledgement was not answered before the close."))

    def next_request(self, now_ms: int, max_records: int) -> SessionRequest | None:
        """What to send now; None when there is nothing to do before the next answer or deadline.

        Args:
            now_ms: a clock that does not go back.
            max_records: how many records to ask for; 0 is none.
        """
        if self.is_closed or not self._backoff.is_over(now_ms):
            return None
        if self._outstanding and now_ms >= self._outstanding[-1].resend_at_ms:
            self._outstanding[-1].resend_at_ms = now_ms + self._settings.request_timeout_ms
            return self._outstanding[-1].request
        if not self._can_send:
            return None
        since_ms = now_ms if self._pending_since_ms is None else self._pending_since_ms
        request = self._closing_request() if self._is_closing else self._running_request(max_records)
        if request is not None:
            self._outstanding.append(_Outstanding(request, now_ms + self._settings.request_timeout_ms, since_ms))
            self._epoch = epoch_after(request.body.share_session_epoch)
        return request

    def expire(self, now_ms: int) -> list[SessionEvent]:
        """Give acknowledgements up that wait too long, to be sent or to be answered; to be called again and again.

        What was sent may have been judged all the same. The session opens anew, since the leader may know no epoch
        that was not answered.
        """
        timeout_ms = self._settings.acknowledge_timeout_ms
        if timeout_ms is None or self._is_closing:
            return []
        expired: list[Acknowledgement] = []
        if not self._pending:
            self._pending_since_ms = None
        elif self._pending_since_ms is None:
            self._pending_since_ms = now_ms
        elif now_ms >= self._pending_since_ms + timeout_ms:
            expired += self._pending
            self._pending, self._pending_since_ms = PendingAcknowledgements(), None
        last = self._outstanding[-1] if self._outstanding else None
        if last is not None and last.request.acknowledgements and now_ms >= last.since_ms + timeout_ms:
            expired = [*last.request.acknowledgements, *expired]
            self._abandoned.extend(outstanding.request.correlation_id for outstanding in self._outstanding)
            self._outstanding = []
            self._epoch = INITIAL_EPOCH
        return settled(expired, RequestTimedOutError(f"The acknowledgement was not answered within {timeout_ms} ms."))

    def send_failed(self, now_ms: int) -> None:
        """What `next_request` gave last did not reach the log; it is sent again after a pause."""
        if self._outstanding:
            self._outstanding[-1].resend_at_ms = now_ms
            self._backoff.failed(now_ms)

    def reopen(self, now_ms: int) -> None:
        """Open the session anew: another processor has taken over, which knows nothing of this one.

        A fetch under way is lost; what it acquires after all is returned unread. Acknowledgements under way, and a
        close, are sent again at once, and the session opens when they are answered.
        """
        kept: list[_Outstanding] = []
        for outstanding in self._outstanding:
            if outstanding.request.acknowledgements or outstanding.request.is_final:
                outstanding.resend_at_ms = now_ms
                kept.append(outstanding)
            else:
                self._abandoned.append(outstanding.request.correlation_id)
        self._outstanding = kept
        self._epoch = INITIAL_EPOCH
        self._backoff.succeeded()

    def awaits(self, correlation_id: int) -> bool:
        """Return True if the answer to this request is not there yet."""
        return any(outstanding.request.correlation_id == correlation_id for outstanding in self._outstanding)

    def receive(self, correlation_id: int, response: ShareFetchResponse, now_ms: int) -> list[SessionEvent]:
        """Take an answer; one that was seen before changes nothing."""
        ids = [outstanding.request.correlation_id for outstanding in self._outstanding]
        if correlation_id not in ids:
            if correlation_id in self._abandoned:
                self._abandoned.remove(correlation_id)
                self._return_unread(response)
            return []
        position = ids.index(correlation_id)
        # The answer to the later request also ends the parked fetch before it, which carried no acknowledgements.
        self._abandoned.extend(ids[:position])
        answered = self._outstanding[position].request
        del self._outstanding[: position + 1]
        if response.error_code:
            return self._refused(answered, api_error(response.error_code, response.error_message), now_ms)
        if answered.is_final:
            self.is_closed = True
        return self._answered(answered, response, now_ms)

    @property
    def _can_send(self) -> bool:
        if not self._outstanding:
            return True
        return len(self._outstanding) == 1 and self._outstanding[0].request.may_be_parked

    def _running_request(self, max_records: int) -> SessionRequest | None:
        fetches = max_records > 0 and bool(self._partitions)
        if self._epoch == INITIAL_EPOCH:
            if self._pending:
                return self._fetch(max_records=0)
            return self._fetch(max_records) if fetches else None
        if self._pending:
            # A fetch adds the partitions that it names to the session, so it carries nothing for any other.
            if fetches and self._partitions.issuperset(self._pending.partitions):
                return self._fetch(max_records)
            return self._acknowledge(self._epoch)
        if fetches and (not self._outstanding or self._partitions != self._partitions_of_leader):
            return self._fetch(max_records)
        return None

    def _closing_request(self) -> SessionRequest | None:
        if self._outstanding:
            # Ends the parked fetch; if that brings records after all, they can be returned before the close.
            return self._acknowledge(self._epoch)
        if (self._epoch == INITIAL_EPOCH or self._keeps_locks) and not self._pending:
            self.is_closed = True
            return None
        if self._epoch == INITIAL_EPOCH:
            return self._fetch(max_records=0)
        goes_on = self._keeps_locks or len(self._pending) > MAX_RANGES_PER_REQUEST
        return self._acknowledge(self._epoch if goes_on else FINAL_EPOCH)

    def _fetch(self, max_records: int) -> SessionRequest:
        opens = self._epoch == INITIAL_EPOCH
        acknowledgements = () if opens else self._taken()
        known = set() if opens else self._partitions_of_leader
        forgotten: dict[str, list[int]] = {}
        for topic_id, partition in sorted(known - self._partitions):
            forgotten.setdefault(topic_id, []).append(partition)
        body = ShareFetchRequest(
            share_session_epoch=self._epoch,
            max_wait_ms=self._settings.max_wait_ms if max_records else 0,
            max_records=max_records,
            batch_size=self._settings.batch_size,
            acquire_mode=self._settings.acquire_mode,
            topics=topics_with(self._partitions - known, acknowledgements),
            forgotten_topics_data=[ForgottenTopic(topic_id=t, partitions=found) for t, found in forgotten.items()],
        )
        self._partitions_of_leader = set(self._partitions)
        return SessionRequest(next(self._correlation_ids), ApiKey.SHARE_FETCH, body, acknowledgements)

    def _acknowledge(self, epoch: int) -> SessionRequest:
        acknowledgements = self._taken()
        body = ShareAcknowledgeRequest(share_session_epoch=epoch, topics=topics_with((), acknowledgements))
        return SessionRequest(next(self._correlation_ids), ApiKey.SHARE_ACKNOWLEDGE, body, acknowledgements)

    def _taken(self) -> tuple[Acknowledgement, ...]:
        # What is left, and what comes now, waits for the answer to these only.
        self._pending_since_ms = None
        return tuple(self._pending.take(MAX_RANGES_PER_REQUEST))

    def _refused(self, answered: SessionRequest, error: ApiError, now_ms: int) -> list[SessionEvent]:
        """Begin a new session; the leader judged nothing of this request.

        It may judge the acknowledgements of the one after it, so the session opens when that one is answered.
        """
        self._epoch = INITIAL_EPOCH
        later, self._outstanding = self._outstanding, []
        for outstanding in later:
            if outstanding.request.acknowledgements:
                self._outstanding.append(outstanding)
            else:
                self._abandoned.append(outstanding.request.correlation_id)
        if not self._outstanding:
            self._backoff.failed(now_ms)
        if not error.retriable:
            return settled(answered.acknowledgements, error)
        self._put_back(answered.acknowledgements)
        return []

    def _answered(self, answered: SessionRequest, response: ShareFetchResponse, now_ms: int) -> list[SessionEvent]:
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        events: list[SessionEvent] = []
        failed = False
        for key, acknowledgements in by_partition(answered.acknowledgements).items():
            error = acknowledge_error(answers.get(key))
            if isinstance(error, CoordinatorLoadInProgressError) and not answered.is_final:
                self._put_back(acknowledgements)
                failed = True
            else:
                events.append(Acknowledged(tuple(acknowledgements), error))
        records = acquired_records(response)
        if records:
            deadline_ms, timeout_ms = response.lock_deadline_ms, response.acquisition_lock_timeout_ms
            asked = answered.body.max_records if isinstance(answered.body, ShareFetchRequest) else 0
            events.append(Acquired(records, deadline_ms, timeout_ms, response.isolation_level, asked))
        if failed or (not records and any(partition.error_code for partition in answers.values())):
            self._backoff.failed(now_ms)
        else:
            self._backoff.succeeded()
        return events

    def _put_back(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        for acknowledgement in acknowledgements:
            self._pending.put_back(acknowledgement)

    def _return_unread(self, response: ShareFetchResponse) -> None:
        for held in acquired_records(response):
            self._pending.put_back(
                Acknowledgement(
                    held.topic_id,
                    held.partition,
                    held.first_offset,
                    held.last_offset,
                    AcknowledgeType.UNREAD,
                    "the answer came after the session was opened again",
                )
            )
