"""Responses as final bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.actor.effects import Address, Respond, response_to
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import MessageTooLargeError
from sharegroup.logs.local import LocalLog
from sharegroup.processor.output import ResponseRecords
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.marker import OutboxResponse
from sharegroup.protocol.messages import ErrorResponse, ResponseEnvelope, decoded_response

LEADER_EPOCH = 3


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as log:
        log.create_topic("__share_responses", 4, {"max.message.bytes": "2000000"})
        yield log


@pytest.fixture
def records(log: LocalLog, tmp_path: Path) -> ResponseRecords:
    config = ProcessorConfig(
        log_path=tmp_path / "log.db", state_table_path=str(tmp_path / "s"), checkpoint_path=str(tmp_path / "c")
    )
    return ResponseRecords(log, config)


def respond(partition: int, text: str = "ok") -> Respond:
    address = Address(partition, ApiKey.SHARE_FETCH, 5, "g", "m")
    return response_to(address, ErrorResponse(error_message=text), LEADER_EPOCH)


def published(records: ResponseRecords, effect: Respond) -> OutboxResponse:
    response = records.outbox_response(effect)
    assert response is not None
    return response


def test_a_response_is_the_envelope_with_its_body_in_json(records: ResponseRecords) -> None:
    made = published(records, respond(3, 'a "quoted" text\n\x01 é 🙂'))
    assert (made.partition, made.member_id) == (3, "m")
    envelope = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH,
        correlation_id=5,
        group_id="g",
        member_id="m",
        leader_epoch=LEADER_EPOCH,
        body={"error_message": 'a "quoted" text\n\x01 é 🙂'},
    )
    assert made.value.encode() == envelope.encoded()


@pytest.mark.parametrize("text", ['say "hello"', "back\\slash", "\x00\x1f\x7f\n\t", "grüße 🙂 \u2028"])
def test_names_come_back_as_they_were_sent(text: str) -> None:
    effect = response_to(Address(0, ApiKey.SHARE_FETCH, -1, text, text), ErrorResponse(), LEADER_EPOCH)
    assert (effect.response.group_id, effect.response.member_id) == (text, text)
    assert effect.value.encode() == effect.response.encoded()


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_gets_no_response(records: ResponseRecords, partition: int) -> None:
    assert records.outbox_response(respond(partition)) is None


# 990,000 characters of two bytes each are more than the topic takes, as many of one byte are not.
@pytest.mark.parametrize(("character", "is_replaced"), [("x", False), ("\u00e9", True)])
def test_a_response_is_replaced_when_the_topic_does_not_take_it(
    records: ResponseRecords, character: str, is_replaced: bool
) -> None:
    effect = respond(0, character * 996_000)
    response = decoded_response(published(records, effect).value.encode())
    assert (response.correlation_id, response.member_id, response.leader_epoch) == (5, "m", LEADER_EPOCH)
    assert (response.body.get("error_code") == MessageTooLargeError.code) is is_replaced
    assert (response == effect.response) is not is_replaced
