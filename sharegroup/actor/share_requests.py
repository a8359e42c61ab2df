"""ShareFetch and ShareAcknowledge: which share session a request belongs to, and what it does on its arrival.

A fetch waits until the end of its cut at least, where all fetches are served together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sharegroup.actor.acknowledgements import acknowledge, acknowledged_before
from sharegroup.actor.answers import grouped_by_topic, response_to
from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Respond
from sharegroup.actor.fetches import MAX_RANGES_PER_ANSWER
from sharegroup.actor.kept_answers import kept_answer
from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.share_session import PartitionKey, PendingFetch, ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.core.records import SharePartitionLimits
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, decoded_response, parsed
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchTopic,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)

SHORTEST_PATIENCE_MS = 500
"""A member waits for its answer at least so long, even if its fetch is not to wait for records."""


class ShareRequests:
    """Applies the requests of members to their share sessions and to the share-partitions.

    Args:
        sessions: the share sessions.
        partitions: the share-partitions that are led here.
        last_requests: the last requests with a durable effect.
    """

    def __init__(self, sessions: ShareSessions, partitions: LedPartitions, last_requests: LastRequests) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._last_requests = last_requests
        self._answers: list[Respond] = []

    def take_answers(self) -> list[Respond]:
        """The answers since the last call, in order."""
        answers, self._answers = self._answers, []
        return answers

    def fetch(self, message: LoggedRequest, limits: SharePartitionLimits, longest_wait_ms: int) -> None:
        """Apply a ShareFetch; it is answered at the end of the cut or later.

        Args:
            message: the request.
            limits: limits in force.
            longest_wait_ms: a fetch waits no longer, whatever it asks for.

        Raises:
            ApiError: the request is refused, and changed nothing.
        """
        body = parsed(ShareFetchRequest, message.envelope.body)
        session = self._open_session(message, body, limits)
        if session is None:
            return
        added = [(topic.topic_id, p.partition_index) for topic in body.topics for p in topic.partitions]
        forgotten = [(topic.topic_id, p) for topic in body.forgotten_topics_data for p in topic.partitions]
        acknowledged = self._acknowledged(message, session.epoch, body.topics, limits)
        self._sessions.change_partitions(session, added, forgotten)
        # A fetch that waited longer than sessions live would keep the session of a member that is gone.
        wait_ms = 0 if acknowledged or not body.max_records else min(body.max_wait_ms, longest_wait_ms)
        fetch = PendingFetch(
            message.envelope.model_copy(update={"body": {}}),
            min(body.max_records, MAX_RANGES_PER_ANSWER * body.batch_size),
            body.batch_size,
            body.acquire_mode,
            message.time_ms + wait_ms,
            message.time_ms + max(body.max_wait_ms, SHORTEST_PATIENCE_MS),
            message.offset,
            acknowledged,
        )
        self._sessions.park(session, fetch)

    def acknowledge(self, message: LoggedRequest, limits: SharePartitionLimits) -> None:
        """Apply a ShareAcknowledge, and answer it.

        Args:
            message: the request.
            limits: limits in force.

        Raises:
            ApiError: the request is refused, and changed nothing.
        """
        body = parsed(ShareAcknowledgeRequest, message.envelope.body)
        session = self._open_session(message, body, limits)
        if session is None:
            return
        acknowledged = self._acknowledged(message, session.epoch, body.topics, limits)
        self._answer_acknowledgements(session, message.envelope, acknowledged)

    def answer_fetch(self, session: ShareSession, body: ShareFetchResponse, now_ms: int) -> None:
        """Answer the parked fetch of a session, if there is one."""
        fetch = self._sessions.unpark(session, now_ms)
        if fetch is not None:
            self._answer(session, fetch.envelope, body)

    def answer_without_records(self, session: ShareSession, now_ms: int) -> None:
        """Answer the parked fetch of a session, if there is one, before it is served."""
        if session.pending is not None:
            responses = grouped_by_topic(session.pending.acknowledged)
            self.answer_fetch(
                session, ShareFetchResponse(share_session_epoch=session.epoch, responses=responses), now_ms
            )

    def _open_session(
        self, message: LoggedRequest, body: ShareFetchRequest | ShareAcknowledgeRequest, limits: SharePartitionLimits
    ) -> ShareSession | None:
        """The session that a request goes on with; None when nothing more is to be done for it, as after a close."""
        session = self._session(message, body.share_session_epoch, body.topics, limits)
        if session is not None and body.share_session_epoch == FINAL_EPOCH:
            self._close(session, message, body.topics, limits)
            return None
        return session

    def _session(
        self, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic], limits: SharePartitionLimits
    ) -> ShareSession | None:
        """The session that a request belongs to; None when nothing more is to be done for it."""
        envelope = message.envelope
        before = self._sessions.get(envelope.member_id)
        if before is not None and before.is_repeat(envelope, epoch):
            if before.kept_answer is not None:
                self._respond(envelope, decoded_response(before.kept_answer))
            return None
        repeated = None if epoch == INITIAL_EPOCH else self._last_requests.repeated_by(envelope, epoch)
        if repeated is not None:
            self._answer_without_session(envelope, epoch, acknowledged_before(topics, repeated.refused))
            return None
        if before is None and epoch != INITIAL_EPOCH and self._applied_without_session(message, epoch, topics, limits):
            return None
        if epoch == INITIAL_EPOCH:
            self._sessions.check_opening(message, topics)
        else:
            self._sessions.checked(message, epoch, topics)
        if before is not None:
            self.answer_without_records(before, message.time_ms)
        session = before
        if session is None or epoch == INITIAL_EPOCH:
            session = self._sessions.open(envelope.member_id)
        session.accept(envelope, epoch, message.time_ms)
        self._sessions.heard(session)
        return session

    def _applied_without_session(
        self, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic], limits: SharePartitionLimits
    ) -> bool:
        """Apply the acknowledgements of a member whose session is not known, but whose locks are.

        A takeover brings locks back, not sessions. What was appended before a lock's deadline counts all the same;
        the member learns that its session is gone when it fetches.
        """
        envelope = message.envelope
        acknowledges = any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions)
        if not acknowledges or not self._partitions.held_by(envelope.member_id):
            return False
        last = self._last_requests.get(envelope.member_id)
        if last is not None and envelope.correlation_id < last.correlation_id:
            # It came before the last one, and so it was applied: this is a repeat that a producer sent late.
            return False
        acknowledged = self._acknowledged(message, epoch, topics, limits)
        if epoch == FINAL_EPOCH:
            self._release(message, epoch, limits, acknowledged)
        self._answer_without_session(envelope, epoch, acknowledged)
        return True

    def _close(
        self, session: ShareSession, message: LoggedRequest, topics: Sequence[FetchTopic], limits: SharePartitionLimits
    ) -> None:
        acknowledged = self._acknowledged(message, FINAL_EPOCH, topics, limits)
        self._release(message, FINAL_EPOCH, limits, acknowledged)
        self._sessions.close(session)
        self._answer_without_session(message.envelope, FINAL_EPOCH, acknowledged)

    def _release(
        self,
        message: LoggedRequest,
        epoch: int,
        limits: SharePartitionLimits,
        acknowledged: Mapping[PartitionKey, PartitionResponse],
    ) -> None:
        """Release everything that the member of a message still holds."""
        member_id = message.envelope.member_id
        for led in self._partitions.held_by(member_id):
            released = led.share_partition.release_member(member_id, limits, message.time_ms)
            self._partitions.record(led, released, message.time_ms, message.offset)
            self._last_requests.note(message.envelope, epoch, acknowledged)

    def _acknowledged(
        self, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic], limits: SharePartitionLimits
    ) -> dict[PartitionKey, PartitionResponse]:
        acknowledged = acknowledge(message, topics, self._partitions, limits)
        if acknowledged.has_effect:
            self._last_requests.note(message.envelope, epoch, acknowledged.responses)
        return acknowledged.responses

    def _answer_acknowledgements(
        self, session: ShareSession, envelope: RequestEnvelope, acknowledged: Mapping[PartitionKey, PartitionResponse]
    ) -> None:
        body = ShareFetchResponse(share_session_epoch=session.epoch, responses=grouped_by_topic(acknowledged))
        self._answer(session, envelope, body)

    def _answer_without_session(
        self, envelope: RequestEnvelope, epoch: int, acknowledged: Mapping[PartitionKey, PartitionResponse]
    ) -> None:
        body = ShareFetchResponse(share_session_epoch=epoch, responses=grouped_by_topic(acknowledged))
        self._respond(envelope, response_to(envelope, body))

    def _answer(self, session: ShareSession, envelope: RequestEnvelope, body: ShareFetchResponse) -> None:
        response = response_to(envelope, body)
        session.kept_answer = kept_answer(envelope, response, body)
        self._respond(envelope, response)

    def _respond(self, envelope: RequestEnvelope, response: ResponseEnvelope) -> None:
        if envelope.reply_partition >= 0:
            self._answers.append(Respond(envelope.reply_partition, response))
