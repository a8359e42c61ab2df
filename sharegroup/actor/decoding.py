"""Decoding of request-log records to messages, or to the effect of bytes that are no message."""

from __future__ import annotations

import json

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Respond, Undecodable, address_of, response_to
from sharegroup.errors import (
    ApiError,
    InvalidGroupIdError,
    InvalidRequestError,
    MessageTooLargeError,
    UnsupportedVersionError,
)
from sharegroup.protocol.api_key import INTERNAL_KEYS, RECIPIENTS, ApiKey
from sharegroup.protocol.messages import (
    MAX_NAME_LENGTH,
    ErrorResponse,
    RequestEnvelope,
    decoded_request,
)

MAX_REQUEST_BYTES = 1_048_588
"""Size of a request, as Kafka's `message.max.bytes` has it."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Size of an internal message, which may name every partition of a topic. Longer bytes are not even parsed."""


_OF_MEMBERS = frozenset({ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})
"""Requests whose missing group id is INVALID_REQUEST in Kafka; of others it is INVALID_GROUP_ID."""


def decoded_message(
    value: bytes | None, offset: int, time_ms: int, leader_epoch: int
) -> LoggedRequest | Respond | Undecodable:
    """Return the message of a record; for an invalid record its refusal, or its count when it has no address."""
    size = len(value or b"")
    if size > MAX_MESSAGE_BYTES:
        return Undecodable(offset, f"The message has {size} bytes; the most is {MAX_MESSAGE_BYTES}.")
    try:
        envelope = decoded_request(value)
        if envelope.api_key not in RECIPIENTS:
            raise UnsupportedVersionError(f"api_key {envelope.api_key} is not known.")
        if size > MAX_REQUEST_BYTES and envelope.api_key not in INTERNAL_KEYS:
            raise MessageTooLargeError(
                f"The request has {size} bytes; the most is {MAX_REQUEST_BYTES}.", "Send several smaller ones."
            )
        if not envelope.group_id and RECIPIENTS[envelope.api_key]:
            kind = InvalidRequestError if envelope.api_key in _OF_MEMBERS else InvalidGroupIdError
            raise kind("group_id is empty; it must name a share group.")
    except ApiError as error:
        return refusal(value, offset, error, leader_epoch)
    return LoggedRequest(envelope, offset, time_ms)


def refusal(raw: bytes | None, offset: int, error: ApiError, leader_epoch: int) -> Respond | Undecodable:
    """Return the error response to a record that is not applied, or its count when it has no address."""
    address = _address(raw)
    if address is None:
        return Undecodable(offset, str(error))
    body = ErrorResponse(error_code=error.code, error_message=str(error))
    return response_to(address_of(address), body, leader_epoch)


def _address(raw: bytes | None) -> RequestEnvelope | None:
    """Return the address for a response, as far as the bytes hold one; None when they do not."""
    try:
        fields = json.loads(raw or b"")
        group_id, member_id = fields.get("group_id"), fields["member_id"]
        envelope = RequestEnvelope(
            api_key=fields["api_key"],
            correlation_id=fields["correlation_id"],
            group_id=group_id if _is_name(group_id) else "",
            member_id=member_id,
            reply_partition=fields["reply_partition"],
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return envelope if member_id and _is_name(member_id) and envelope.reply_partition >= 0 else None


def _is_name(value: object) -> bool:
    """Return True if a response can repeat a value: Python reads lone surrogates in JSON, but cannot encode them."""
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
