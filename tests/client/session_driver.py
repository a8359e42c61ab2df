"""A share session driven by hand, and a shorthand for what goes over the wire."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sharegroup.client.member_session import MemberSession, SessionEvent
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.refusals import FetchCompleted
from sharegroup.client.session_request import SessionRequest
from sharegroup.client.settings import FetchSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
)
from sharegroup.protocol.share_fetch import (
    AcquiredRecords,
    PartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    TopicResponse,
)

SETTINGS = FetchSettings(max_records=100, batch_size=100, max_wait_ms=500, request_timeout_ms=3_000)
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)

Wire = tuple[str, int, list[str], list[str], list[str]]


class Driver:
    """A session, its clock, and a shorthand for what goes over the wire."""

    def __init__(self, *partitions: tuple[str, int], settings: FetchSettings = SETTINGS) -> None:
        self.session = MemberSession(settings, itertools.count(1), {})
        self.session.partitions = set(partitions)
        self.now_ms = 0
        self.last: SessionRequest | None = None

    def sends(self, wants_records: bool = True) -> Wire | None:
        """(F or A or open, epoch, partitions added, partitions forgotten, acknowledgements) of what is sent now."""
        request = self.session.next_request(self.now_ms, SETTINGS.max_records if wants_records else 0)
        if request is None:
            return None
        self.last = request
        body = request.request.body
        partitions = [(topic.topic_id, p) for topic in body.topics for p in topic.partitions]
        added = [f"{t}{p.partition_index}" for t, p in partitions if not p.acknowledgement_batches]
        texts = [
            f"{t}{p.partition_index}:{first}-{last}:{kind.name}"
            for t, p in partitions
            for r in p.acknowledgement_batches
            for first, last, kind in r.batch.runs()
        ]
        if not isinstance(body, ShareFetchRequest):
            return "A", body.share_session_epoch, added, [], texts
        forgotten = [f"{topic.topic_id}{p}" for topic in body.forgotten_topics_data for p in topic.partitions]
        return "F" if body.max_records else "F0", body.share_session_epoch, added, forgotten, texts

    def acknowledge(
        self, first: int, last: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT, key: tuple[str, int] = A0
    ) -> None:
        self.session.pending.put(Acknowledgement(*key, first, last, kind))

    def receives(
        self,
        *partitions: tuple[str, PartitionResponse],
        error: ApiError | None = None,
        to: SessionRequest | None = None,
    ) -> list[SessionEvent]:
        request = to or self.last
        assert request is not None
        response = ShareFetchResponse(
            error_code=error.code if error else 0,
            lock_deadline_ms=9_000,
            acquisition_lock_timeout_ms=8_000,
            responses=[TopicResponse(topic_id=topic_id, partitions=[p]) for topic_id, p in partitions],
        )
        events = self.session.receive(request.request.correlation_id, response, self.now_ms)
        return [event for event in events if not isinstance(event, FetchCompleted)]


def acknowledged(index: int = 0, error: ApiError | None = None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, is_acknowledged=True, acknowledge_error_code=error.code if error else 0
    )


def acquired(first: int, last: int, index: int = 0, is_acknowledged: bool = False) -> PartitionResponse:
    records = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)]
    return PartitionResponse(partition_index=index, acquired_records=records, is_acknowledged=is_acknowledged)


def results(events: Sequence[SessionEvent]) -> list[tuple[int, int, type[ApiError] | None]]:
    """(first offset, last offset, error) of all that was settled."""
    return [
        (a.first_offset, a.last_offset, type(event.error) if event.error else None)
        for event in events
        if isinstance(event, Acknowledged)
        for a in event.acknowledgements
    ]
