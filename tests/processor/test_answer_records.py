"""Answers as final bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.actor.effects import Respond
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import MessageTooLargeError
from sharegroup.logs.local import LocalLog
from sharegroup.processor.answer_records import AnswerRecords, answer_record
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.marker import OutboxAnswer
from sharegroup.protocol.messages import ResponseEnvelope, decoded_response


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
    return AnswerRecords(log, config)


def respond(partition: int, text: str = "ok") -> Respond:
    response = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH, correlation_id=5, group_id="g", member_id="m", leader_epoch=3, body={"text": text}
    )
    return Respond(partition, response)


def answer(records: AnswerRecords, effect: Respond) -> OutboxAnswer:
    answer = records.outbox_answer(effect)
    assert answer is not None
    return answer


def test_an_answer_keeps_its_bytes(records: AnswerRecords) -> None:
    effect = respond(3)
    made = answer(records, effect)
    assert (made.partition, made.member_id) == (3, "m")
    record = answer_record(made)
    assert (record.key, record.value) == (b"m", effect.response.encoded())


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_gets_no_answer(records: AnswerRecords, partition: int) -> None:
    assert records.outbox_answer(respond(partition)) is None


# 990,000 characters of two bytes each are more than the topic takes, as many of one byte are not.
@pytest.mark.parametrize(("character", "is_replaced"), [("x", False), ("\u00e9", True)])
def test_an_answer_is_replaced_when_the_topic_does_not_take_it(
    records: AnswerRecords, character: str, is_replaced: bool
) -> None:
    effect = respond(0, character * 996_000)
    response = decoded_response(answer_record(answer(records, effect)).value)
    assert (response.correlation_id, response.member_id, response.leader_epoch) == (5, "m", 3)
    assert (response.body.get("error_code") == MessageTooLargeError.code) is is_replaced
    assert (response == effect.response) is not is_replaced
