"""The answer that a share session keeps for a repeat of its last request: final bytes, and few of them."""

from __future__ import annotations

from sharegroup.actor.answers import response_to
from sharegroup.errors import InvalidShareSessionEpochError
from sharegroup.protocol.messages import ErrorResponse, RequestEnvelope, ResponseEnvelope
from sharegroup.protocol.share_fetch import ShareFetchResponse

MAX_KEPT_BYTES = 65_536
"""Size of a kept answer; a larger one is kept without what it acquired, which stays locked until its deadline."""


def kept_answer(envelope: RequestEnvelope, response: ResponseEnvelope, body: ShareFetchResponse) -> bytes:
    """The bytes to keep of an answer.

    Args:
        envelope: the request.
        response: its answer.
        body: the answer's body.
    """
    encoded = response.encoded()
    if len(encoded) > MAX_KEPT_BYTES:
        encoded = response_to(envelope, _without_records(body)).encoded()
    if len(encoded) > MAX_KEPT_BYTES:
        error = InvalidShareSessionEpochError(
            "The answer to this request is too large to be sent again.", "Open the session again with epoch 0."
        )
        encoded = response_to(envelope, ErrorResponse(error_code=error.code, error_message=str(error))).encoded()
    return encoded


def _without_records(body: ShareFetchResponse) -> ShareFetchResponse:
    topics = [
        topic.model_copy(
            update={
                "partitions": [
                    partition.model_copy(update={"acquired_records": []})
                    for partition in topic.partitions
                    if partition.is_acknowledged or partition.error_code
                ]
            }
        )
        for topic in body.responses
    ]
    return body.model_copy(update={"lock_deadline_ms": 0, "responses": [topic for topic in topics if topic.partitions]})
