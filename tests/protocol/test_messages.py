"""Messages: the bounds of Kafka's types and those of the field itself, both; and the requests of one sender."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import LogOffsets
from sharegroup.protocol.messages import (
    MAX_NAME_LENGTH,
    Message,
    RequestEncoder,
    RequestEnvelope,
    decoded_request,
    parsed,
)
from sharegroup.protocol.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest


def fetch(**fields: object) -> dict[str, Any]:
    return {"share_session_epoch": 1, **fields}


def fetch_of(partition_index: int) -> dict[str, Any]:
    return fetch(topics=[{"topic_id": "topic", "partitions": [{"partition_index": partition_index}]}])


def log_offsets(**fields: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "start_offset": 0, "end_offset": 0, "last_stable_offset": 0, **fields}
    return {"topics": [{"topic": "orders", "topic_id": "topic", "partitions": [partition]}]}


@pytest.mark.parametrize(
    ("model", "allowed", "refused"),
    [
        (ShareFetchRequest, fetch(max_wait_ms=0), fetch(max_wait_ms=-1)),
        (ShareFetchRequest, fetch(max_wait_ms=2**31 - 1), fetch(max_wait_ms=2**31)),
        (ShareFetchRequest, fetch(max_records=0), fetch(max_records=-1)),
        (ShareFetchRequest, fetch(batch_size=1), fetch(batch_size=0)),
        (ShareFetchRequest, fetch_of(0), fetch_of(-1)),
        (ShareAcknowledgeRequest, fetch_of(2**31 - 1), fetch_of(2**31)),
        (ShareFetchRequest, {"share_session_epoch": -(2**31)}, {"share_session_epoch": -(2**31) - 1}),
        (LogOffsets, log_offsets(), log_offsets(partition_index=-1)),
        (LogOffsets, log_offsets(end_offset=2**63 - 1), log_offsets(end_offset=2**63)),
        (LogOffsets, log_offsets(), log_offsets(start_offset=-1)),
        (LogOffsets, log_offsets(reset_offset=-1), log_offsets(reset_offset=-2)),
    ],
)
def test_a_number_past_its_bound_is_refused(
    model: type[Message], allowed: dict[str, Any], refused: dict[str, Any]
) -> None:
    parsed(model, allowed)
    with pytest.raises(InvalidRequestError):
        parsed(model, refused)


names = st.text(max_size=20)


@given(names, names, names, st.integers(-1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_requests_of_a_sender_are_read_as_they_were_sent(
    group_id: str, member_id: str, client_id: str, reply_partition: int, correlation_id: int
) -> None:
    encoder = RequestEncoder(group_id, member_id, client_id, reply_partition)
    body = fetch_of(7)
    value = encoder.encoded(ApiKey.SHARE_FETCH, correlation_id, ShareFetchRequest.model_validate(body))
    assert decoded_request(value) == RequestEnvelope(
        api_key=ApiKey.SHARE_FETCH,
        correlation_id=correlation_id,
        group_id=group_id,
        member_id=member_id,
        client_id=client_id,
        reply_partition=reply_partition,
        body=body,
    )


def test_a_name_that_is_too_long_is_refused_before_a_request_is_sent() -> None:
    RequestEncoder("g" * MAX_NAME_LENGTH)
    with pytest.raises(ValidationError):
        RequestEncoder("g" * (MAX_NAME_LENGTH + 1))
