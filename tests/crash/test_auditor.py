"""The auditor: one record, delivered and accepted, and each violation that it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_records import ShareGroupMemberMetadata
from sharegroup.protocol.messages import ResponseEnvelope, request
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.protocol.share_fetch import (
    AcknowledgementRange,
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchResponse,
    TopicResponse,
)
from tests.crash.auditor import Evidence
from tests.crash.ledger import Acknowledgement, Delivery, Ledger

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
    """Return the evidence of one record without a violation."""
    member = ShareGroupMemberMetadata(member_id="member-id", client_id="client", subscribed_topic_names=[])
    joined = StateRow(
        record_type=RecordType.GROUP_METADATA, group_id="group", payload={"records": [member.model_dump(mode="json")]}
    )
    accepted = AcknowledgementRange(first_offset=0, last_offset=0, acknowledge_types=[AcknowledgeType.ACCEPT])
    topic = FetchTopic(
        topic_id="topic-id", partitions=[FetchPartition(partition_index=0, acknowledgement_batches=[accepted])]
    )
    body = ShareAcknowledgeRequest(share_session_epoch=1, topics=[topic])
    envelope = request(ApiKey.SHARE_ACKNOWLEDGE, "group", body, member_id="member-id", correlation_id=7)
    ledger = Ledger("client", [Delivery("topic", 0, 0, 1)], [Acknowledgement("topic", 0, 0, "accept", True)])
    rows = [
        joined,
        row(FETCHED_AT, Cause.ACQUIRE, RecordState.ACQUIRED, 1, DEADLINE_MS),
        row(ACKNOWLEDGED_AT, Cause.ACCEPT, RecordState.ACKNOWLEDGED, 1),
    ]
    record = LogRecord("requests", 0, ACKNOWLEDGED_AT, acknowledged_ms, None, envelope.encoded())
    response = ResponseEnvelope(
        api_key=ApiKey.SHARE_ACKNOWLEDGE, correlation_id=7, group_id="group", member_id="member-id"
    )
    return Evidence("group", rows, [record], [response], [ledger], {("topic", 0): 1})


def deliver_again(audited: Evidence) -> None:
    audited.rows[2:] = [
        row(LATER, Cause.LOCK_TIMEOUT, RecordState.AVAILABLE, 1),
        row(LATER, Cause.ACQUIRE, RecordState.ACQUIRED, 2, DEADLINE_MS * 2),
    ]


def test_a_record_that_was_delivered_and_accepted_is_no_violation() -> None:
    assert evidence().findings_when_drained() == []


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda audited: audited.produced.update({("topic", 0): 2}), "topic-0 1 was produced, and is not finished"),
        (lambda audited: audited.ledgers.clear(), "topic-0 0 was delivered to nobody"),
        (lambda audited: audited.ledgers.append(audited.ledgers[0]), "was made 2 times"),
        (
            lambda audited: audited.ledgers.append(replace(audited.ledgers[0], client_id="other")),
            "is not in the state table",
        ),
        (lambda audited: audited.rows.pop(), "was confirmed, and is not in the state table"),
        (deliver_again, "was delivered after message 2 acknowledged it in time"),
    ],
)
def test_each_violation_is_reported(spoil: Callable[[Evidence], object], finding: str) -> None:
    audited = evidence()
    spoil(audited)
    assert any(finding in text for text in audited.findings_when_drained())


def test_an_acknowledgement_that_came_too_late_does_not_count() -> None:
    audited = evidence(acknowledged_ms=DEADLINE_MS)
    deliver_again(audited)
    assert not any("acknowledged it in time" in text for text in audited.findings_when_drained())


def test_an_acknowledgement_that_was_refused_does_not_count() -> None:
    audited = evidence()
    deliver_again(audited)
    audited.responses[0] = audited.responses[0].model_copy(update={"body": {"error_code": 122}})
    assert not any("acknowledged it in time" in text for text in audited.findings_when_drained())


def test_a_repeat_counts_from_its_first_copy_whose_lock_was_over() -> None:
    audited = evidence(acknowledged_ms=DEADLINE_MS)
    first_copy = audited.requests[0]
    audited.requests.append(first_copy._replace(offset=LATER + 1, timestamp_ms=DEADLINE_MS + 1_000))
    # The member has the record again when the repeat arrives, and returns it then.
    deliver_again(audited)
    audited.rows += [
        row(LATER + 2, Cause.LOCK_TIMEOUT, RecordState.AVAILABLE, 2),
        row(LATER + 2, Cause.ACQUIRE, RecordState.ACQUIRED, 3, DEADLINE_MS * 3),
    ]
    assert not any("acknowledged it in time" in text for text in audited.findings_when_drained())


def test_two_responses_to_one_fetch_that_differ_are_reported() -> None:
    audited = evidence()
    for last_offset in (0, 0, 1):
        acquired = AcquiredRecords(first_offset=0, last_offset=last_offset, delivery_count=1)
        partition = PartitionResponse(partition_index=0, acquired_records=[acquired])
        body = ShareFetchResponse(responses=[TopicResponse(topic_id="topic-id", partitions=[partition])])
        audited.responses.append(
            ResponseEnvelope(
                api_key=ApiKey.SHARE_FETCH,
                correlation_id=1,
                group_id="group",
                member_id="member-id",
                body=body.model_dump(mode="json"),
            )
        )
    assert sum("has two responses" in text for text in audited.findings_when_drained()) == 1
