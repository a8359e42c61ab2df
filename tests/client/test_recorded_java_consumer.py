"""Scenarios of the Java client's recording that tell of more than confluent-kafka's, with our share consumer.

| Recorded scenario | Test |
|---|---|
| renew, partial-expiry | test_renewing.py; here what times out beside what is renewed |
| deserialization | test_deserializing_share_consumer.py |
| lifecycle (wakeup) | test_waking.py |
| max-poll-records, delivery-throttle, locks-limit | here |
| close-releases, subscription-change, revocation, max-poll-interval, config-change-live | here |
| crash | tests/crash |
| assignment | tests/coordinator/test_assignor.py |
| group-states | tests/client/test_group_description.py |
| the others | test_recorded_share_consumer.py, under the same name |
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.kafka_exceptions import IllegalStateException, KafkaError, KafkaException
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.consumers import CL_1, Callback, Consume, acknowledge_all, fetches_ahead, got, member_of
from tests.support.eventually import DEADLINE_S, eventually

Produce = Callable[[str, int], None]
SHORT_S = 0.1


def configure(log: LocalLog, **values: str) -> None:
    AdminClient(log).alter_group_config("g", {key.replace("_", "."): value for key, value in values.items()})


class TestAcquireMode:
    @pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
    @pytest.mark.parametrize("count", [3, 25])
    def test_new_records_come_in_exact_numbers(self, consume: Consume, mode: str, count: int) -> None:
        consumer = consume("cl-1", share_acquire_mode=mode, max_poll_records=count)
        assert [len(consumer.poll(DEADLINE_S)) for _ in range(4)] == [count] * 4

    @pytest.mark.parametrize(
        ("mode", "polls"), [("batch_optimized", ["0-9:d2"]), ("record_limit", ["0-7:d2", "8-9:d2"])]
    )
    def test_records_that_came_back_together_are_one_batch(
        self, consume: Consume, produce: Produce, mode: str, polls: list[str]
    ) -> None:
        produce("ten", 10)
        with consume("ten", max_poll_records=10) as first:
            assert got(first.poll(DEADLINE_S)) == "0-9:d1"
        second = consume("ten", share_acquire_mode=mode, max_poll_records=8)
        assert [got(second.poll(DEADLINE_S)) for _ in polls] == polls
        assert second.poll(SHORT_S).is_empty()


class TestClose:
    def test_what_is_acknowledged_counts_and_what_is_not_is_released(self, consume: Consume, produce: Produce) -> None:
        produce("ten", 10)
        exactly_4 = {"max_poll_records": 4, "share_acquire_mode": "record_limit"}
        with consume("ten", **exactly_4) as first:
            assert got(first.poll(DEADLINE_S)) == "0-3:d1"
        callback = Callback()
        with consume("ten", mode="explicit", **exactly_4) as second:
            second.set_acknowledgement_commit_callback(callback)
            messages = second.poll(DEADLINE_S)
            assert got(messages) == "0-3:d2"
            acknowledge_all(second, messages[:2])
        assert callback.offsets == [[0, 1]]
        third = consume("ten", mode="explicit", **exactly_4)
        assert got(third.poll(DEADLINE_S)) == "2-3:d3 4-5:d1"
        third.close(0)
        assert got(consume("ten", **exactly_4).poll(DEADLINE_S)).startswith("2-2:d4")


def test_another_subscription_wants_the_records_of_the_old_one_acknowledged(consume: Consume, produce: Produce) -> None:
    produce("cl-2", 100)
    callback = Callback()
    consumer = consume("cl-1", mode="explicit")
    consumer.set_acknowledgement_commit_callback(callback)
    messages = consumer.poll(DEADLINE_S)
    consumer.subscribe(["cl-2"])
    assert consumer.subscription() == ["cl-2"]
    with pytest.raises(IllegalStateException, match=r"^10 records from previous poll have not been acknowledged$"):
        consumer.poll(0)
    acknowledge_all(consumer, messages)
    assert consumer.commit_sync() == {CL_1: None}
    assert {message.topic() for message in consumer.poll(DEADLINE_S)} == {"cl-2"}
    assert callback.offsets == [list(range(10))]


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_a_partition_that_moves_stays_locked_and_its_records_can_be_acknowledged(
    consume: Consume, log: LocalLog, mode: str
) -> None:
    log.create_topic("two", 2, {})
    first = consume("two", mode=mode, max_poll_records=100)
    eventually(lambda: first.poll(SHORT_S).is_empty() and member_of(first).standing().partition_count == 2, "both")
    for partition in range(2):
        log.append("two", partition, [NewRecord(None, b"v")] * 10)
    held = first.poll(DEADLINE_S)
    second = consume("two", mode=mode, max_poll_records=100)

    def has_moved() -> bool:
        polled = second.poll(SHORT_S)
        assert not {(m.partition(), m.offset()) for m in polled} & {(m.partition(), m.offset()) for m in held}
        if mode == "explicit":
            acknowledge_all(second, polled)
        return [member_of(consumer).standing().partition_count for consumer in (first, second)] == [1, 1]

    eventually(has_moved, "a partition for each")
    if mode == "explicit":
        acknowledge_all(first, held)
    assert set(first.commit_sync().values()) == {None}


def test_a_consumer_that_does_not_poll_leaves_may_still_acknowledge_and_comes_back(
    consume: Consume, produce: Produce
) -> None:
    produce("ten", 10)
    consumer = consume("ten", mode="explicit", max_poll_records=5, max_poll_interval_ms=500)
    messages = consumer.poll(DEADLINE_S)
    assert got(messages) == "0-4:d1"
    eventually(lambda: not member_of(consumer).standing().is_stable, "the end of the membership")
    acknowledge_all(consumer, messages)
    assert set(consumer.commit_sync().values()) == {None}
    # As confluent-kafka; Java's poll returns the next records at once.
    with pytest.raises(KafkaException, match=r"maximum poll interval \(500ms\) exceeded by") as failure:
        consumer.poll(DEADLINE_S)
    assert failure.value.args[0].code() == KafkaError._MAX_POLL_EXCEEDED
    assert got(consumer.poll(DEADLINE_S)) == "5-9:d1"


def test_a_changed_configuration_holds_from_the_next_acquisition_on(
    consume: Consume, produce: Produce, log: LocalLog
) -> None:
    produce("five", 5)
    consumer = consume("five", mode="explicit", max_poll_records=5)
    assert consumer.acquisition_lock_timeout_ms() is None
    messages = consumer.poll(DEADLINE_S)
    assert consumer.acquisition_lock_timeout_ms() == 30_000
    configure(log, share_record_lock_duration_ms="5000", share_delivery_count_limit="2")
    acknowledge_all(consumer, messages, AcknowledgeType.RELEASE)
    again = consumer.poll(DEADLINE_S)
    assert {message.delivery_count() for message in again} == {2}
    assert consumer.acquisition_lock_timeout_ms() == 5_000


@pytest.mark.long("locks end by time")
@pytest.mark.slow
def test_what_is_renewed_outlives_what_is_not(consume: Consume, produce: Produce, log: LocalLog) -> None:
    lock_duration_ms = 6_000
    configure(log, share_record_lock_duration_ms=str(lock_duration_ms))
    produce("ten", 10)
    consumer = consume("ten", mode="explicit", max_poll_records=5)
    messages = consumer.poll(DEADLINE_S)
    assert got(messages) == "0-4:d1"
    lock_end_ms = log.now_ms() + lock_duration_ms
    # What is fetched ahead waits, so that nothing else is fetched until the next poll.
    assert fetches_ahead(consumer)
    eventually(lambda: log.now_ms() >= lock_end_ms - lock_duration_ms // 2, "half of the lock")
    acknowledge_all(consumer, messages[:2], AcknowledgeType.RENEW)
    assert set(consumer.commit_sync().values()) == {None}
    eventually(lambda: log.now_ms() >= lock_end_ms, "the end of the lock")
    acknowledge_all(consumer, messages[2:])
    (error,) = consumer.commit_sync().values()
    assert error is not None
    assert error.args[0].name() == "INVALID_RECORD_STATE"
    renewed = consumer.poll(DEADLINE_S)
    assert got(renewed) == "0-1:d1"
    acknowledge_all(consumer, renewed)
    assert set(consumer.commit_sync().values()) == {None}
    assert got(consumer.poll(DEADLINE_S)).startswith("2-4:d2")


def test_the_window_of_a_share_partition_begins_at_its_start_offset(consume: Consume, log: LocalLog) -> None:
    configure(log, share_partition_max_record_locks="100")
    first = consume("cl-1", mode="explicit", max_poll_records=60)
    held = first.poll(DEADLINE_S)
    assert got(held) == "0-59:d1"
    fetches_ahead(first)
    second = consume("cl-1", mode="explicit", max_poll_records=100, fetch_max_wait_ms=50)
    assert second.poll(SHORT_S).is_empty()
    acknowledge_all(first, held)
    first.commit_sync()
    assert got(second.poll(DEADLINE_S)).endswith("-119:d1")
