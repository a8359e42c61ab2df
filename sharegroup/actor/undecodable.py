"""From the bytes of a request-log record to a message, or to what is done about bytes that are none."""

from __future__ import annotations

import json

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.effects import Effect, Respond, Undecodable
from sharegroup.errors import ApiError, InvalidRequestError, MessageTooLargeError, UnsupportedVersionError
from sharegroup.protocol.api_key import INTERNAL_KEYS, ApiKey
from sharegroup.protocol.messages import (
    MAX_NAME_LENGTH,
    ErrorResponse,
    RequestEnvelope,
    ResponseEnvelope,
    decoded_request,
)

MAX_REQUEST_BYTES = 1_048_588
"""Size of a request, as Kafka's `message.max.bytes` has it. Facts may be longer: they name every partition."""


def judged(value: bytes | None, offset: int, group_id: str | None, time_ms: int = 0) -> LoggedRequest | Effect:
    """The message of a record, or the effect of a record that is no message for this group.

    Someone who can be answered is answered; the rest is counted.

    Args:
        value: the record's value.
        offset: its offset in the request log.
        group_id: the group that the record was routed to; None when to no group.
        time_ms: its append time.
    """
    raw = bytes(value) if value is not None else None
    try:
        envelope = decoded_request(raw)
        if envelope.api_key not in ApiKey.__members__.values():
            raise UnsupportedVersionError(f"api_key {envelope.api_key} is not known.")
        if not envelope.group_id or envelope.group_id != group_id:
            raise InvalidRequestError(f"group_id {envelope.group_id!r} does not name a share group.")
        if raw is not None and len(raw) > MAX_REQUEST_BYTES and envelope.api_key not in INTERNAL_KEYS:
            raise MessageTooLargeError(
                f"The request has {len(raw)} bytes; the most is {MAX_REQUEST_BYTES}.", "Send several smaller ones."
            )
    except ApiError as error:
        return refusal(raw, offset, error)
    return LoggedRequest(envelope, offset, time_ms)


def refusal(raw: bytes | None, offset: int, error: ApiError) -> Effect:
    """The answer to a record that is not judged, or its count when nobody can be answered."""
    address = _address(raw)
    if address is None:
        return Undecodable(offset, str(error))
    return Respond(
        address.reply_partition,
        ResponseEnvelope(
            api_key=address.api_key,
            correlation_id=address.correlation_id,
            group_id=address.group_id,
            member_id=address.member_id,
            body=ErrorResponse(error_code=error.code, error_message=str(error)).model_dump(mode="json"),
        ),
    )


def _address(raw: bytes | None) -> RequestEnvelope | None:
    """Whom to answer, as far as the bytes say it; None when they do not."""
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
    """Whether an answer can repeat a value: Python reads lone surrogates in JSON, but nobody can write them."""
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
