"""All open share sessions of a group: their requests, and their limits (KIP-932)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import ShareSessionsCounted
from sharegroup.actor.share_session import (
    MAX_SESSION_PARTITIONS,
    MAX_UNKNOWN_PARTITIONS,
    PendingFetch,
    ShareSession,
)
from sharegroup.core.due_times import DueTimes
from sharegroup.core.records import PartitionKey
from sharegroup.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.share_fetch import FINAL_EPOCH, FetchTopic, ForgottenTopic


class ShareSessions:
    """The open share sessions, by member, with an index for each query of a cut.

    Args:
        limit: `group.share.max.share.sessions`.
        timeout_ms: `share.session.timeout.ms`: the session of a member that is silent for this time ends.

    Attributes:
        fetch_deadlines: the time at which each parked fetch is completed even without records, by member.
        notice_times: the time of the next notice for a parked fetch to those that hold records, by member.
        new_fetches: members whose fetch came in this cut.
        unwatched: led partitions of sessions that are to be watched as soon as a fetch waits there.
        left: partitions that were taken from a session in this cut.
    """

    def __init__(self, limit: int, led: Container[PartitionKey], timeout_ms: int) -> None:
        self._limit = limit
        self._led = led
        self._timeout_ms = timeout_ms
        self._sessions: dict[str, ShareSession] = {}
        self._by_partition: dict[PartitionKey, dict[str, ShareSession]] = {}
        self.fetch_deadlines: DueTimes[str] = DueTimes()
        self.notice_times: DueTimes[str] = DueTimes()
        self._timeouts: DueTimes[str] = DueTimes()
        self.new_fetches: set[str] = set()
        self.unwatched: set[PartitionKey] = set()
        self.left: set[PartitionKey] = set()
        self._partition_count = 0
        self._ended_count = 0
        self._counted: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the next parked fetch is to be completed or has a notice, or the next session ends."""
        deadlines_ms = (
            self.fetch_deadlines.earliest_ms,
            self.notice_times.earliest_ms,
            self._timeouts.earliest_ms,
        )
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=None)

    def take_count(self, group_id: str, expired_fetch_count: int) -> list[ShareSessionsCounted]:
        """Return the effect that reports the sessions for metrics; none without a change since the last call."""
        counted = (len(self._sessions), self._partition_count)
        ended_count, self._ended_count = self._ended_count, 0
        if counted == self._counted and not ended_count and not expired_fetch_count:
            return []
        self._counted = counted
        return [ShareSessionsCounted(group_id, *counted, ended_count, expired_fetch_count)]

    def get(self, member_id: str) -> ShareSession | None:
        """Return the session of a member, None when it has none."""
        return self._sessions.get(member_id)

    def waiting_at(self, key: PartitionKey) -> Iterator[ShareSession]:
        """Iterate over the sessions with a fetch that waits for a partition."""
        return (session for session in self._by_partition.get(key, {}).values() if session.pending is not None)

    def is_used(self, key: PartitionKey) -> bool:
        """Return True if a session has the partition."""
        return key in self._by_partition

    def check_opening(self, message: LoggedRequest, topics: Sequence[FetchTopic]) -> None:
        """Check that a request with epoch 0 can open a session.

        Raises:
            InvalidRequestError: the member has no id, the request carries acknowledgements, or names too many
                partitions.
            InvalidShareSessionEpochError: a ShareAcknowledge cannot open a session.
            ShareSessionLimitReachedError: too many sessions are open.
        """
        envelope = message.envelope
        if not envelope.member_id:
            raise InvalidRequestError("MemberId can't be empty.", "The client must generate one, a base64 UUID.")
        if envelope.api_key != ApiKey.SHARE_FETCH:
            raise InvalidShareSessionEpochError("A share session opens with a ShareFetch, not with a ShareAcknowledge.")
        if any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions):
            raise InvalidRequestError("The request that opens a share session cannot carry acknowledgements.")
        self._check_size(None, topics)
        if envelope.member_id not in self._sessions and len(self._sessions) >= self._limit:
            raise ShareSessionLimitReachedError(
                f"The group has {len(self._sessions)} share sessions; group.share.max.share.sessions is {self._limit}."
            )

    def checked(
        self, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic], forgotten: Sequence[ForgottenTopic]
    ) -> ShareSession:
        """Return the session of a request with an epoch other than 0, after all checks.

        Raises:
            InvalidRequestError: the session would have too many partitions.
            ShareSessionNotFoundError: the member has none.
            InvalidShareSessionEpochError: the epoch is neither the next one nor -1, or the request is older than the
                last one of the session.
        """
        session = self._sessions.get(message.envelope.member_id)
        if session is None:
            raise ShareSessionNotFoundError(
                f"Member {message.envelope.member_id} has no open share session.", "Open one with epoch 0."
            )
        session.check_order(message.envelope)
        if epoch != FINAL_EPOCH:
            session.check_epoch(epoch)
            if message.envelope.api_key == ApiKey.SHARE_FETCH:
                self._check_size(session, topics, forgotten)
        return session

    def open(self, member_id: str) -> ShareSession:
        """Open a session; it replaces the one that its member may have."""
        before = self._sessions.get(member_id)
        if before is not None:
            self.close(before)
        session = ShareSession(member_id)
        self._sessions[member_id] = session
        return session

    def close(self, session: ShareSession) -> None:
        """Remove a session."""
        self.unpark(session, session.silent_since_ms)
        self._leave(session, session.partitions)
        self._timeouts.set(session.member_id, None)
        del self._sessions[session.member_id]

    def end_silent(self, now_ms: int) -> None:
        """End the sessions of members that were silent for too long; the locks of their records stay."""
        for member_id in self._timeouts.take_due(now_ms):
            self.close(self._sessions[member_id])
            self._ended_count += 1

    def change_timeout(self, timeout_ms: int) -> None:
        """Apply a changed `share.session.timeout.ms`."""
        if timeout_ms == self._timeout_ms:
            return
        self._timeout_ms = timeout_ms
        for session in self:
            self.heard(session)

    def heard(self, session: ShareSession) -> None:
        """Restart the timeout of a session at its member's last activity; one with a parked fetch has none."""
        ends_ms = session.silent_since_ms + self._timeout_ms if session.pending is None else None
        self._timeouts.set(session.member_id, ends_ms)

    def change_partitions(
        self, session: ShareSession, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add partitions to a session and remove others."""
        new = [key for key in dict.fromkeys(added) if key not in session]
        if new:
            for key in new:
                self._by_partition.setdefault(key, {})[session.member_id] = session
                if key in self._led:
                    self.unwatched.add(key)
                else:
                    session.unknown.add(key)
            session.change_partitions(new, ())
            self._partition_count += len(new)
        gone = [key for key in dict.fromkeys(forgotten) if key in session]
        if gone:
            session.change_partitions((), gone)
            self._leave(session, gone)

    def park(self, session: ShareSession, fetch: PendingFetch) -> None:
        """Park a fetch; it is served at the end of the cut, and then whenever its partitions change."""
        session.pending = fetch
        self.new_fetches.add(session.member_id)
        self.fetch_deadlines.set(session.member_id, fetch.deadline_ms)
        self.heard(session)

    def unpark(self, session: ShareSession, now_ms: int) -> PendingFetch | None:
        """Remove and return the parked fetch, which is about to be completed; None when there is none."""
        fetch, session.pending = session.pending, None
        if fetch is not None:
            self.new_fetches.discard(session.member_id)
            self.fetch_deadlines.set(session.member_id, None)
            self.notice_times.set(session.member_id, None)
            session.silent_since_ms = max(session.silent_since_ms, now_ms)
            self.heard(session)
        return fetch

    def led_changed(self, key: PartitionKey) -> None:
        """Update the sessions after a share-partition was added to the led ones or removed."""
        for session in self._by_partition.get(key, {}).values():
            if key in self._led:
                session.unknown.discard(key)
                self.unwatched.add(key)
            else:
                session.unknown.add(key)

    def _leave(self, session: ShareSession, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            sessions = self._by_partition[key]
            del sessions[session.member_id]
            self._partition_count -= 1
            if not sessions:
                del self._by_partition[key]
                self.unwatched.discard(key)
                self.left.add(key)

    def _check_size(
        self, session: ShareSession | None, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic] = ()
    ) -> None:
        new = {
            key
            for topic in topics
            for p in topic.partitions
            if (key := (topic.topic_id, p.partition_index)) and (session is None or key not in session)
        }
        if not new:
            return
        known_count = unknown_count = 0
        if session is not None:
            gone = {(topic.topic_id, partition) for topic in forgotten for partition in topic.partitions}
            known_count = len(session.partitions) - sum(key in session for key in gone)
            unknown_count = len(session.unknown - gone)
        if known_count + len(new) > MAX_SESSION_PARTITIONS:
            raise InvalidRequestError(
                f"The share session would have {known_count + len(new)} partitions; "
                f"the most is {MAX_SESSION_PARTITIONS}.",
                "Forget some before others are added.",
            )
        unknown_count += sum(key not in self._led for key in new)
        if unknown_count > MAX_UNKNOWN_PARTITIONS:
            raise InvalidRequestError(
                f"The share session would have {unknown_count} partitions that are not led here; "
                f"the most is {MAX_UNKNOWN_PARTITIONS}.",
                "Fetch from assigned partitions, and forget those of deleted topics.",
            )
