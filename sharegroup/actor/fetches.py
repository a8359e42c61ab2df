"""Service of waiting fetches: in order of arrival, each at most its fair part of the available records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from sharegroup.actor.acknowledgements import grouped_by_topic
from sharegroup.actor.context import CutTime
from sharegroup.actor.holders import Holders
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.share_session import PendingFetch, ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.actor.suspect_turns import SuspectTurns, Turn
from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.open_writes import OpenWrite
from sharegroup.core.records import PartitionKey, SharePartitionLimits
from sharegroup.core.run import Run
from sharegroup.protocol.messages import changed, constructed
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse
from sharegroup.protocol.sink_writes import AcquisitionWrite, Sink, UnresolvedWrite

MAX_RANGES_PER_RESPONSE = 10_000
"""Ranges of one response, about a megabyte; those of the share-partition that exceeds it are all in."""

ServedFetch = tuple[ShareSession, ShareFetchResponse]
"""A session, and the response to its parked fetch."""


class _Terms(NamedTuple):
    """The terms of all fetches of a cut: the limits and the isolation level in force, the cut's time, and a pause.

    Attributes:
        most_writes: open writes of each sink; None if the group does not write exactly once.
    """

    limits: SharePartitionLimits
    isolation_level: IsolationLevel
    now_ms: int
    is_paused: bool
    most_writes: int | None

    def allow(self, fetch: PendingFetch) -> bool:
        """Return True if a fetch may acquire records."""
        has_sink = fetch.sink is not None
        return not self.is_paused and fetch.acquires_at(self.now_ms) and has_sink is (self.most_writes is not None)


class FetchService:
    """Service of a group's fetches at the end of each cut.

    It keeps the share-partitions that have records to acquire, so that the cost of a fetch grows with those and not
    with its session. A parked fetch got no records, so it is served again only when one of its partitions changed.
    """

    def __init__(
        self, sessions: ShareSessions, partitions: LedPartitions, holders: Holders, offsets: KnownOffsets
    ) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._offsets = offsets
        self._acquirable: dict[PartitionKey, int] = {}
        """Share-partition → records without suspects that can be acquired; only where there are some."""
        self._turns = SuspectTurns(holders)

    def serve(
        self,
        limits: SharePartitionLimits,
        isolation_level: IsolationLevel,
        time: CutTime,
        *,
        is_paused: bool = False,
        most_writes: int | None = None,
    ) -> list[ServedFetch]:
        """Acquire records for waiting fetches, and return those that get a response now.

        A fetch is complete when it got records or writes to look up, carried acknowledgements, met an error, has waited
        long enough, or has to come again for a write.
        """
        terms = _Terms(limits, isolation_level, time.lock_start_ms, is_paused, most_writes)
        changed = self._partitions.take_changed(terms.now_ms)
        for key in changed:
            self._refresh(key, terms)
        waiting = self._waiting(changed, terms.now_ms)
        if not waiting:
            self._sessions.new_fetches.clear()
            return []
        claims = _Claims([session for session, fetch in waiting if terms.allow(fetch)], self._sessions)
        served = []
        for session, fetch in waiting:
            responses = dict(fetch.acknowledged)
            if fetch.max_records:
                _refuse_unknown(session, self._partitions, responses)
            write, comes_again = None, False
            if terms.allow(fetch):
                write = self._next_write(fetch, terms)
                if write is not None or fetch.sink is None:
                    for key, runs in self._acquired(session, fetch, terms, claims, write):
                        responses[key] = _with_records(key, responses.get(key), runs)
                else:
                    comes_again = self._is_overtaken(fetch.sink, terms)
                claims.withdraw()
            unresolved = self._unresolved(fetch, terms.now_ms)
            if responses or unresolved or comes_again or fetch.deadline_ms <= terms.now_ms:
                body = _response(session, responses, terms)
                served.append((session, _with_writes(body, write, unresolved)))
        # The acquisitions of this service have already updated its index.
        self._partitions.changed.clear()
        self._sessions.new_fetches.clear()
        return served

    def _refresh(self, key: PartitionKey, terms: _Terms) -> None:
        """Update the number of records of a share-partition that can be acquired now."""
        led = self._partitions.get(key)
        count = suspect_count = 0
        if led is not None and not led.is_ending:
            end = self._offsets.acquirable_end(key, terms.isolation_level)
            count = led.share_partition.acquirable_count(terms.limits, end, terms.now_ms)
            suspect_count = led.share_partition.acquirable_suspect_count(end, terms.now_ms)
        self._turns.refresh(key, suspect_count)
        if count:
            self._acquirable[key] = count
        else:
            self._acquirable.pop(key, None)

    def _waiting(self, changed: Iterable[PartitionKey], now_ms: int) -> list[tuple[ShareSession, PendingFetch]]:
        """Return the fetches that are new, due, or wait for a changed partition or a turn, in order of arrival."""
        member_ids = {*self._sessions.new_fetches, *self._sessions.fetch_deadlines.take_due(now_ms)}
        member_ids.update(self._turns.take_changed())
        if woken := self._partitions.writes.take_woken_tables(now_ms):
            member_ids.update(session.member_id for session in self._sessions if _writes_to(session.pending, woken))
        for key in changed:
            if key in self._acquirable or key in self._turns.waiting or key not in self._partitions:
                member_ids.update(session.member_id for session in self._sessions.waiting_at(key))
        waiting = [
            (session, session.pending)
            for member_id in member_ids
            if (session := self._sessions.get(member_id)) is not None and session.pending is not None
        ]
        return sorted(waiting, key=lambda entry: entry[1].request_offset)

    def _acquired(
        self, session: ShareSession, fetch: PendingFetch, terms: _Terms, claims: _Claims, write: OpenWrite | None
    ) -> Iterator[tuple[PartitionKey, list[Run]]]:
        """Acquire records for a fetch, and yield them by share-partition until it has enough."""
        wanted = fetch.max_records
        range_count = 0
        turn = self._turns.turn_of(session, terms.now_ms, terms.limits.lock_duration_ms)
        takes_suspects = turn is Turn.SUSPECTS
        acquirable = {} if turn is Turn.NOTHING else self._turns.waiting if takes_suspects else self._acquirable
        for key in session.rotated(acquirable):
            fair_part = claims.fair_part(key, acquirable[key])
            request = AcquireRequest(
                session.member_id, wanted, fetch.batch_size, fetch.acquire_mode, fair_part, takes_suspects
            )
            led = self._partitions[key]
            end = self._offsets.acquirable_end(key, terms.isolation_level)
            runs, records = led.share_partition.acquire(request, terms.limits, end, terms.now_ms, write)
            self._partitions.record(led, records, terms.now_ms, fetch.request_offset)
            self._refresh(key, terms)
            if runs:
                yield key, runs
            wanted -= sum(run.size for run in runs)
            range_count += len(runs)
            if takes_suspects or wanted <= 0 or range_count >= MAX_RANGES_PER_RESPONSE:
                break

    def _next_write(self, fetch: PendingFetch, terms: _Terms) -> OpenWrite | None:
        """Return the write for the records that a fetch may acquire; it is opened with the first of them."""
        if fetch.sink is None or terms.most_writes is None:
            return None
        return self._partitions.writes.next_write(fetch.sink, fetch.request_offset, terms.most_writes, terms.now_ms)

    def _is_overtaken(self, sink: Sink, terms: _Terms) -> bool:
        """Return True if a fetch got no write only because later ones did: one that is sent now gets a write."""
        return terms.most_writes is not None and not self._partitions.writes.is_full(sink, terms.most_writes)

    def _unresolved(self, fetch: PendingFetch, now_ms: int) -> list[UnresolvedWrite]:
        """Return the writes that the member of a fetch is to look up in its sink."""
        if fetch.sink is None:
            return []
        return [UnresolvedWrite.of(write) for write in self._partitions.writes.hand_out(fetch.sink.table_id, now_ms)]


class _Claims:
    """Counts of unserved fetches that want records of a share-partition: these share it fairly."""

    def __init__(self, claimants: Iterable[ShareSession], sessions: ShareSessions) -> None:
        self._rank = {session.member_id: rank for rank, session in enumerate(claimants)}
        self._sessions = sessions
        self._ranks_at: dict[PartitionKey, list[int]] = {}
        self._served_count = 0

    def fair_part(self, key: PartitionKey, acquirable_count: int) -> int | None:
        """Return the fair part of a share-partition for the fetch that is being served; None if no other waits."""
        ranks = self._ranks_at.get(key)
        if ranks is None:
            members = (session.member_id for session in self._sessions.waiting_at(key))
            ranks = sorted(self._rank[member_id] for member_id in members if member_id in self._rank)
            self._ranks_at[key] = ranks
        claim_count = len(ranks) - bisect_left(ranks, self._served_count)
        return -(-acquirable_count // claim_count) if claim_count > 1 else None

    def withdraw(self) -> None:
        """Remove the next fetch, which has been served."""
        self._served_count += 1


def _refuse_unknown(
    session: ShareSession, partitions: LedPartitions, responses: dict[PartitionKey, PartitionResponse]
) -> None:
    """Respond with an error for the partitions that are not led here, whose text comes once for each topic."""
    topic_id = None
    for key in sorted(session.unknown):
        error = partitions.not_led_error(key)
        response = responses.get(key) or constructed(PartitionResponse, partition_index=key[1])
        text = str(error) if key[0] != topic_id else ""
        responses[key] = changed(response, error_code=error.code, error_message=text)
        topic_id = key[0]


def _with_records(key: PartitionKey, response: PartitionResponse | None, runs: Iterable[Run]) -> PartitionResponse:
    """Return the response for a share-partition with the records that were acquired there."""
    acquired = [AcquiredRecords.of(run) for run in runs]
    if response is None:
        return constructed(PartitionResponse, partition_index=key[1], acquired_records=acquired)
    return changed(response, acquired_records=acquired)


def _writes_to(fetch: PendingFetch | None, table_ids: Container[str]) -> bool:
    return fetch is not None and fetch.sink is not None and fetch.sink.table_id in table_ids


def _with_writes(
    body: ShareFetchResponse, write: OpenWrite | None, unresolved: list[UnresolvedWrite]
) -> ShareFetchResponse:
    """Return a response with the write of the records that it acquires, and with writes to look up."""
    if unresolved:
        body = changed(body, unresolved=unresolved)
    if write is not None and body.lock_deadline_ms:
        opened = constructed(AcquisitionWrite, app_id=write.app_id, version=write.version)
        body = changed(body, write=opened)
    return body


def _response(
    session: ShareSession, responses: Mapping[PartitionKey, PartitionResponse], terms: _Terms
) -> ShareFetchResponse:
    has_records = any(response.acquired_records for response in responses.values())
    if has_records:
        session.rotate()
    return constructed(
        ShareFetchResponse,
        share_session_epoch=session.epoch,
        acquisition_lock_timeout_ms=terms.limits.lock_duration_ms,
        lock_deadline_ms=terms.now_ms + terms.limits.lock_duration_ms if has_records else 0,
        isolation_level=terms.isolation_level,
        responses=grouped_by_topic(responses),
    )
