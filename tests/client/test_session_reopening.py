"""A consumer whose share session the leader ended, or gave to somebody else, opens it again by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.exchange import Request
from sharegroup.client.processor_channel import ProcessorChannel
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import (
    ApiError,
    InvalidShareSessionEpochError,
    ShareSessionNotFoundError,
)
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import Message
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from tests.client.consumers import Consume, got, member_of
from tests.client.processor_peer import BROKER, RESPONSES, ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually

OPENING = ApiKey.SHARE_FETCH, ShareFetchRequest(share_session_epoch=INITIAL_EPOCH, max_records=0)
CLOSED = ApiKey.SHARE_ACKNOWLEDGE, ShareAcknowledgeRequest(share_session_epoch=FINAL_EPOCH)


@pytest.mark.parametrize(
    ("request_of_another", "refusal", "commit_error", "next_records"),
    [
        # Opened again under the same member id, so that the consumer's next epoch is out of turn; it keeps its locks.
        (OPENING, InvalidShareSessionEpochError, None, "120-124:d1"),
        # Closed, which releases what the consumer holds.
        (CLOSED, ShareSessionNotFoundError, "INVALID_RECORD_STATE", "0-119:d2"),
    ],
    ids=["INVALID_SHARE_SESSION_EPOCH", "SHARE_SESSION_NOT_FOUND"],
)
def test_the_consumer_goes_on(
    consume: Consume,
    log: LocalLog,
    processor: ProcessorPeer,
    produce: Callable[[str, int], None],
    request_of_another: tuple[ApiKey, Message],
    refusal: type[ApiError],
    commit_error: str | None,
    next_records: str,
) -> None:
    consumer = consume("cl-1", mode="explicit", max_poll_records=120)
    messages = consumer.poll(DEADLINE_S)
    assert got(messages) == "0-119:d1"
    member_id = member_of(consumer).member_id
    eventually(lambda: len(processor.sent(ApiKey.SHARE_FETCH)) == 2, "a fetch ahead")
    ProcessorChannel(log, "g", member_id, "another").send([Request(999_999, *request_of_another)])
    eventually(lambda: responses(log, 999_999) == [0], "the response to the other one")
    for message in messages:
        consumer.acknowledge(message)
    (error,) = consumer.commit_sync().values()
    assert (error.args[0].name() if error else None) == commit_error
    assert refusal.code in responses(log)
    produce("cl-1", 5)
    assert got(consumer.poll(DEADLINE_S)) == next_records


@pytest.mark.long("sessions are evicted by time")
@pytest.mark.slow
def test_a_session_that_was_evicted_opens_again_when_there_is_room(log: LocalLog, log_path: Path) -> None:
    timeout_ms = 2_000
    broker = BROKER.model_copy(
        update={
            "group_share_max_size": 2,
            "group_share_max_share_sessions": 2,
            "group_share_session_timeout_ms": timeout_ms,
            "group_share_min_session_timeout_ms": timeout_ms,
        }
    )
    config: dict[str, object] = {
        "group.id": "g",
        "log.path": str(log_path),
        "max.poll.records": 10,
        "share.acknowledgement.mode": "explicit",
    }
    log.create_topic("cl-1", 1, {})
    log.append("cl-1", 0, [NewRecord(None, b"v")] * 20)
    with ProcessorPeer(log, broker) as processor, ShareConsumer(config) as consumer:
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        consumer.subscribe(["cl-1"])
        messages = consumer.poll(DEADLINE_S)
        # The next records go back when no poll comes, and nothing more is fetched.
        eventually(lambda: bool(processor.sent(ApiKey.SHARE_ACKNOWLEDGE)), "the return of what was fetched ahead")
        idle_from_ms = log.now_ms() + timeout_ms + 100
        eventually(lambda: log.now_ms() >= idle_from_ms, "an idle session")
        for correlation_id, member_id in ((777_001, "somebody"), (777_002, "somebody else")):
            ProcessorChannel(log, "g", member_id, "").send([Request(correlation_id, *OPENING)])
            eventually(partial(is_accepted, log, correlation_id), "another session")
        polls = [got(messages)]
        while len(polls) < 3:
            for message in messages:
                consumer.acknowledge(message)
            assert set(consumer.commit_sync().values()) <= {None}
            log.append("cl-1", 0, [NewRecord(None, b"v")] * 10)
            messages = consumer.poll(DEADLINE_S)
            polls.append(got(messages))
        assert polls == ["0-9:d1", "10-19:d1", "20-29:d1"]
    assert ShareSessionNotFoundError.code in responses(log)


def is_accepted(log: LocalLog, correlation_id: int) -> bool:
    """Return True if a request has one response, without an error."""
    return responses(log, correlation_id) == [0]


def responses(log: LocalLog, correlation_id: int | None = None) -> list[int]:
    """Error codes of all responses so far, or of those to one request."""
    records = [record for p in log.offsets(RESPONSES) for record in log.read(RESPONSES, p, 0, 10_000)]
    envelopes = [json.loads(record.value or b"{}") for record in records]
    return [
        envelope.get("body", {}).get("error_code", 0)
        for envelope in envelopes
        if correlation_id is None or envelope.get("correlation_id") == correlation_id
    ]
