"""The share consumer against the real actors, as confluent-kafka's was recorded: modes, acknowledgements, callback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import confluent_kafka
import pytest

from sharegroup.client import read_ahead
from sharegroup.client.admin import AdminClient
from sharegroup.client.kafka_exceptions import (
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from sharegroup.client.message import Message
from sharegroup.client.share_consumer import AcknowledgeType
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.consumers import CL_1, ERRONEOUS_STATE, INVALID_ARGUMENT, Callback, Consume, got, member_of
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually


class TestImplicit:
    def test_the_next_poll_accepts_and_so_does_a_commit(self, consume: Consume) -> None:
        callback = Callback()
        consumer = consume("cl-1")
        consumer.set_acknowledgement_commit_callback(callback)
        assert got(consumer.poll(DEADLINE_S)) == "0-9:d1"
        assert got(consumer.poll(DEADLINE_S)) == "10-19:d1"
        assert consumer.commit_sync() == {CL_1: None}
        assert callback.offsets == [list(range(10)), list(range(10, 20))]
        assert consumer.commit_sync() == {}
        assert got(consumer.poll(DEADLINE_S)) == "20-29:d1"
        consumer.commit_async()
        assert got(consumer.poll(DEADLINE_S)) == "30-39:d1"
        consumer.close()
        assert callback.offsets == [list(range(first, first + 10)) for first in (0, 10, 20)]
        assert {exception for _, exception in callback.reports} == {None}
        assert callback.threads == {threading.current_thread().name}
        # Close does not accept: what the last poll returned is released, and counts as delivered.
        assert got(consume("cl-1").poll(DEADLINE_S)) == "30-39:d2"

    def test_what_was_fetched_ahead_and_not_polled_was_never_delivered(self, consume: Consume) -> None:
        with consume("cl-1") as consumer:
            consumer.poll(DEADLINE_S)
            consumer.poll(DEADLINE_S)
        assert got(consume("cl-1", max_poll_records=200).poll(DEADLINE_S)) == "10-19:d2 20-119:d1"

    def test_the_application_cannot_acknowledge(self, consume: Consume) -> None:
        consumer = consume("cl-1")
        message = consumer.poll(DEADLINE_S)[0]
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge message: {ERRONEOUS_STATE}$"):
            consumer.acknowledge(message)
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge offset: {ERRONEOUS_STATE}$"):
            consumer.acknowledge_offset("cl-1", 0, 0)


def test_a_poll_for_more_records_than_are_read_ahead_takes_those(
    consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_RECORDS_AT_ONCE", 5)
    monkeypatch.setattr(read_ahead, "_RECORDS_AHEAD", 10)
    consumer = consume("cl-1", max_poll_records=30)
    # A poll without a timeout that waits for 30 records would never end.
    deadline = threading.Timer(DEADLINE_S, consumer.wakeup)
    deadline.start()
    assert got(consumer.poll()) == "0-9:d1"
    deadline.cancel()


class TestExplicit:
    def test_a_poll_is_refused_until_everything_is_acknowledged(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        messages = consumer.poll(DEADLINE_S)
        assert got(messages) == "0-9:d1"
        with pytest.raises(IllegalStateException, match=r"^10 records from previous poll have not been acknowledged$"):
            consumer.poll(0.3)
        for message in messages[:3]:
            consumer.acknowledge(message)
        with pytest.raises(IllegalStateException, match=r"^7 records from previous poll"):
            consumer.poll(0.3)
        assert consumer.commit_sync() == {CL_1: None}
        with pytest.raises(IllegalStateException, match=r"^7 records from previous poll"):
            consumer.poll(0.3)
        for message in messages[3:]:
            consumer.acknowledge(message)
        assert got(consumer.poll(DEADLINE_S)) == "10-19:d1"
        consumer.close()
        assert got(consume("cl-1", mode="explicit").poll(DEADLINE_S)) == "10-19:d2"

    def test_types_do_what_they_say(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE]
        for message in consumer.poll(DEADLINE_S):
            consumer.acknowledge(message, kinds[(message.offset() or 0) % 3])
        assert consumer.commit_sync() == {CL_1: None}
        consumer.close()
        released = consume("cl-1", mode="explicit", max_poll_records=500)
        seen = got(released.poll(DEADLINE_S))
        assert seen.startswith("2-2:d2 5-5:d2 8-8:d2 ")

    def test_close_sends_what_was_acknowledged_and_releases_the_rest(self, consume: Consume) -> None:
        callback = Callback()
        with consume("cl-1", mode="explicit") as consumer:
            consumer.set_acknowledgement_commit_callback(callback)
            for message in consumer.poll(DEADLINE_S)[:4]:
                consumer.acknowledge(message)
        assert callback.offsets == [[0, 1, 2, 3]]
        assert got(consume("cl-1").poll(DEADLINE_S)).startswith("4-9:d2")


class TestAcknowledgeErrors:
    def test_before_any_poll(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        assert consumer.commit_sync() == {}
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge offset: {ERRONEOUS_STATE}$"):
            consumer.acknowledge_offset("cl-1", 0, 0)

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            (("x",), TypeError, r"argument 1 must be .*Message, not str"),
            ((None,), TypeError, r"argument 1 must be .*Message, not None"),
            (("polled", 9), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
            (("polled", 0), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
            (("polled", 5), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
            (("polled", 100), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
            (("polled", "ACCEPT"), TypeError, "^'str' object cannot be interpreted as an integer$"),
            ((Message(partition=0, offset=0),), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
            ((Message("cl-1", 0, -1),), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
            ((Message("cl-1", 0, 9999),), IllegalStateException, f"^Failed to acknowledge message: {ERRONEOUS_STATE}$"),
        ],
    )
    def test_of_acknowledge(
        self, consume: Consume, arguments: tuple[object, ...], error: type[Exception], text: str
    ) -> None:
        consumer = consume("cl-1", mode="explicit")
        polled = consumer.poll(DEADLINE_S)[0]
        acknowledge: Callable[..., None] = consumer.acknowledge
        with pytest.raises(error, match=text):
            acknowledge(*(polled if argument == "polled" else argument for argument in arguments))

    @pytest.mark.parametrize(
        ("ack_type", "delay_ms"),
        [
            (AcknowledgeType.ACCEPT, 5),
            (AcknowledgeType.REJECT, 0),
            (AcknowledgeType.RELEASE, -1),
            (AcknowledgeType.RELEASE, 604_800_001),
        ],
    )
    def test_of_a_delay(self, consume: Consume, ack_type: AcknowledgeType, delay_ms: int) -> None:
        consumer = consume("cl-1", mode="explicit")
        polled = consumer.poll(DEADLINE_S)[0]
        with pytest.raises(ValueError, match=f"redelivery_delay_ms is {delay_ms}; it must be from 0 to 604800000"):
            consumer.acknowledge(polled, ack_type, redelivery_delay_ms=delay_ms)

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            (("cl-1", 0, 9999), IllegalStateException, f"^Failed to acknowledge offset: {ERRONEOUS_STATE}$"),
            (("cl-2", 0, 0), IllegalStateException, f"^Failed to acknowledge offset: {ERRONEOUS_STATE}$"),
            (("cl-1", 0, -1), ValueError, f"^Failed to acknowledge offset: {INVALID_ARGUMENT}$"),
            (("cl-1", -1, 0), ValueError, f"^Failed to acknowledge offset: {INVALID_ARGUMENT}$"),
            ((b"cl-1", 0, 0), TypeError, "^argument 1 must be str, not bytes$"),
            (("cl-1", "0", 0), TypeError, "^'str' object cannot be interpreted as an integer$"),
        ],
    )
    def test_of_acknowledge_offset(
        self, consume: Consume, arguments: tuple[object, ...], error: type[Exception], text: str
    ) -> None:
        consumer = consume("cl-1", mode="explicit")
        consumer.poll(DEADLINE_S)
        acknowledge_offset: Callable[..., None] = consumer.acknowledge_offset
        with pytest.raises(error, match=text):
            acknowledge_offset(*arguments)

    def test_the_last_word_counts_and_after_the_commit_it_is_too_late(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        messages = consumer.poll(DEADLINE_S)
        consumer.acknowledge_offset("cl-1", 0, 1)
        consumer.acknowledge(messages[2], AcknowledgeType.ACCEPT)
        consumer.acknowledge(messages[2], AcknowledgeType.RELEASE)
        consumer.acknowledge(Message("cl-1", 0, 3))
        consumer.acknowledge(confluent_kafka.Message("cl-1", 0, 4))
        assert consumer.commit_sync() == {CL_1: None}
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge message: {ERRONEOUS_STATE}$"):
            consumer.acknowledge(messages[2])
        assert consumer.commit_sync(1) == {}
        for message in messages:
            if message.offset() not in (1, 2, 3, 4):
                consumer.acknowledge(message)
        consumer.close()
        assert got(consume("cl-1", max_poll_records=500).poll(DEADLINE_S)).startswith("2-2:d2 ")

    @pytest.mark.parametrize("call", ["poll", "commit_sync"])
    def test_a_timeout_is_a_number(self, consume: Consume, call: str) -> None:
        with pytest.raises(TypeError, match=r"^must be real number, not str$"):
            getattr(consume("cl-1"), call)("x")


class TestCommitCallback:
    def test_it_is_called_only_inside_calls(self, consume: Consume) -> None:
        callback = Callback()
        consumer = consume("cl-1")
        consumer.set_acknowledgement_commit_callback(callback)
        consumer.poll(DEADLINE_S)
        consumer.commit_async()
        eventually(lambda: not member_of(consumer).unconfirmed_partitions(), "the response")
        assert callback.reports == []
        consumer.poll(DEADLINE_S)
        assert callback.offsets == [list(range(10))]

    def test_it_cannot_call_the_consumer(self, consume: Consume) -> None:
        consumer = consume("cl-1")
        raised: list[str] = []

        def callback(offsets: object, exception: object) -> None:
            for call in (consumer.subscription, lambda: consumer.poll(0), consumer.close):
                with pytest.raises(IllegalStateException) as info:
                    call()
                raised.append(str(info.value))

        consumer.set_acknowledgement_commit_callback(callback)
        consumer.poll(DEADLINE_S)
        assert consumer.commit_sync() == {CL_1: None}
        text = "Share consumer methods are not accessible from user-defined acknowledgement commit callback"
        assert raised == [text] * 3

    @pytest.mark.parametrize("mode", ["implicit", "explicit"])
    def test_what_it_raises_leaves_the_call_and_loses_no_record(self, consume: Consume, mode: str) -> None:
        def callback(offsets: object, exception: object) -> None:
            raise RuntimeError("thrown by the callback")

        consumer = consume("cl-1", mode=mode)
        consumer.set_acknowledgement_commit_callback(callback)
        for first in (0, 10):
            messages = consumer.poll(DEADLINE_S)
            assert got(messages) == f"{first}-{first + 9}:d1"
            for message in messages if mode == "explicit" else ():
                consumer.acknowledge(message)
            consumer.commit_async()
            eventually(lambda: not member_of(consumer).unconfirmed_partitions(), "the response")
            with pytest.raises(RuntimeError, match=r"^thrown by the callback$"):
                consumer.poll(DEADLINE_S)
        assert got(consumer.poll(DEADLINE_S)) == "20-29:d1"
        consumer.set_acknowledgement_commit_callback(None)

    def test_a_response_that_comes_while_it_runs_did_not_come_in_time(
        self, consume: Consume, processor: ProcessorPeer
    ) -> None:
        consumer = consume("cl-1", mode="explicit")
        messages = consumer.poll(DEADLINE_S)
        for message in messages[:5]:
            consumer.acknowledge(message)
        consumer.commit_async()
        eventually(lambda: not member_of(consumer).unconfirmed_partitions(), "the first response")
        for message in messages[5:]:
            consumer.acknowledge(message)
        stall = ExitStack()

        def callback(offsets: object, exception: object) -> None:
            stall.close()
            eventually(lambda: not member_of(consumer).unconfirmed_partitions(), "the second response")

        consumer.set_acknowledgement_commit_callback(callback)
        with stall:
            stall.enter_context(processor.stalled())
            (error,) = consumer.commit_sync(0.1).values()
        assert error is not None
        assert error.args[0].code() == KafkaError._TIMED_OUT

    def test_it_must_be_callable(self, consume: Consume) -> None:
        with pytest.raises(TypeError, match=r"^callback must be callable or None$"):
            consume().set_acknowledgement_commit_callback(3)  # type: ignore[arg-type]

    def test_it_is_called_when_no_response_comes_in_time(self, consume: Consume, processor: ProcessorPeer) -> None:
        callback = Callback()
        consumer = consume("cl-1", default_api_timeout_ms=500)
        consumer.set_acknowledgement_commit_callback(callback)
        assert got(consumer.poll(DEADLINE_S)) == "0-9:d1"
        with processor.stalled():

            def is_reported() -> bool:
                consumer.commit_async()
                return bool(callback.reports)

            eventually(is_reported, "the callback")
        assert callback.offsets == [list(range(10))]
        ((_, exception),) = callback.reports
        assert exception is not None
        assert exception.args[0].name() == "REQUEST_TIMED_OUT"

    @pytest.mark.long("locks end by time")
    @pytest.mark.slow
    def test_it_is_called_with_failures(self, log: LocalLog, consume: Consume) -> None:
        AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "5000"})
        callback = Callback()
        consumer = consume("cl-1", max_poll_records=200, fetch_max_wait_ms=50)
        consumer.set_acknowledgement_commit_callback(callback)
        assert got(consumer.poll(DEADLINE_S)) == "0-119:d1"
        consumer.unsubscribe()
        other = consume("cl-1", max_poll_records=200)
        assert got(other.poll(DEADLINE_S)) == "0-119:d2"
        (failure,) = consumer.commit_sync().values()
        assert isinstance(failure, KafkaException)
        assert failure.args[0].code() == 121
        assert failure.args[0].name() == "INVALID_RECORD_STATE"
        (report,) = callback.reports
        assert report[0] == {CL_1: set(range(120))}
        assert isinstance(report[1], KafkaException)


def test_a_commit_without_a_response_times_out_and_the_callback_hears_of_it_later(
    consume: Consume, processor: ProcessorPeer
) -> None:
    callback = Callback()
    consumer = consume("cl-1", max_poll_records=200)
    consumer.set_acknowledgement_commit_callback(callback)
    consumer.poll(DEADLINE_S)
    with processor.stalled():
        (late,) = consumer.commit_sync(0.05).values()
        assert isinstance(late, KafkaException)
        assert late.args[0] == KafkaError._TIMED_OUT
        assert callback.reports == []
    assert consumer.commit_sync() == {}
    assert callback.offsets == [list(range(120))]
    assert callback.reports[0][1] is None


def test_what_a_commit_that_timed_out_did_not_send_is_sent_without_another_call(
    log: LocalLog, consume: Consume, processor: ProcessorPeer
) -> None:
    # Of records apart from each other, 6,000 do not fit into one request.
    log.create_topic("apart", 6)
    for partition in range(6):
        log.append("apart", partition, [NewRecord(None, b"v")] * 2_000)
    callback = Callback()
    consumer = consume("apart", mode="explicit", max_poll_records=12_000)
    consumer.set_acknowledgement_commit_callback(callback)
    polled = consumer.poll(DEADLINE_S)
    assert len(polled) == 12_000
    accepted = [message for message in polled if (message.offset() or 0) % 2]
    for message in accepted:
        consumer.acknowledge(message)
    with processor.stalled():
        outcome = consumer.commit_sync(0.05)
        assert [late.args[0].code() for late in outcome.values() if late is not None] == [KafkaError._TIMED_OUT] * 6
        eventually(lambda: acknowledged_counts(processor), "the first request")
        assert len(acknowledged_counts(processor)) == 1
    eventually(lambda: sum(acknowledged_counts(processor)) == len(accepted), "the other request")
    assert len(acknowledged_counts(processor)) == 2
    assert consumer.commit_sync(DEADLINE_S) == {}
    assert {exception for _, exception in callback.reports} == {None}
    confirmed = [(key.partition, offset) for report, _ in callback.reports for key in report for offset in report[key]]
    assert sorted(confirmed) == sorted((message.partition(), message.offset()) for message in accepted)


def acknowledged_counts(processor: ProcessorPeer) -> list[int]:
    """How many records each request acknowledges, without requests that acknowledge none."""
    counts = [
        sum(
            batch["last_offset"] - batch["first_offset"] + 1
            for topic in sent.body.get("topics", [])
            for partition in topic["partitions"]
            for batch in partition.get("acknowledgement_batches", [])
        )
        for sent in processor.requests
    ]
    return [count for count in counts if count]
