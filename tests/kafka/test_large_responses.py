"""Responses that the response topic of a real broker does not take."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.actor.effects import Address, Respond, response_to
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import MessageTooLargeError
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.processor.output import ResponseRecords
from sharegroup.processor.topics import MAX_MESSAGE_BYTES, ensure_topics
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import ErrorResponse, decoded_response


@pytest.mark.parametrize("is_own", [True, False], ids=["topic of the processor", "topic with Kafka's bound"])
def test_a_response_that_is_too_large_is_replaced(log: KafkaLog, tmp_path: Path, is_own: bool) -> None:
    stem = uuid4().hex[:8]
    config = ProcessorConfig(
        state_table_path=str(tmp_path / "state"),
        checkpoint_path=str(tmp_path / "checkpoint"),
        request_topic_name=f"requests-{stem}",
        response_topic_name=f"responses-{stem}",
        response_topic_partitions=1,
    )
    limit = MAX_MESSAGE_BYTES if is_own else 1_048_588
    if not is_own:
        bounds = {"retention.ms": "-1", "max.message.bytes": str(limit)}
        log.create_topic(config.response_topic_name, 1, bounds)
    ensure_topics(log, config)
    records = ResponseRecords(log, config)
    # Sizes about the bound, with what an envelope has besides.
    for number, size in enumerate([-900_000, -9_000, 0, 2_000_000]):
        response = records.outbox_response(respond(number, limit + size))
        assert response is not None
        log.append(
            config.response_topic_name,
            response.partition,
            [NewRecord(response.member_id.encode(), response.value.encode())],
        )
    responses = [decoded_response(r.value) for r in log.read(config.response_topic_name, 0, 0, 4)]
    too_large = MessageTooLargeError.code
    assert [(response.correlation_id, response.body.get("error_code", 0)) for response in responses] == [
        (0, 0),
        (1, 0),
        (2, too_large),
        (3, too_large),
    ]


def respond(correlation_id: int, size: int) -> Respond:
    address = Address(0, ApiKey.SHARE_FETCH, correlation_id, "group", "member")
    return response_to(address, ErrorResponse(error_message="x" * size), leader_epoch=1)
