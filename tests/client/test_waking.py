"""wakeup() of the share consumer, as the Java client's was recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sharegroup.client.kafka_exceptions import WakeupException
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from tests.client.consumers import Callback, Consume, got
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually


def test_the_next_poll_raises_once(consume: Consume) -> None:
    consumer = consume("cl-1")
    consumer.wakeup()
    consumer.wakeup()
    with pytest.raises(WakeupException):
        consumer.poll(DEADLINE_S)
    assert got(consumer.poll(DEADLINE_S)) == "0-9:d1"


def test_a_commit_raises_once_and_what_it_sent_counts(consume: Consume) -> None:
    callback = Callback()
    consumer = consume("cl-1")
    consumer.set_acknowledgement_commit_callback(callback)
    consumer.poll(DEADLINE_S)
    consumer.wakeup()
    with pytest.raises(WakeupException):
        consumer.commit_sync()
    assert consumer.commit_sync() == {}
    assert callback.offsets == [list(range(10))]


def test_a_commit_with_nothing_to_wait_for_leaves_it_to_the_poll(consume: Consume) -> None:
    consumer = consume("cl-1")
    consumer.wakeup()
    assert consumer.commit_sync() == {}
    with pytest.raises(WakeupException):
        consumer.poll(DEADLINE_S)


def test_an_endless_poll_is_woken_by_another_thread(consume: Consume, log: LocalLog) -> None:
    log.create_topic("empty", 1, {})
    consumer = consume("empty")
    _woken_in(consumer, lambda: consumer.poll(-1))


def test_a_commit_without_a_response_is_woken_by_another_thread(consume: Consume, processor: ProcessorPeer) -> None:
    consumer = consume("cl-1")
    consumer.poll(DEADLINE_S)
    with processor.stalled():
        _woken_in(consumer, lambda: consumer.commit_sync(-1))


def test_a_poll_that_waits_for_renewals_is_woken_by_another_thread(consume: Consume, processor: ProcessorPeer) -> None:
    consumer = consume("cl-1", mode="explicit")
    for message in consumer.poll(DEADLINE_S):
        consumer.acknowledge(message, AcknowledgeType.RENEW)
    with processor.stalled():
        _woken_in(consumer, lambda: consumer.poll(-1))
    eventually(lambda: got(consumer.poll(DEADLINE_S)) == "0-9:d1", "the renewed records")


def test_after_close_it_does_nothing(consume: Consume) -> None:
    consumer = consume("cl-1")
    consumer.poll(DEADLINE_S)
    consumer.close()
    consumer.wakeup()
    consumer.close()


def _woken_in(consumer: ShareConsumer, call: Callable[[], object]) -> None:
    """Wake the consumer from another thread while it is in a call that would not end by itself."""

    def wake() -> None:
        eventually(consumer._guard._lock.locked, "the call")
        consumer.wakeup()

    waker = threading.Thread(target=wake)
    waker.start()
    with pytest.raises(WakeupException):
        call()
    waker.join()
