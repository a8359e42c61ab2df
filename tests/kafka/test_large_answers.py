"""Answers that are larger than what the response topic takes, told to a broker."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from sharegroup.actor.effects import Respond
from sharegroup.config.processor import ProcessorConfig
from sharegroup.errors import MessageTooLargeError
from sharegroup.logs.kafka import KafkaLog
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import ResponseEnvelope, decoded_response
from sharegroup.spark.actor_function import ActorOutput
from sharegroup.spark.bootstrap import CheckpointIdentity
from sharegroup.spark.committer import Committer, CommitterMetrics
from sharegroup.spark.facts import FactSource
from sharegroup.spark.link_topics import MAX_MESSAGE_BYTES, ensure_topics
from sharegroup.state.writer import StateTableWriter


@pytest.mark.parametrize("of_others", [False, True], ids=["the processor's topic", "a topic with Kafka's own bound"])
def test_everyone_is_answered(log: KafkaLog, tmp_path: Path, of_others: bool) -> None:
    stem = uuid4().hex[:8]
    config = ProcessorConfig(
        state_table_path=str(tmp_path / "state"),
        checkpoint_path=str(tmp_path / "checkpoint"),
        request_topic_name=f"requests-{stem}",
        response_topic_name=f"responses-{stem}",
        response_topic_partitions=1,
    )
    limit = 1_048_588 if of_others else MAX_MESSAGE_BYTES
    if of_others:
        bounds = {"retention.ms": "-1", "max.message.bytes": str(limit)}
        log.create_topic(config.response_topic_name, 1, bounds)
    request_topic = ensure_topics(log, config)
    writer = StateTableWriter.open(config.state_table_path, {})
    identity = CheckpointIdentity("checkpoint", request_topic.topic_id, {0: 0})
    committer = Committer(log, writer, config, identity, None, CommitterMetrics())
    # Sizes about the bound, with what an envelope has besides.
    effects = [answer(number, limit + size) for number, size in enumerate([-900_000, -9_000, 0, 2_000_000])]
    output = ActorOutput("group", "leader", 0, 1, 1, 0, 0, effects)
    committer.commit(0, [output], FactSource(log, committer.send, lambda failure: None))
    told = [decoded_response(r.value) for r in log.read(config.response_topic_name, 0, 0, len(effects))]
    too_large = MessageTooLargeError.code
    assert [(found.correlation_id, found.body.get("error_code", 0)) for found in told] == [
        (0, 0),
        (1, 0),
        (2, too_large),
        (3, too_large),
    ]


def answer(correlation_id: int, size: int) -> Respond:
    body = {"error_message": "x" * size}
    envelope = ResponseEnvelope(
        api_key=ApiKey.SHARE_FETCH, correlation_id=correlation_id, group_id="group", member_id="member", body=body
    )
    return Respond(0, envelope)
