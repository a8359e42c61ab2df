"""The bounds of a message: those of Kafka's types and those of the field itself, both."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.internal_messages import LogOffsets
from sharegroup.protocol.messages import Message, parsed
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
