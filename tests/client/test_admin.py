"""The admin client against the real actors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import (
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidRequestError,
    NonEmptyGroupError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicError,
    UnknownTopicOrPartitionError,
)
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import ResponseEnvelope, decoded_request
from tests.client.processor_peer import REQUESTS, RESPONSES, ProcessorPeer, eventually


def test_configuration_of_a_group_is_changed(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log, client_id="ops")
    admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"}, delete=["share.isolation.level"])
    sent = processor.sent(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert [(envelope.group_id, envelope.client_id, envelope.body) for envelope in sent] == [
        ("g", "ops", {"set": {"share.auto.offset.reset": "earliest"}, "delete": ["share.isolation.level"]})
    ]


def test_a_refusal_is_raised_as_what_it_is(log: LocalLog, processor: ProcessorPeer) -> None:
    with pytest.raises(InvalidConfigError, match=r"share\.auto\.offset\.reset"):
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "sometimes"})


def test_a_group_is_resumed(log: LocalLog, processor: ProcessorPeer) -> None:
    AdminClient(log).resume_group("g")
    assert [envelope.group_id for envelope in processor.sent(ApiKey.RESUME_SHARE_GROUP)] == ["g"]


def used_group(log: LocalLog, admin: AdminClient) -> None:
    """Group `g` has read from `orders`, which has two partitions with ten records each, and has no members any more."""
    log.create_topic("orders", 2, {})
    for partition in range(2):
        log.append("orders", partition, [NewRecord(None, b"x")] * 10)
    admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    with ShareConsumer({"log.path": str(log.path), "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        taken = 0
        while taken < 20:
            taken += len(consumer.poll(timeout=10))


def test_start_offsets_are_altered_one_by_one(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    results = admin.alter_share_group_offsets("g", {("orders", 0): 7, ("orders", 1): 9, ("orders", 2): 0})
    refused = results.pop(("orders", 2))
    assert isinstance(refused, UnknownTopicOrPartitionError)
    assert results == {("orders", 0): None, ("orders", 1): None}
    with ShareConsumer({"log.path": str(log.path), "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        taken: list[tuple[int | None, int | None]] = []
        while len(taken) < 4:
            taken += [(message.partition(), message.offset()) for message in consumer.poll(timeout=10)]
        assert sorted(taken, key=str) == [(0, 7), (0, 8), (0, 9), (1, 9)]
        with pytest.raises(NonEmptyGroupError):
            admin.alter_share_group_offsets("g", {("orders", 0): 0})
    with pytest.raises(InvalidRequestError, match="start_offset"):
        admin.alter_share_group_offsets("g", {("orders", 0): -1})


def test_offsets_of_topics_are_deleted(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    results = admin.delete_share_group_offsets("g", ["orders", "nothing"])
    assert results["orders"] is None
    assert isinstance(results["nothing"], UnknownTopicOrPartitionError)
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_share_group_offsets("another", ["orders"])


def test_groups_are_deleted(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    used_group(log, admin)
    results = admin.delete_share_groups(["g", "another"])
    assert results["g"] is None
    assert isinstance(results["another"], GroupIdNotFoundError)


def test_silence_ends_in_a_timeout(log: LocalLog, processor: ProcessorPeer) -> None:
    with processor.stalled(), pytest.raises(RequestTimedOutError, match="Group g did not answer RESUME_SHARE_GROUP"):
        AdminClient(log).resume_group("g", timeout=0.05)


def test_a_late_answer_is_not_taken_for_the_next_one(log: LocalLog, processor: ProcessorPeer) -> None:
    admin = AdminClient(log)
    outcome: list[Exception | None] = []

    def alter() -> None:
        try:
            admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
            outcome.append(None)
        except InvalidConfigError as error:
            outcome.append(error)

    second = threading.Thread(target=alter)
    with processor.stalled():
        with pytest.raises(RequestTimedOutError):
            admin.alter_group_config("g", {"share.auto.offset.reset": "sometimes"}, timeout=0.05)
        second.start()
        eventually(lambda: len(processor.sent(ApiKey.INCREMENTAL_ALTER_CONFIGS)) == 2, "both requests")
    second.join()
    assert outcome == [None]


def test_an_answer_of_a_processor_that_was_taken_over_from_does_not_count(log: LocalLog) -> None:
    log.create_topic(REQUESTS, 1)
    log.create_topic(RESPONSES, 1)
    with ThreadPoolExecutor(1) as pool:
        resuming = pool.submit(AdminClient(log).resume_group, "g")
        eventually(lambda: log.offsets(REQUESTS)[0].end_offset == 1, "the request")
        asked = decoded_request(log.read(REQUESTS, 0, 0, 1)[0].value)
        refusal = {"error_code": UnknownServerError.code}
        answers = [
            ResponseEnvelope(
                api_key=asked.api_key,
                correlation_id=asked.correlation_id,
                group_id="g",
                member_id=asked.member_id,
                leader_epoch=leader_epoch,
                body=body,
            )
            for leader_epoch, body in ((4, refusal), (5, {}))
        ]
        started = ResponseEnvelope(
            api_key=ApiKey.PROCESSOR_STARTED, correlation_id=-1, group_id="", member_id="", leader_epoch=5
        )
        keys = (None, asked.member_id.encode(), asked.member_id.encode())
        envelopes = (started, *answers)
        log.append(RESPONSES, 0, [NewRecord(k, e.encoded()) for k, e in zip(keys, envelopes, strict=True)])
        assert resuming.result() is None


def test_a_log_without_a_processor_is_refused(log: LocalLog) -> None:
    with pytest.raises(UnknownTopicError, match="__share_requests"):
        AdminClient(log).resume_group("g")
