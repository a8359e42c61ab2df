"""The auditor finds what it is there for: one record, delivered and accepted, and what may go wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_records import ShareGroupMemberMetadata
from sharegroup.protocol.messages import request
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.protocol.share_fetch import AcknowledgementRange, FetchPartition, FetchTopic, ShareAcknowledgeRequest
from tests.crash.auditor import Evidence
from tests.crash.ledger import Delivery, Ledger, Word

FETCHED_AT, ACKNOWLEDGED_AT, LATER = 1, 2, 3
"""Offsets in the request log."""
DEADLINE_MS = 5_000


def row(
    request_offset: int, cause: Cause, to_state: RecordState, delivery_count: int, deadline_ms: int = 0
) -> StateRow:
    entry = TransitionEntry(
        first_offset=0,
        last_offset=0,
        from_state=None,
        to_state=to_state,
        delivery_count=delivery_count,
        member_id="member-id",
        deadline_ms=deadline_ms,
        cause=cause,
        time_ms=0,
        request_offset=request_offset,
    )
    return StateRow(
        record_type=RecordType.SHARE_UPDATE,
        group_id="group",
        topic_id="topic-id",
        topic="topic",
        partition=0,
        request_offset=request_offset,
        transitions=[entry],
    )


def evidence(acknowledged_ms: int = 4_000) -> Evidence:
    """Nothing went wrong."""
    member = ShareGroupMemberMetadata(member_id="member-id", client_id="client", subscribed_topic_names=[])
    joined = StateRow(
        record_type=RecordType.GROUP_METADATA, group_id="group", payload={"records": [member.model_dump(mode="json")]}
    )
    said = AcknowledgementRange(first_offset=0, last_offset=0, acknowledge_types=[AcknowledgeType.ACCEPT])
    topic = FetchTopic(
        topic_id="topic-id", partitions=[FetchPartition(partition_index=0, acknowledgement_batches=[said])]
    )
    body = ShareAcknowledgeRequest(share_session_epoch=1, topics=[topic])
    envelope = request(ApiKey.SHARE_ACKNOWLEDGE, "group", body, member_id="member-id")
    ledger = Ledger("client", [Delivery("topic", 0, 0, 1)], [Word("topic", 0, 0, "accept", True)])
    rows = [
        joined,
        row(FETCHED_AT, Cause.ACQUIRE, RecordState.ACQUIRED, 1, DEADLINE_MS),
        row(ACKNOWLEDGED_AT, Cause.ACCEPT, RecordState.ACKNOWLEDGED, 1),
    ]
    record = LogRecord("requests", 0, ACKNOWLEDGED_AT, acknowledged_ms, None, envelope.encoded())
    return Evidence("group", rows, [record], [ledger], {("topic", 0): 1})


def delivered_again(found: Evidence) -> None:
    found.rows[2:] = [
        row(LATER, Cause.LOCK_TIMEOUT, RecordState.AVAILABLE, 1),
        row(LATER, Cause.ACQUIRE, RecordState.ACQUIRED, 2, DEADLINE_MS * 2),
    ]


def test_nothing_is_found_where_nothing_went_wrong() -> None:
    assert evidence().findings_when_drained() == []


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda found: found.produced.update({("topic", 0): 2}), "topic-0 1 was produced, and is not finished"),
        (lambda found: found.ledgers.clear(), "topic-0 0 was delivered to nobody"),
        (lambda found: found.ledgers.append(found.ledgers[0]), "was made 2 times"),
        (lambda found: found.ledgers.append(replace(found.ledgers[0], client_id="other")), "is not in the state table"),
        (lambda found: found.rows.pop(), "was confirmed, and is not in the state table"),
        (delivered_again, "was delivered after message 2 acknowledged it in time"),
    ],
)
def test_what_went_wrong_is_found(spoil: Callable[[Evidence], object], finding: str) -> None:
    found = evidence()
    spoil(found)
    assert any(finding in text for text in found.findings_when_drained())


def test_an_acknowledgement_that_came_too_late_does_not_count() -> None:
    found = evidence(acknowledged_ms=DEADLINE_MS)
    delivered_again(found)
    assert not any("acknowledged it in time" in text for text in found.findings_when_drained())
