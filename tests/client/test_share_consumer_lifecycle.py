"""The share consumer against the real actors, as confluent-kafka's was recorded: configuration, subscription, close."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client.kafka_exceptions import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
    WakeupException,
)
from sharegroup.client.settings import ChannelTopics
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.connections import ALIASES, CALLBACKS, PASSED
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.members import CONSUMER_REFUSED, ShareConsumerConfig
from sharegroup.errors import ConfigurationError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.messages import decoded_request
from tests.client.consumers import CL_1, INVALID_ARGUMENT, Consume, got, member_of
from tests.client.processor_peer import BROKER, ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually

RECORDED_KEYS = Path(__file__).parent / "recorded" / "share_consumer_keys.txt"
"""`ShareConsumerConfig.configDef().names()` of Kafka 4.3.1."""
LIBRDKAFKA_KEYS = (RECORDED_KEYS.parent / "librdkafka_keys.txt").read_text(encoding="utf-8").split()
"""The keys in librdkafka's CONFIGURATION.md that are not only for producers."""
KAFKA_KEYS = RECORDED_KEYS.read_text(encoding="utf-8").split()
CONFIGURATION = Path(__file__).parents[2] / "docs" / "configuration.md"


class TestLifecycle:
    def test_a_poll_needs_a_subscription(self, consume: Consume) -> None:
        consumer = consume()
        text = "^Consumer is not subscribed to any topics$"
        with pytest.raises(IllegalStateException, match=text):
            consumer.poll(0)
        consumer.subscribe([])
        with pytest.raises(IllegalStateException, match=text):
            consumer.poll(0)
        consumer.subscribe(["cl-1"])
        assert consumer.subscription() == ["cl-1"]
        assert got(consumer.poll(DEADLINE_S)) == "0-9:d1"
        consumer.unsubscribe()
        assert consumer.subscription() == []
        with pytest.raises(IllegalStateException, match=text):
            consumer.poll(0)

    @pytest.mark.parametrize(
        ("topics", "error", "text"),
        [
            ("cl-1", TypeError, "^expected list of topic unicode strings$"),
            ([1], TypeError, "^expected list of topic unicode strings$"),
            ([""], ValueError, f"^Failed to subscribe: {INVALID_ARGUMENT}$"),
            (["cl-1", "cl-1"], ValueError, f"^Failed to subscribe: {INVALID_ARGUMENT}$"),
        ],
    )
    def test_a_subscription_is_a_list_of_names(
        self, consume: Consume, topics: object, error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            consume().subscribe(topics)  # type: ignore[arg-type]

    def test_a_name_without_a_topic_brings_nothing(self, consume: Consume) -> None:
        assert consume("unknown").poll(0.2).is_empty()

    @pytest.mark.parametrize("topic", ["bad topic!", "^cl-.*", "..", "x" * 250])
    def test_a_name_that_no_topic_can_have_is_raised_once_by_a_poll(self, consume: Consume, topic: str) -> None:
        consumer = consume("cl-1", topic)
        assert consumer.subscription() == ["cl-1", topic]
        for _ in range(2):
            with pytest.raises(KafkaException) as raised:
                consumer.poll(0)
            error = raised.value.args[0]
            assert (error.code(), error.fatal(), error.retriable()) == (KafkaError.TOPIC_EXCEPTION, False, False)
            assert error.str().startswith(f"Invalid topics: [{topic}]")
            assert got(consumer.poll(DEADLINE_S)), "the other topic is not affected"
            consumer.subscribe(["cl-1", topic])
        consumer.subscribe(["cl-1"])
        assert got(consumer.poll(DEADLINE_S))

    def test_after_close_only_close_works(self, consume: Consume) -> None:
        consumer = consume("cl-1")
        message = consumer.poll(DEADLINE_S)[0]
        consumer.close()
        consumer.close()
        calls: list[Callable[[], object]] = [
            consumer.poll,
            consumer.commit_sync,
            consumer.commit_async,
            consumer.subscription,
            consumer.unsubscribe,
            lambda: consumer.subscribe(["cl-1"]),
            lambda: consumer.acknowledge(message),
            lambda: consumer.acknowledge_offset("cl-1", 0, 0),
            lambda: consumer.set_acknowledgement_commit_callback(None),
        ]
        for call in calls:
            with pytest.raises(IllegalStateException, match=r"^Share consumer closed$"):
                call()

    def test_another_thread_is_refused_during_a_call(self, consume: Consume, log: LocalLog) -> None:
        log.create_topic("empty", 1, {})
        consumer = consume("empty")
        refused = threading.Event()
        texts: list[str] = []

        def intrude() -> None:
            while not refused.is_set():
                try:
                    consumer.subscription()
                except ConcurrentModificationException as error:
                    texts.append(str(error))
                    refused.set()

        intruder = threading.Thread(target=intrude)
        intruder.start()
        while not refused.is_set():
            with suppress(ConcurrentModificationException):
                consumer.poll(0.05)
        intruder.join()
        assert texts[0] == (
            "Share consumer is not safe for multi-threaded access. "
            f"currentThread(id: {intruder.ident}) otherThread(id: {threading.get_ident()})"
        )

    def test_records_that_were_polled_survive_unsubscribe(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        messages = consumer.poll(DEADLINE_S)
        consumer.unsubscribe()
        consumer.acknowledge(messages[0])
        assert consumer.commit_sync() == {CL_1: None}
        consumer.subscribe(["cl-1"])
        with pytest.raises(IllegalStateException, match=r"^9 records from previous poll have not been acknowledged$"):
            consumer.poll(0)
        for message in messages[1:]:
            consumer.acknowledge(message)
        assert got(consumer.poll(DEADLINE_S)) == "10-19:d1"

    @pytest.mark.slow
    def test_a_full_group_refuses_the_consumer_once(self, log: LocalLog, log_path: Path) -> None:
        config: dict[str, object] = {"group.id": "g", "log.path": str(log_path)}
        with (
            ProcessorPeer(log, BROKER.model_copy(update={"group_share_max_size": 1})),
            ShareConsumer(config) as first,
            ShareConsumer(config) as second,
        ):
            first.subscribe(["cl-1"])
            eventually(lambda: member_of(first).standing().is_stable, "the first one has joined")
            assert first.poll(0.1).is_empty()
            second.subscribe(["cl-1"])
            with pytest.raises(KafkaException) as info:
                second.poll(DEADLINE_S)
            error: KafkaError = info.value.args[0]
            assert (error.name(), error.code(), error.fatal()) == ("GROUP_MAX_SIZE_REACHED", 81, True)
            assert error.str().startswith("ShareGroupHeartbeat fatal error: ")
            assert second.poll(0.1).is_empty()

    def test_a_consumer_joins_once_there_is_a_processor(
        self, log: LocalLog, log_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with ShareConsumer({"group.id": "g", "log.path": str(log_path)}) as consumer:
            consumer.subscribe(["before"])
            eventually(lambda: "event=waiting_for_processor group=g" in caplog.text, "the missing topic is logged")
            assert "__share_requests" in caplog.text
            assert consumer.poll(0).is_empty()
            assert consumer.commit_sync() == {}
            assert consumer.subscription() == ["before"]
            consumer.subscribe(["cl-1"])
            for topic in (ChannelTopics().request_topic_name, ChannelTopics().response_topic_name):
                log.create_topic(topic, 1)
            eventually(lambda: joining_topics(log), "the consumer joins, without a poll")
            # Nobody responds.
            assert consumer.poll(0.1).is_empty()
            consumer.close(0.1)
            assert joining_topics(log) == [["cl-1"]]

    def test_an_endless_poll_without_a_processor_can_be_woken(self, log: LocalLog, log_path: Path) -> None:
        with ShareConsumer({"group.id": "g", "log.path": str(log_path)}) as consumer:
            consumer.subscribe(["cl-1"])
            waker = threading.Timer(0.1, consumer.wakeup)
            waker.start()
            with pytest.raises(WakeupException):
                consumer.poll()
            waker.join()


def joining_topics(log: LocalLog) -> list[list[str]]:
    """The topics that each joining heartbeat subscribed to."""
    requests = log.read(ChannelTopics().request_topic_name, 0, 0, 10)
    bodies = [request for request in map(decoded_value, requests) if "subscribed_topic_names" in request]
    return [body["subscribed_topic_names"] for body in bodies]


def decoded_value(record: LogRecord) -> dict[str, Any]:
    body: dict[str, Any] = decoded_request(record.value or b"").body
    return body


class TestConfiguration:
    @pytest.mark.parametrize(
        ("config", "error", "text"),
        [
            (None, TypeError, "^expected configuration dict$"),
            ({}, ValueError, "^Failed to create consumer: group.id must be set$"),
            (
                {"group.id": "g", "auto.offset.reset": "earliest"},
                ValueError,
                "^Failed to create share consumer: `auto.offset.reset` is not applicable for share consumer",
            ),
            ({"group.id": "g"}, KafkaException, r"_INVALID_ARG,val=-186.*log\.path"),
            (
                {"group.id": "g", "bootstrap.servers": "x"},
                KafkaException,
                r"Invalid url in bootstrap\.servers: x",
            ),
            (
                {"group.id": "g", "bootstrap.servers": "x:1", "log.path": "x"},
                KafkaException,
                r"log\.path and bootstrap\.servers are both set",
            ),
            (
                {"group.id": "g", "log.path": "x", "max.poll.records": 0},
                KafkaException,
                r"_INVALID_ARG.*max\.poll\.records",
            ),
            (
                {"group.id": "g", "log.path": "x", "no.such.config": 1},
                KafkaException,
                r"_INVALID_ARG.*no\.such\.config",
            ),
            ({"group.id": "g", "log.path": "ftp://x"}, KafkaException, "ftp://x"),
        ],
    )
    def test_what_cannot_be_is_refused(self, config: object, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            ShareConsumer(config)  # type: ignore[arg-type]

    @pytest.mark.parametrize("key", sorted({*KAFKA_KEYS, *LIBRDKAFKA_KEYS}))
    def test_each_key_of_kafkas_share_consumers_is_taken_or_refused_with_a_reason(self, key: str) -> None:
        known = {*ShareConsumerConfig.key_names(), *KafkaConfig.key_names()}
        taken = {*known, *ALIASES, *CALLBACKS, *PASSED}
        ways = [taken, CONSUMER_REFUSED, KafkaConfig.refused.keys() - taken, ShareConsumerConfig.without_effect]
        assert [key in way for way in ways].count(True) == 1
        assert key in known or f"| `{key}` |" in CONFIGURATION.read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("key", "error", "text"),
        [
            ("value.deserializer", ValueError, "DeserializingShareConsumer takes deserializers"),
            ("sasl.jaas.config", KafkaException, r"Set sasl\.mechanism, sasl\.username and sasl\.password"),
            ("ssl.protocol", KafkaException, "OpenSSL"),
        ],
    )
    def test_a_refused_key_says_what_to_do(self, key: str, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            ShareConsumer({"group.id": "g", "log.path": "x", key: "y"})

    def test_a_key_without_effect_is_accepted(self, log_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        ShareConsumer({"group.id": "g", "log.path": str(log_path), "fetch.min.bytes": 10}).close()
        assert [record.getMessage().split(".")[0] for record in caplog.records] == ["fetch"]

    def test_the_cause_is_kept(self) -> None:
        with pytest.raises(KafkaException) as info:
            ShareConsumer({"group.id": "g", "log.path": "x", "share.acknowledgement.mode": "maybe"})
        assert isinstance(info.value.__cause__, ConfigurationError)

    def test_the_topics_of_the_processor_may_have_other_names(self, log: LocalLog, log_path: Path) -> None:
        names = {"request.topic.name": "asked", "response.topic.name": "returned"}
        for name in names.values():
            log.create_topic(name, 1, {})
        with ShareConsumer({"group.id": "g", "log.path": str(log_path), **names}) as consumer:
            consumer.subscribe(["cl-1"])
            eventually(lambda: log.offsets("asked")[0].end_offset == 1, "a request")
            consumer.close(0)
