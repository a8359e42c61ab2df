"""The bounds of requests to a group's coordinator: most of their content becomes state."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.group_administration import (
    MAX_ALTERED_PARTITIONS,
    MAX_ALTERED_TOPICS,
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
)
from sharegroup.protocol.group_messages import (
    MAX_ALTERED_KEYS,
    MAX_SUBSCRIBED_TOPICS,
    AlterGroupConfigRequest,
    ShareGroupHeartbeatRequest,
)
from sharegroup.protocol.messages import MAX_NAME_LENGTH, Message, parsed

LONG, LONGEST = "x" * (MAX_NAME_LENGTH + 1), "x" * MAX_NAME_LENGTH


def alteration(topic: str = "orders", partition: int = 0, offset: int = 0, count: int = 1) -> dict[str, Any]:
    partitions = [{"partition_index": partition, "start_offset": offset}] * count
    return {"topics": [{"topic_name": topic, "partitions": partitions}]}


def deletion(topic: str = "orders", count: int = 1) -> dict[str, Any]:
    return {"topics": [{"topic_name": topic}] * count}


def heartbeat(**fields: Any) -> dict[str, Any]:
    return {"member_epoch": 0, **fields}


def keys(count: int) -> dict[str, str]:
    return {f"key-{number}": "1" for number in range(count)}


@pytest.mark.parametrize(
    ("model", "allowed", "refused"),
    [
        (ShareGroupHeartbeatRequest, heartbeat(rack_id=LONGEST), heartbeat(rack_id=LONG)),
        (
            ShareGroupHeartbeatRequest,
            heartbeat(subscribed_topic_names=["orders"] * MAX_SUBSCRIBED_TOPICS),
            heartbeat(subscribed_topic_names=["orders"] * (MAX_SUBSCRIBED_TOPICS + 1)),
        ),
        (
            ShareGroupHeartbeatRequest,
            heartbeat(subscribed_topic_names=[LONGEST]),
            heartbeat(subscribed_topic_names=[LONG]),
        ),
        (ShareGroupHeartbeatRequest, heartbeat(member_epoch=2**31 - 1), heartbeat(member_epoch=2**31)),
        (AlterShareGroupOffsetsRequest, alteration(LONGEST), alteration(LONG)),
        (AlterShareGroupOffsetsRequest, alteration(partition=2**31 - 1), alteration(partition=2**31)),
        (AlterShareGroupOffsetsRequest, alteration(offset=2**63 - 1), alteration(offset=2**63)),
        (AlterShareGroupOffsetsRequest, alteration(), alteration(offset=2**70)),
        pytest.param(
            AlterShareGroupOffsetsRequest,
            alteration(count=MAX_ALTERED_PARTITIONS),
            alteration(count=MAX_ALTERED_PARTITIONS + 1),
            marks=pytest.mark.slow,
        ),
        (DeleteShareGroupOffsetsRequest, deletion(LONGEST), deletion(LONG)),
        (
            DeleteShareGroupOffsetsRequest,
            deletion(count=MAX_ALTERED_TOPICS),
            deletion(count=MAX_ALTERED_TOPICS + 1),
        ),
        (AlterGroupConfigRequest, {"set": {LONGEST: LONGEST}}, {"set": {LONG: "1"}}),
        (AlterGroupConfigRequest, {"delete": [LONGEST]}, {"delete": [LONG]}),
        (AlterGroupConfigRequest, {"set": {"key": LONGEST}}, {"set": {"key": LONG}}),
        (AlterGroupConfigRequest, {"set": keys(MAX_ALTERED_KEYS)}, {"set": keys(MAX_ALTERED_KEYS + 1)}),
        (AlterGroupConfigRequest, {"delete": ["key"] * 100}, {"delete": ["key"] * 101}),
    ],
)
def test_what_is_larger_than_its_bound_is_refused(
    model: type[Message], allowed: dict[str, Any], refused: dict[str, Any]
) -> None:
    parsed(model, allowed)
    with pytest.raises(InvalidRequestError):
        parsed(model, refused)
