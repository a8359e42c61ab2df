"""Answers as final bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.actor.effects import Respond
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import MessageTooLargeError
from sharegroup.logs.local import LocalLog
from sharegroup.processor.answer_records import AnswerRecords
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.messages import ResponseEnvelope, decoded_response

LEADER_EPOCH = 3


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with LocalLog(tmp_path / "log.db") as log:
        log.create_topic("__share_responses", 4, {"max.message.bytes": "2000000"})
        yield log


@pytest.fixture
def records(log: LocalLog, tmp_path: Path) -> AnswerRecords:
    config = ProcessorConfig(
        log_path=tmp_path / "log.db", state_table_path=str(tmp_path / "s"), checkpoint_path=str(tmp_path / "c")
    )
    return AnswerRecords(log, config, LEADER_EPOCH)


def respond(partition: int, text: str = "ok") -> Respond:
    response = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH, correlation_id=5, group_id="g", member_id="m", body={"text": text}
    )
    return Respond(partition, response)


def answer(records: AnswerRecords, effect: Respond) -> OutboxAnswer:
    answer = records.outbox_answer(effect)
    assert answer is not None
    return answer


def stamped(effect: Respond) -> ResponseEnvelope:
    """Return the response with the epoch of the processor."""
    return effect.response.model_copy(update={"leader_epoch": LEADER_EPOCH})


def test_an_answer_gets_the_leader_epoch_and_its_final_bytes(records: AnswerRecords) -> None:
    effect = respond(3)
    made = answer(records, effect)
    assert (made.partition, made.member_id) == (3, "m")
    assert made.value.encode() == stamped(effect).encoded()


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_gets_no_answer(records: AnswerRecords, partition: int) -> None:
    assert records.outbox_answer(respond(partition)) is None


# 990,000 characters of two bytes each are more than the topic takes, as many of one byte are not.
@pytest.mark.parametrize(("character", "is_replaced"), [("x", False), ("\u00e9", True)])
def test_an_answer_is_replaced_when_the_topic_does_not_take_it(
    records: AnswerRecords, character: str, is_replaced: bool
) -> None:
    effect = respond(0, character * 996_000)
    response = decoded_response(answer(records, effect).value.encode())
    assert (response.correlation_id, response.member_id, response.leader_epoch) == (5, "m", LEADER_EPOCH)
    assert (response.body.get("error_code") == MessageTooLargeError.code) is is_replaced
    assert (response == stamped(effect)) is not is_replaced
