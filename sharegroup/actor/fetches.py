"""Serving the fetches that wait: in order of arrival, each at most its fair part of what is available."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sharegroup.actor.answers import grouped_by_topic
from sharegroup.actor.context import CutTime
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.log_offsets import KnownOffsets
from sharegroup.actor.share_session import PartitionKey, PendingFetch, ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.records import SharePartitionLimits
from sharegroup.errors import UnknownTopicOrPartitionError
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse

MAX_RANGES_PER_ANSWER = 10_000
"""Ranges of one answer, about a megabyte; those of the share-partition that exceeds it are all in."""

ServedFetch = tuple[ShareSession, ShareFetchResponse]
"""A session, and the answer to its parked fetch."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of all fetches of a cut: the limits and the isolation level in force, and the cut's time."""

    limits: SharePartitionLimits
    isolation_level: IsolationLevel
    now_ms: int


class FetchService:
    """Serves the fetches of a group at the end of each cut.

    Keeps the share-partitions that have records to acquire, so that a fetch costs with those and not with all of its
    session. A parked fetch got nothing, so it is served again only when one of its partitions changed.

    Args:
        sessions: the share sessions.
        partitions: the share-partitions that are led here.
        offsets: what is known of the record log.
    """

    def __init__(self, sessions: ShareSessions, partitions: LedPartitions, offsets: KnownOffsets) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._offsets = offsets
        self._acquirable: dict[PartitionKey, int] = {}
        """Share-partition → records that can be acquired; only where there are some."""

    def serve(self, limits: SharePartitionLimits, isolation_level: IsolationLevel, time: CutTime) -> list[ServedFetch]:
        """Acquire records for fetches that wait; returns those that are answered now.

        A fetch is answered when it got records, carried acknowledgements, met an error, or has waited long enough.

        Args:
            limits: limits in force.
            isolation_level: the group's.
            time: the cut's time; new locks run from it.
        """
        terms = _Terms(limits, isolation_level, time.lock_start_ms)
        changed = self._partitions.take_changed(terms.now_ms)
        for key in changed:
            self._refresh(key, terms)
        waiting = self._waiting(changed, terms.now_ms)
        claims = _Claims([session for session, fetch in waiting if fetch.acquires_at(terms.now_ms)], self._sessions)
        served = []
        for session, fetch in waiting:
            responses = dict(fetch.acknowledged)
            if fetch.max_records:
                _refuse_unknown(session, responses)
            if fetch.acquires_at(terms.now_ms):
                self._acquire(session, fetch, terms, claims, responses)
                claims.withdraw()
            if responses or fetch.deadline_ms <= terms.now_ms:
                served.append((session, _response(session, responses, terms)))
        # What was acquired here has been looked at already.
        self._partitions.changed.clear()
        self._sessions.new_fetches.clear()
        return served

    def _refresh(self, key: PartitionKey, terms: _Terms) -> None:
        """Look at how many records of a share-partition can be acquired now."""
        led = self._partitions.get(key)
        count = 0
        if led is not None:
            end = self._offsets.acquirable_end(key, terms.isolation_level)
            count = led.share_partition.acquirable_count(terms.limits, end, terms.now_ms)
        if count:
            self._acquirable[key] = count
        else:
            self._acquirable.pop(key, None)

    def _waiting(self, changed: Iterable[PartitionKey], now_ms: int) -> list[tuple[ShareSession, PendingFetch]]:
        """The fetches that are new, due, or wait for a partition that changed for them, in order of arrival."""
        member_ids = {*self._sessions.new_fetches, *self._sessions.fetch_deadlines.take_due(now_ms)}
        for key in changed:
            if key in self._acquirable or key not in self._partitions:
                member_ids.update(session.member_id for session in self._sessions.waiting_at(key))
        waiting = [
            (session, session.pending)
            for member_id in member_ids
            if (session := self._sessions.get(member_id)) is not None and session.pending is not None
        ]
        return sorted(waiting, key=lambda entry: entry[1].request_offset)

    def _acquire(
        self,
        session: ShareSession,
        fetch: PendingFetch,
        terms: _Terms,
        claims: _Claims,
        responses: dict[PartitionKey, PartitionResponse],
    ) -> None:
        wanted = fetch.max_records
        range_count = 0
        for key in session.rotated(self._acquirable):
            count = self._acquirable[key]
            claim_count = claims.count(key)
            request = AcquireRequest(
                session.member_id,
                wanted,
                fetch.batch_size,
                fetch.acquire_mode,
                fair_part=-(-count // claim_count) if claim_count > 1 else None,
            )
            led = self._partitions[key]
            end = self._offsets.acquirable_end(key, terms.isolation_level)
            ranges, applied = led.share_partition.acquire(request, terms.limits, end, terms.now_ms)
            self._partitions.record(led, applied, terms.now_ms, fetch.request_offset)
            self._refresh(key, terms)
            if not ranges:
                continue
            acquired = [
                AcquiredRecords(first_offset=r.first_offset, last_offset=r.last_offset, delivery_count=r.delivery_count)
                for r in ranges
            ]
            answer = responses.get(key) or PartitionResponse(partition_index=key[1])
            responses[key] = answer.model_copy(update={"acquired_records": acquired})
            wanted -= sum(r.size for r in ranges)
            range_count += len(ranges)
            if wanted <= 0 or range_count >= MAX_RANGES_PER_ANSWER:
                break


class _Claims:
    """How many of the fetches that are not served yet want records of a share-partition: these divide it fairly.

    Args:
        claimants: the sessions whose fetches are served, in this order.
        sessions: all share sessions.
    """

    def __init__(self, claimants: Iterable[ShareSession], sessions: ShareSessions) -> None:
        self._rank = {session.member_id: rank for rank, session in enumerate(claimants)}
        self._sessions = sessions
        self._ranks_at: dict[PartitionKey, list[int]] = {}
        self._served_count = 0

    def count(self, key: PartitionKey) -> int:
        """Fetches that want records of a share-partition; the one that is being served is among them."""
        ranks = self._ranks_at.get(key)
        if ranks is None:
            members = (session.member_id for session in self._sessions.waiting_at(key))
            ranks = sorted(self._rank[member_id] for member_id in members if member_id in self._rank)
            self._ranks_at[key] = ranks
        return len(ranks) - bisect_left(ranks, self._served_count)

    def withdraw(self) -> None:
        """Note that the next fetch has been served."""
        self._served_count += 1


def _refuse_unknown(session: ShareSession, responses: dict[PartitionKey, PartitionResponse]) -> None:
    """Answer the partitions that are not led here with an error, whose text comes once for each topic."""
    topic_id = None
    for key in sorted(session.unknown):
        error = UnknownTopicOrPartitionError("The share-partitions are not led here.") if key[0] != topic_id else None
        topic_id = key[0]
        answer = responses.get(key) or PartitionResponse(partition_index=key[1])
        responses[key] = answer.model_copy(
            update={"error_code": UnknownTopicOrPartitionError.code, "error_message": str(error) if error else ""}
        )


def _response(
    session: ShareSession, responses: Mapping[PartitionKey, PartitionResponse], terms: _Terms
) -> ShareFetchResponse:
    has_records = any(response.acquired_records for response in responses.values())
    if has_records:
        session.rotate()
    return ShareFetchResponse(
        share_session_epoch=session.epoch,
        acquisition_lock_timeout_ms=terms.limits.lock_duration_ms,
        lock_deadline_ms=terms.now_ms + terms.limits.lock_duration_ms if has_records else 0,
        isolation_level=terms.isolation_level,
        responses=grouped_by_topic(responses),
    )
