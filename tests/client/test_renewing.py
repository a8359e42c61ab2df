"""RENEW with the share consumer against the real actors, as the Java client's was recorded."""

from __future__ import annotations

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.kafka_exceptions import IllegalStateException, KafkaException
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.protocol.api_key import ApiKey
from tests.client.consumers import CL_1, Callback, Consume, acknowledge_all, got, member_of
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S

ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW


@pytest.fixture
def consumer(consume: Consume) -> ShareConsumer:
    """Three records a poll, explicit mode."""
    return consume("cl-1", mode="explicit", max_poll_records=3)


def test_what_a_commit_renewed_is_returned_again_and_its_count_does_not_rise(consumer: ShareConsumer) -> None:
    callback = Callback()
    consumer.set_acknowledgement_commit_callback(callback)
    messages = consumer.poll(DEADLINE_S)
    acknowledge_all(consumer, messages, RENEW)
    assert consumer.commit_sync() == {CL_1: None}
    assert callback.offsets == [[0, 1, 2]]
    again = consumer.poll(DEADLINE_S)
    assert got(again) == "0-2:d1"
    assert [message.value() for message in again] == [message.value() for message in messages]
    acknowledge_all(consumer, again)
    assert consumer.commit_sync() == {CL_1: None}
    assert callback.offsets == [[0, 1, 2]] * 2
    assert got(consumer.poll(DEADLINE_S)) == "3-5:d1"


def test_a_poll_that_sends_renewals_is_empty_and_the_next_one_has_the_records(consumer: ShareConsumer) -> None:
    acknowledge_all(consumer, consumer.poll(DEADLINE_S), RENEW)
    assert consumer.poll(DEADLINE_S).is_empty()
    again = consumer.poll(DEADLINE_S)
    assert got(again) == "0-2:d1"
    acknowledge_all(consumer, again)
    assert got(consumer.poll(DEADLINE_S)) == "3-5:d1"


def test_a_renewal_without_a_response_in_time_holds_new_records_back(
    consumer: ShareConsumer, processor: ProcessorPeer
) -> None:
    acknowledge_all(consumer, consumer.poll(DEADLINE_S), RENEW)
    with processor.stalled():
        assert consumer.poll(0.05).is_empty()
        assert consumer.poll(0.05).is_empty()
    assert got(consumer.poll(DEADLINE_S) or consumer.poll(DEADLINE_S)) == "0-2:d1"


def test_a_record_cannot_be_acknowledged_until_a_poll_has_returned_it_again(consumer: ShareConsumer) -> None:
    messages = consumer.poll(DEADLINE_S)
    acknowledge_all(consumer, messages[:2], RENEW)
    consumer.commit_sync()
    for message in messages[:2]:
        with pytest.raises(IllegalStateException):
            consumer.acknowledge(message)
    consumer.acknowledge(messages[2])
    assert consumer.commit_sync() == {CL_1: None}
    again = consumer.poll(DEADLINE_S)
    assert got(again) == "0-1:d1"
    with pytest.raises(IllegalStateException, match=r"^2 records from previous poll have not been acknowledged$"):
        consumer.poll(DEADLINE_S)


def test_the_last_word_before_the_commit_counts(consumer: ShareConsumer) -> None:
    messages = consumer.poll(DEADLINE_S)
    acknowledge_all(consumer, messages, RENEW)
    acknowledge_all(consumer, messages, ACCEPT)
    assert consumer.commit_sync() == {CL_1: None}
    assert got(consumer.poll(DEADLINE_S)) == "3-5:d1"


@pytest.mark.long("locks end by time")
@pytest.mark.slow
def test_a_lock_restarts_with_each_renewal(log: LocalLog, consume: Consume) -> None:
    AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "4000"})
    consumer = consume("cl-1", mode="explicit", max_poll_records=3)
    messages = consumer.poll(DEADLINE_S)
    after_the_first_lock_ms = log.now_ms() + 5_000
    while log.now_ms() < after_the_first_lock_ms:
        acknowledge_all(consumer, messages, RENEW)
        assert consumer.commit_sync() == {CL_1: None}
        messages = consumer.poll(DEADLINE_S)
        assert got(messages) == "0-2:d1"
    acknowledge_all(consumer, messages)
    assert consumer.commit_sync() == {CL_1: None}


@pytest.mark.slow
def test_who_only_renews_is_there_all_the_same(consume: Consume, log: LocalLog) -> None:
    consumer = consume("cl-1", mode="explicit", max_poll_records=3, max_poll_interval_ms=3_000)
    messages = consumer.poll(DEADLINE_S)
    an_interval_later_ms = log.now_ms() + 4_000
    while log.now_ms() < an_interval_later_ms:
        acknowledge_all(consumer, messages, RENEW)
        consumer.commit_sync()
        messages = consumer.poll(DEADLINE_S)
    assert member_of(consumer).standing().is_stable


def test_a_group_may_forbid_it(log: LocalLog, consume: Consume) -> None:
    AdminClient(log).alter_group_config("g", {"share.renew.acknowledge.enable": "false"})
    callback = Callback()
    consumer = consume("cl-1", mode="explicit", max_poll_records=3)
    consumer.set_acknowledgement_commit_callback(callback)
    acknowledge_all(consumer, consumer.poll(DEADLINE_S), RENEW)
    (failure,) = consumer.commit_sync().values()
    assert isinstance(failure, KafkaException)
    assert failure.args[0].name() == "INVALID_RECORD_STATE"
    assert [sorted(offsets[CL_1]) for offsets, _ in callback.reports] == [[0, 1, 2]]
    # The records are lost to this consumer until their locks end.
    assert got(consumer.poll(DEADLINE_S)) == "3-5:d1"


def test_close_sends_renewals_and_releases_the_records(consume: Consume, processor: ProcessorPeer) -> None:
    with consume("cl-1", mode="explicit", max_poll_records=3) as consumer:
        acknowledge_all(consumer, consumer.poll(DEADLINE_S), RENEW)
    assert RENEW in [
        kind
        for sent in (*processor.sent(ApiKey.SHARE_ACKNOWLEDGE), *processor.sent(ApiKey.SHARE_FETCH))
        for topic in sent.body.get("topics", [])
        for partition in topic["partitions"]
        for batch in partition.get("acknowledgement_batches", [])
        for kind in batch["acknowledge_types"]
    ]
    assert got(consume("cl-1", max_poll_records=3).poll(DEADLINE_S)) == "0-2:d2"
