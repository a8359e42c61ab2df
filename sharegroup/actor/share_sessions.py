"""All open share sessions of a group: which request belongs to which, and how many there may be (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import ShareSessionsCounted
from sharegroup.actor.share_session import MAX_SESSION_PARTITIONS, PartitionKey, ShareSession
from sharegroup.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.share_fetch import FINAL_EPOCH, FetchTopic


class ShareSessions:
    """The open share sessions, by member.

    Args:
        limit: `group.share.max.share.sessions`.
        sessions: those that are open.

    Attributes:
        eviction_count: idle sessions that made room for another one.
    """

    def __init__(self, limit: int, sessions: Iterable[ShareSession] = ()) -> None:
        self._limit = limit
        self.eviction_count = 0
        self._sessions = {session.member_id: session for session in sessions}

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def counted(self, group_id: str, expired_fetch_count: int) -> ShareSessionsCounted:
        """What metrics say of them at the end of a batch."""
        partitions = sum(len(session.partitions) for session in self)
        return ShareSessionsCounted(group_id, len(self._sessions), partitions, self.eviction_count, expired_fetch_count)

    def get(self, member_id: str) -> ShareSession | None:
        """The session of a member, None when it has none."""
        return self._sessions.get(member_id)

    def close(self, session: ShareSession) -> None:
        """Forget a session."""
        del self._sessions[session.member_id]

    def opened(self, message: LoggedRequest, topics: Sequence[FetchTopic], idle_timeout_ms: int) -> ShareSession:
        """A new session, in place of the one that its member may have.

        A member that is gone leaves its session open. It makes room once the limit is reached: the session that
        has been idle longest, if for longer than the timeout. What its member holds stays locked, as it would be.

        Args:
            message: the request with epoch 0.
            topics: the partitions that it names.
            idle_timeout_ms: `share.session.timeout.ms`.

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
        _check_size((), topics)
        if envelope.member_id not in self._sessions and len(self._sessions) >= self._limit:
            self._make_room(message.time_ms - idle_timeout_ms)
        session = ShareSession(envelope.member_id)
        self._sessions[envelope.member_id] = session
        return session

    def continued(self, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic]) -> ShareSession:
        """The session that a request with an epoch other than 0 goes on with.

        Raises:
            InvalidRequestError: the session would have too many partitions.
            ShareSessionNotFoundError: the member has none.
            InvalidShareSessionEpochError: the epoch is neither the next one nor -1.
        """
        session = self._sessions.get(message.envelope.member_id)
        if session is None:
            raise ShareSessionNotFoundError(
                f"Member {message.envelope.member_id} has no open share session.", "Open one with epoch 0."
            )
        if epoch != FINAL_EPOCH:
            session.check_epoch(epoch)
        if message.envelope.api_key == ApiKey.SHARE_FETCH:
            _check_size(session.partitions, topics)
        return session

    def _make_room(self, idle_since_ms: int) -> None:
        idle = [session for session in self if session.pending is None and session.last_request_ms < idle_since_ms]
        if not idle:
            raise ShareSessionLimitReachedError(
                f"The group has {len(self._sessions)} share sessions; group.share.max.share.sessions is {self._limit}."
            )
        self.close(min(idle, key=lambda session: session.last_request_ms))
        self.eviction_count += 1


def _check_size(known: Iterable[PartitionKey], topics: Iterable[FetchTopic]) -> None:
    named = {*known, *((topic.topic_id, p.partition_index) for topic in topics for p in topic.partitions)}
    if len(named) > MAX_SESSION_PARTITIONS:
        raise InvalidRequestError(
            f"The share session would have {len(named)} partitions; the most is {MAX_SESSION_PARTITIONS}.",
            "Forget some before others are added.",
        )
