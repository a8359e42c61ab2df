"""Responses that a member never asked for, or that make no sense."""

from __future__ import annotations

from random import Random
from typing import Any

from sharegroup.protocol.api_key import ApiKey
from tests.fuzz.mutation import damaged, mutated, to_bytes

UNASKED = 1_000_000
"""Correlation ids from here on belong to no request."""


class HostileResponses:
    """Makes one record of the response log after the other.

    Args:
        random: what it chooses by.
        group_id: the member's group.
        member_id: the member whose partition they are in.
    """

    def __init__(self, random: Random, group_id: str, member_id: str) -> None:
        self._random = random
        self._group_id = group_id
        self._member_id = member_id

    def unasked(self) -> bytes | None:
        """One that the member must pass over, for its request or for what it is."""
        random = self._random
        if random.random() < 0.1:
            return random.choice([None, b"", b"null", b"[]", b"5", b"[" * 5_000, random.randbytes(40), b"x" * 100_000])
        envelope = self._envelope(random.randrange(UNASKED, 2 * UNASKED))
        if random.random() < 0.3:
            envelope["group_id"], envelope["correlation_id"] = "another group", random.randint(-1, 50)
        else:
            envelope["body"] = self._spoilt(envelope["body"])
        value = to_bytes(envelope, random)
        return value[: random.randrange(len(value))] if random.random() < 0.2 else value

    def to_anything(self, correlation_id: int) -> bytes:
        """One that may well respond to the member's last request, with anything."""
        random = self._random
        envelope = self._envelope(random.choice([correlation_id, correlation_id, correlation_id - 1, -1]))
        if random.random() < 0.8:
            envelope["body"] = self._spoilt(envelope["body"])
        value = to_bytes(envelope, random)
        return damaged(value, random) if random.random() < 0.1 else value

    def _spoilt(self, body: Any) -> Any:
        return mutated(body, self._random, self._random.choice([0, 1, 1, 2, 4]))

    def _envelope(self, correlation_id: int) -> dict[str, Any]:
        api_key = self._random.choice([ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_GROUP_HEARTBEAT])
        body = self._heartbeat() if api_key == ApiKey.SHARE_GROUP_HEARTBEAT else self._fetch()
        return {
            "v": 1,
            "api_key": int(api_key),
            "api_version": 1,
            "correlation_id": correlation_id,
            "group_id": self._group_id,
            "member_id": self._member_id,
            "published_ms": self._random.choice([-1, 0, 1_000_000, 2**63 - 1]),
            "body": body,
        }

    def _heartbeat(self) -> dict[str, Any]:
        random = self._random
        assignment = [{"topic_id": "orders-id", "topic": "orders", "partitions": [0, random.choice([1, 2**31 - 1])]}]
        return {
            "error_code": random.choice([0, 0, 0, 14, 25, 42, 81, 110, 10_000, 31_337]),
            "error_message": "no",
            "member_epoch": random.choice([1, 2, 5, 0, -1, 2**31 - 1]),
            "heartbeat_interval_ms": random.choice([1, 5_000, 2**31 - 1]),
            "assignment": random.choice([None, [], assignment]),
        }

    def _fetch(self) -> dict[str, Any]:
        random = self._random
        acquired = [
            {
                "first_offset": (first := random.choice([0, 5, 100, 2**63 - 1])),
                "last_offset": first + random.choice([0, 3, -1]),
                "delivery_count": random.choice([1, 5]),
            }
            for _ in range(random.choice([0, 1, 3]))
        ]
        partition = {
            "partition_index": random.choice([0, 1, 99]),
            "error_code": random.choice([0, 0, 3, 14]),
            "acknowledge_error_code": random.choice([0, 0, 14, 121]),
            "is_acknowledged": random.random() < 0.5,
            "acquired_records": acquired,
        }
        return {
            "error_code": random.choice([0, 0, 0, 122, 123, 133, 42, 10_000]),
            "share_session_epoch": random.choice([0, 1, 2]),
            "acquisition_lock_timeout_ms": 30_000,
            "lock_deadline_ms": random.choice([0, 1_000_000, 2**62]),
            "responses": [{"topic_id": random.choice(["orders-id", "other-id"]), "partitions": [partition]}],
        }
