"""ShareFetch and ShareAcknowledge: the share session of a request, and its effect on arrival.

A fetch waits until the end of its cut at least, where all fetches are served together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from sharegroup.actor.acknowledgements import acknowledge, acknowledged_before, grouped_by_topic
from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Address, Respond, address_of, response_to
from sharegroup.actor.fetches import MAX_RANGES_PER_RESPONSE
from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.share_session import PendingFetch, ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.actor.sink_checks import check_knows_writes, check_listed, check_sink
from sharegroup.core.records import PartitionKey, SharePartitionLimits
from sharegroup.errors import InvalidShareSessionEpochError
from sharegroup.protocol.messages import ErrorResponse, RequestEnvelope, constructed, decoded_response, parsed
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SHORTEST_PATIENCE_MS,
    FetchTopic,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)

MAX_KEPT_BYTES = 65_536
"""Size of a kept response; a larger one is kept without its acquired records, locked until their deadline."""


class ShareRequests:
    """Handler of members' requests to their share sessions and to the share-partitions."""

    def __init__(
        self, sessions: ShareSessions, partitions: LedPartitions, last_requests: LastRequests, leader_epoch: int
    ) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._last_requests = last_requests
        self._leader_epoch = leader_epoch
        self._responses: list[Respond] = []

    def take_responses(self) -> list[Respond]:
        """Return the responses since the last call, in order."""
        responses, self._responses = self._responses, []
        return responses

    def fetch(
        self,
        message: LoggedRequest,
        limits: SharePartitionLimits,
        longest_wait_ms: int,
        *,
        is_exactly_once: bool,
        awaits_sinks: bool,
        sinks: Set[str],
    ) -> None:
        """Apply a ShareFetch; the response comes at the end of the cut or later.

        Args:
            awaits_sinks: True if the group may not acquire before its sinks are taken over.
            sinks: addresses of the sinks that members may have; empty for any.

        Raises:
            ApiError: the request is refused, and changed nothing.
        """
        body = parsed(ShareFetchRequest, message.envelope.body)
        if body.max_records and body.share_session_epoch != FINAL_EPOCH:
            # A fetch that wants no records still acknowledges, and looks writes up, whatever the group is by now. So
            # does one that wants some, and gets none, as long as writes of its sink are open.
            sink = body.sink
            if sink is None or is_exactly_once or not self._partitions.writes.has_open(sink.table_id):
                check_sink(message.envelope.group_id, has_sink=sink is not None, is_exactly_once=is_exactly_once)
            if sink is None or not self._partitions.writes.has_open(sink.table_id):
                check_knows_writes(message.envelope.group_id, awaits_sinks=awaits_sinks)
            if sink is not None:
                check_listed(message.envelope.group_id, sink.address, sinks)
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
            address_of(message.envelope),
            min(body.max_records, MAX_RANGES_PER_RESPONSE * body.batch_size),
            body.batch_size,
            body.acquire_mode,
            message.time_ms + wait_ms,
            message.time_ms + max(body.max_wait_ms, SHORTEST_PATIENCE_MS),
            message.offset,
            acknowledged,
            body.sink,
        )
        self._sessions.park(session, fetch)

    def acknowledge(self, message: LoggedRequest, limits: SharePartitionLimits) -> None:
        """Apply a ShareAcknowledge, and respond to it.

        Raises:
            ApiError: the request is refused, and changed nothing.
        """
        body = parsed(ShareAcknowledgeRequest, message.envelope.body)
        session = self._open_session(message, body, limits)
        if session is None:
            return
        acknowledged = self._acknowledged(message, session.epoch, body.topics, limits)
        self._respond_to_acknowledgements(session, message.envelope, acknowledged)

    def respond_to_fetch(self, session: ShareSession, body: ShareFetchResponse, now_ms: int) -> None:
        """Respond to the parked fetch of a session, if there is one."""
        fetch = self._sessions.unpark(session, now_ms)
        if fetch is not None:
            self._respond_in_session(session, fetch.address, body)

    def respond_without_records(self, session: ShareSession, now_ms: int) -> None:
        """Respond to the parked fetch of a session, if there is one, before it is served."""
        if session.pending is not None:
            responses = grouped_by_topic(session.pending.acknowledged)
            self.respond_to_fetch(
                session, constructed(ShareFetchResponse, share_session_epoch=session.epoch, responses=responses), now_ms
            )

    def _open_session(
        self, message: LoggedRequest, body: ShareFetchRequest | ShareAcknowledgeRequest, limits: SharePartitionLimits
    ) -> ShareSession | None:
        """Return the open session of a request; None when the request is complete, as after a close."""
        session = self._session(message, body, limits)
        if session is not None and body.share_session_epoch == FINAL_EPOCH:
            self._close(session, message, body.topics, limits)
            return None
        return session

    def _session(
        self, message: LoggedRequest, body: ShareFetchRequest | ShareAcknowledgeRequest, limits: SharePartitionLimits
    ) -> ShareSession | None:
        """Return the session of a request; None when the request is complete."""
        envelope, epoch, topics = message.envelope, body.share_session_epoch, body.topics
        before = self._sessions.get(envelope.member_id)
        if before is not None and before.is_repeat(envelope, epoch):
            if before.kept_response is not None:
                self._repeat_response(envelope, before.kept_response)
            return None
        repeated = None if epoch == INITIAL_EPOCH else self._last_requests.repeated_by(envelope, epoch)
        if repeated is not None:
            self._respond_without_session(envelope, epoch, acknowledged_before(topics, repeated.refused))
            return None
        if before is None and epoch != INITIAL_EPOCH and self._applied_without_session(message, epoch, topics, limits):
            return None
        if epoch == INITIAL_EPOCH:
            self._sessions.check_opening(message, topics)
        else:
            forgotten = body.forgotten_topics_data if isinstance(body, ShareFetchRequest) else ()
            self._sessions.checked(message, epoch, topics, forgotten)
        if before is not None:
            self.respond_without_records(before, message.time_ms)
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

        A takeover restores locks, not sessions. Acknowledgements appended before a lock's deadline still count; the
        member learns that its session is gone when it fetches.
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
        self._respond_without_session(envelope, epoch, acknowledged)
        return True

    def _close(
        self, session: ShareSession, message: LoggedRequest, topics: Sequence[FetchTopic], limits: SharePartitionLimits
    ) -> None:
        acknowledged = self._acknowledged(message, FINAL_EPOCH, topics, limits)
        self._release(message, FINAL_EPOCH, limits, acknowledged)
        self._sessions.close(session)
        self._respond_without_session(message.envelope, FINAL_EPOCH, acknowledged)

    def _release(
        self,
        message: LoggedRequest,
        epoch: int,
        limits: SharePartitionLimits,
        acknowledged: Mapping[PartitionKey, PartitionResponse],
    ) -> None:
        """Release all records that the member of a message still holds."""
        member_id = message.envelope.member_id
        for led in self._partitions.held_by(member_id):
            released = led.share_partition.release_member(member_id, limits, message.time_ms)
            self._partitions.record(led, released, message.time_ms, message.offset)
            self._last_requests.note(message.envelope, epoch, acknowledged)

    def _acknowledged(
        self, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic], limits: SharePartitionLimits
    ) -> dict[PartitionKey, PartitionResponse]:
        responses, has_effect = acknowledge(message, topics, self._partitions, limits)
        if has_effect:
            self._last_requests.note(message.envelope, epoch, responses)
        return responses

    def _respond_to_acknowledgements(
        self, session: ShareSession, envelope: RequestEnvelope, acknowledged: Mapping[PartitionKey, PartitionResponse]
    ) -> None:
        body = constructed(
            ShareFetchResponse, share_session_epoch=session.epoch, responses=grouped_by_topic(acknowledged)
        )
        self._respond_in_session(session, address_of(envelope), body)

    def _respond_without_session(
        self, envelope: RequestEnvelope, epoch: int, acknowledged: Mapping[PartitionKey, PartitionResponse]
    ) -> None:
        body = constructed(ShareFetchResponse, share_session_epoch=epoch, responses=grouped_by_topic(acknowledged))
        self._respond(response_to(address_of(envelope), body, self._leader_epoch))

    def _respond_in_session(self, session: ShareSession, address: Address, body: ShareFetchResponse) -> None:
        response = response_to(address, body, self._leader_epoch)
        session.kept_response = _kept_response(response, body, self._leader_epoch)
        self._respond(response)

    def _repeat_response(self, envelope: RequestEnvelope, response: str) -> None:
        body = parsed(ShareFetchResponse, decoded_response(response.encode()).body)
        self._respond(Respond(address_of(envelope), body, response))

    def _respond(self, response: Respond) -> None:
        if response.address.partition >= 0:
            self._responses.append(response)


def _kept_response(response: Respond, body: ShareFetchResponse, leader_epoch: int) -> str:
    """Return the response, in JSON, to keep for a repeat of its request: as it was published, and not large."""
    if _is_small(response.value):
        return response.value
    without_records = response_to(response.address, _without_records(body), leader_epoch).value
    if _is_small(without_records):
        return without_records
    error = InvalidShareSessionEpochError(
        "The response to this request is too large to be sent again.", "Open the session again with epoch 0."
    )
    return response_to(
        response.address, ErrorResponse(error_code=error.code, error_message=str(error)), leader_epoch
    ).value


def _is_small(response: str) -> bool:
    # A character has one byte to four.
    return 4 * len(response) <= MAX_KEPT_BYTES or len(response.encode()) <= MAX_KEPT_BYTES


def _without_records(body: ShareFetchResponse) -> ShareFetchResponse:
    topics = [
        topic.model_copy(
            update={
                "partitions": [
                    partition.model_copy(update={"acquired_records": []})
                    for partition in topic.partitions
                    if partition.is_acknowledged or partition.error_code
                ]
            }
        )
        for topic in body.responses
    ]
    return body.model_copy(update={"lock_deadline_ms": 0, "responses": [topic for topic in topics if topic.partitions]})
