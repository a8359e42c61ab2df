"""Service of waiting fetches: in order of arrival, each at most its fair part of the available records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
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
from sharegroup.core.records import PartitionKey, SharePartitionLimits
from sharegroup.core.run import Run
from sharegroup.protocol.messages import changed, constructed
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse

MAX_RANGES_PER_RESPONSE = 10_000
"""Ranges of one response, about a megabyte; those of the share-partition that exceeds it are all in."""

ServedFetch = tuple[ShareSession, ShareFetchResponse]
"""A session, and the response to its parked fetch."""


class _Terms(NamedTuple):
    """The terms of all fetches of a cut: the limits and the isolation level in force, the cut's time, and a pause."""

    limits: SharePartitionLimits
    isolation_level: IsolationLevel
    now_ms: int
    is_paused: bool

    def allow(self, fetch: PendingFetch) -> bool:
        """Return True if a fetch may acquire records."""
        return not self.is_paused and fetch.acquires_at(self.now_ms)


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
    ) -> list[ServedFetch]:
        """Acquire records for waiting fetches, and return those that get a response now.

        A fetch is complete when it got records, carried acknowledgements, met an error, or has waited long enough.
        """
        terms = _Terms(limits, isolation_level, time.lock_start_ms, is_paused)
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
            if terms.allow(fetch):
                for key, runs in self._acquired(session, fetch, terms, claims):
                    responses[key] = _with_records(key, responses.get(key), runs)
                claims.withdraw()
            if responses or fetch.deadline_ms <= terms.now_ms:
                served.append((session, _response(session, responses, terms)))
        # The acquisitions of this service have already updated its index.
        self._partitions.changed.clear()
        self._sessions.new_fetches.clear()
        return served

    def _refresh(self, key: PartitionKey, terms: _Terms) -> None:
        """Update the number of records of a share-partition that can be acquired now."""
        led = self._partitions.get(key)
        count = suspect_count = 0
        if led is not None:
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
        self, session: ShareSession, fetch: PendingFetch, terms: _Terms, claims: _Claims
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
            runs, records = led.share_partition.acquire(request, terms.limits, end, terms.now_ms)
            self._partitions.record(led, records, terms.now_ms, fetch.request_offset)
            self._refresh(key, terms)
            if runs:
                yield key, runs
            wanted -= sum(run.size for run in runs)
            range_count += len(runs)
            if takes_suspects or wanted <= 0 or range_count >= MAX_RANGES_PER_RESPONSE:
                break


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
