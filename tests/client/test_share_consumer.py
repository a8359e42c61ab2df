"""The share consumer against the real actors, scenario by scenario as confluent-kafka's was recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_member import GroupMember
from sharegroup.client.kafka_types import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from sharegroup.client.message import Message, Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.errors import ConfigurationError, UnknownTopicError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.processor_peer import BROKER, ProcessorPeer, eventually

ERRONEOUS_STATE = "Local: Erroneous state"
INVALID_ARGUMENT = "Local: Invalid argument or configuration"
CL_1 = TopicPartition("cl-1", 0)
TIMEOUT_S = 20.0

Consume = Callable[..., ShareConsumer]


class Callback:
    """A commit callback that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[dict[TopicPartition, set[int]], KafkaException | None]] = []
        self.threads: set[str] = set()

    def __call__(self, offsets: dict[TopicPartition, set[int]], exception: KafkaException | None) -> None:
        self.told.append((offsets, exception))
        self.threads.add(threading.current_thread().name)

    @property
    def offsets(self) -> list[list[int]]:
        """The offsets of each call, sorted."""
        return [sorted(found) for offsets, _ in self.told for found in offsets.values()]


@pytest.fixture
def produce(log: LocalLog, processor: ProcessorPeer) -> Callable[[str, int], None]:
    """Creates a topic of one partition with so many records; all groups begin at the first of them."""

    def produced(topic: str, count: int) -> None:
        log.create_topic(topic, 1, {}, if_not_exists=True)
        log.append(topic, 0, [NewRecord(None, b"v%d" % i) for i in range(count)])

    AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    produced("cl-1", 120)
    return produced


@pytest.fixture
def consume(log_path: Path, produce: Callable[[str, int], None]) -> Iterator[Consume]:
    """Makes consumers of the group g, ten records a poll; closed at the end."""
    consumers: list[ShareConsumer] = []

    def made(*topics: str, mode: str = "implicit", **keys: object) -> ShareConsumer:
        config = {
            "group.id": "g",
            "log.path": str(log_path),
            "max.poll.records": 10,
            "share.acknowledgement.mode": mode,
        }
        consumer = ShareConsumer(config | {key.replace("_", "."): value for key, value in keys.items()})
        consumers.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    yield made
    for consumer in consumers:
        consumer.close()


def got(messages: Messages) -> str:
    """Runs of offsets and their delivery count, as in "0-9:d1"."""
    runs: list[list[int]] = []
    for message in messages:
        offset, count = message.offset() or 0, message.delivery_count() or 0
        if runs and runs[-1][1] == offset - 1 and runs[-1][2] == count:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset, count])
    return " ".join(f"{first}-{last}:d{count}" for first, last, count in runs)


def member_of(consumer: ShareConsumer) -> GroupMember:
    """What an application does not see: what was fetched ahead, and which answers are there."""
    assert consumer._member is not None
    return consumer._member


class TestImplicit:
    def test_the_next_poll_accepts_and_so_does_a_commit(self, consume: Consume) -> None:
        callback = Callback()
        consumer = consume("cl-1")
        consumer.set_acknowledgement_commit_callback(callback)
        assert got(consumer.poll(TIMEOUT_S)) == "0-9:d1"
        assert got(consumer.poll(TIMEOUT_S)) == "10-19:d1"
        assert consumer.commit_sync() == {CL_1: None}
        assert callback.offsets == [list(range(10)), list(range(10, 20))]
        assert consumer.commit_sync() == {}
        assert got(consumer.poll(TIMEOUT_S)) == "20-29:d1"
        consumer.commit_async()
        assert got(consumer.poll(TIMEOUT_S)) == "30-39:d1"
        consumer.close()
        assert callback.offsets == [list(range(first, first + 10)) for first in (0, 10, 20)]
        assert {exception for _, exception in callback.told} == {None}
        assert callback.threads == {threading.current_thread().name}
        # Close does not accept: what the last poll returned is released, and counts as delivered.
        assert got(consume("cl-1").poll(TIMEOUT_S)) == "30-39:d2"

    def test_what_was_fetched_ahead_and_not_polled_was_never_delivered(self, consume: Consume) -> None:
        with consume("cl-1") as consumer:
            consumer.poll(TIMEOUT_S)
            consumer.poll(TIMEOUT_S)
        assert got(consume("cl-1", max_poll_records=200).poll(TIMEOUT_S)) == "10-19:d2 20-119:d1"

    def test_the_application_cannot_acknowledge(self, consume: Consume) -> None:
        consumer = consume("cl-1")
        message = consumer.poll(TIMEOUT_S)[0]
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge message: {ERRONEOUS_STATE}$"):
            consumer.acknowledge(message)
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge offset: {ERRONEOUS_STATE}$"):
            consumer.acknowledge_offset("cl-1", 0, 0)


class TestExplicit:
    def test_a_poll_is_refused_until_everything_is_acknowledged(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        messages = consumer.poll(TIMEOUT_S)
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
        assert got(consumer.poll(TIMEOUT_S)) == "10-19:d1"
        consumer.close()
        assert got(consume("cl-1", mode="explicit").poll(TIMEOUT_S)) == "10-19:d2"

    def test_types_do_what_they_say(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE]
        for message in consumer.poll(TIMEOUT_S):
            consumer.acknowledge(message, kinds[(message.offset() or 0) % 3])
        assert consumer.commit_sync() == {CL_1: None}
        released = consume("cl-1", mode="explicit", max_poll_records=500)
        consumer.close()
        seen = got(released.poll(TIMEOUT_S))
        assert seen.startswith("2-2:d2 5-5:d2 8-8:d2 ")

    def test_close_sends_what_was_acknowledged_and_releases_the_rest(self, consume: Consume) -> None:
        callback = Callback()
        with consume("cl-1", mode="explicit") as consumer:
            consumer.set_acknowledgement_commit_callback(callback)
            for message in consumer.poll(TIMEOUT_S)[:4]:
                consumer.acknowledge(message)
        assert callback.offsets == [[0, 1, 2, 3]]
        assert got(consume("cl-1").poll(TIMEOUT_S)).startswith("4-9:d2")


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
            (("polled", 4), ValueError, f"^Failed to acknowledge message: {INVALID_ARGUMENT}$"),
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
        polled = consumer.poll(TIMEOUT_S)[0]
        acknowledge: Callable[..., None] = consumer.acknowledge
        with pytest.raises(error, match=text):
            acknowledge(*(polled if argument == "polled" else argument for argument in arguments))

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
        consumer.poll(TIMEOUT_S)
        acknowledge_offset: Callable[..., None] = consumer.acknowledge_offset
        with pytest.raises(error, match=text):
            acknowledge_offset(*arguments)

    def test_the_last_word_counts_and_after_the_commit_it_is_too_late(self, consume: Consume) -> None:
        consumer = consume("cl-1", mode="explicit")
        messages = consumer.poll(TIMEOUT_S)
        consumer.acknowledge_offset("cl-1", 0, 1)
        consumer.acknowledge(messages[2], AcknowledgeType.ACCEPT)
        consumer.acknowledge(messages[2], AcknowledgeType.RELEASE)
        consumer.acknowledge(Message("cl-1", 0, 3))
        assert consumer.commit_sync() == {CL_1: None}
        with pytest.raises(IllegalStateException, match=f"^Failed to acknowledge message: {ERRONEOUS_STATE}$"):
            consumer.acknowledge(messages[2])
        assert consumer.commit_sync(1) == {}
        for message in messages:
            if message.offset() not in (1, 2, 3):
                consumer.acknowledge(message)
        consumer.close()
        assert got(consume("cl-1", max_poll_records=500).poll(TIMEOUT_S)).startswith("2-2:d2 ")

    @pytest.mark.parametrize("call", ["poll", "commit_sync"])
    def test_a_timeout_is_a_number(self, consume: Consume, call: str) -> None:
        with pytest.raises(TypeError, match=r"^must be real number, not str$"):
            getattr(consume("cl-1"), call)("x")


class TestCommitCallback:
    def test_it_is_called_only_inside_calls(self, consume: Consume) -> None:
        callback = Callback()
        consumer = consume("cl-1")
        consumer.set_acknowledgement_commit_callback(callback)
        consumer.poll(TIMEOUT_S)
        consumer.commit_async()
        eventually(lambda: not member_of(consumer).unanswered_partitions(), "the answer")
        assert callback.told == []
        consumer.poll(TIMEOUT_S)
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
        consumer.poll(TIMEOUT_S)
        assert consumer.commit_sync() == {CL_1: None}
        text = "Share consumer methods are not accessible from user-defined acknowledgement commit callback"
        assert raised == [text] * 3

    def test_what_it_raises_leaves_the_call_and_the_records_stay_delivered(self, consume: Consume) -> None:
        def callback(offsets: object, exception: object) -> None:
            raise RuntimeError("thrown by the callback")

        consumer = consume("cl-1", mode="explicit")
        consumer.set_acknowledgement_commit_callback(callback)
        for message in consumer.poll(TIMEOUT_S):
            consumer.acknowledge(message)
        with pytest.raises(RuntimeError, match=r"^thrown by the callback$"):
            consumer.commit_sync()
        for message in consumer.poll(TIMEOUT_S):
            consumer.acknowledge(message)
        consumer.commit_async()
        eventually(lambda: not member_of(consumer).unanswered_partitions(), "the answer")
        with pytest.raises(RuntimeError, match=r"^thrown by the callback$"):
            consumer.poll(TIMEOUT_S)
        with pytest.raises(IllegalStateException, match=r"^10 records from previous poll have not been acknowledged$"):
            consumer.poll(TIMEOUT_S)
        consumer.set_acknowledgement_commit_callback(None)

    def test_it_must_be_callable(self, consume: Consume) -> None:
        with pytest.raises(TypeError, match=r"^callback must be callable or None$"):
            consume().set_acknowledgement_commit_callback(3)  # type: ignore[arg-type]

    def test_it_is_told_of_failures(self, log: LocalLog, consume: Consume) -> None:
        AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "1000"})
        callback = Callback()
        consumer = consume("cl-1", max_poll_records=200, fetch_max_wait_ms=50)
        consumer.set_acknowledgement_commit_callback(callback)
        assert got(consumer.poll(TIMEOUT_S)) == "0-119:d1"
        consumer.unsubscribe()
        other = consume("cl-1", max_poll_records=200)
        assert got(other.poll(TIMEOUT_S)) == "0-119:d2"
        (failure,) = consumer.commit_sync().values()
        assert isinstance(failure, KafkaException)
        assert failure.args[0].code() == 121
        assert failure.args[0].name() == "INVALID_RECORD_STATE"
        (told,) = callback.told
        assert told[0] == {CL_1: set(range(120))}
        assert isinstance(told[1], KafkaException)


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
        assert got(consumer.poll(TIMEOUT_S)) == "0-9:d1"
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

    @pytest.mark.parametrize("topic", ["bad topic!", "^cl-.*", "unknown"])
    def test_a_name_without_a_topic_brings_nothing(self, consume: Consume, topic: str) -> None:
        assert consume(topic).poll(0.2).is_empty()

    def test_after_close_only_close_works(self, consume: Consume) -> None:
        consumer = consume("cl-1")
        message = consumer.poll(TIMEOUT_S)[0]
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
        messages = consumer.poll(TIMEOUT_S)
        consumer.unsubscribe()
        consumer.acknowledge(messages[0])
        assert consumer.commit_sync() == {CL_1: None}
        consumer.subscribe(["cl-1"])
        with pytest.raises(IllegalStateException, match=r"^9 records from previous poll have not been acknowledged$"):
            consumer.poll(0)
        for message in messages[1:]:
            consumer.acknowledge(message)
        assert got(consumer.poll(TIMEOUT_S)) == "10-19:d1"

    def test_a_full_group_refuses_the_consumer_once(self, log: LocalLog, log_path: Path) -> None:
        config: dict[str, object] = {"group.id": "g", "log.path": str(log_path)}
        with (
            ProcessorPeer(log, BROKER.model_copy(update={"group_share_max_size": 1})),
            ShareConsumer(config) as first,
            ShareConsumer(config) as second,
        ):
            first.subscribe(["cl-1"])
            assert first.poll(0.1).is_empty()
            second.subscribe(["cl-1"])
            with pytest.raises(KafkaException) as info:
                second.poll(TIMEOUT_S)
            error: KafkaError = info.value.args[0]
            assert (error.name(), error.code(), error.fatal()) == ("GROUP_MAX_SIZE_REACHED", 81, True)
            assert error.str().startswith("ShareGroupHeartbeat fatal error: ")
            assert second.poll(0.1).is_empty()

    def test_a_log_without_a_processor_is_told_by_subscribe(self, log: LocalLog, log_path: Path) -> None:
        with ShareConsumer({"group.id": "g", "log.path": str(log_path)}) as consumer:
            with pytest.raises(KafkaException, match="__share_requests") as info:
                consumer.subscribe(["cl-1"])
            assert isinstance(info.value.__cause__, UnknownTopicError)


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
                r"bootstrap\.servers .* Set log\.path instead",
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

    def test_the_cause_is_kept(self) -> None:
        with pytest.raises(KafkaException) as info:
            ShareConsumer({"group.id": "g", "log.path": "x", "share.acknowledgement.mode": "maybe"})
        assert isinstance(info.value.__cause__, ConfigurationError)

    def test_the_topics_of_the_processor_may_have_other_names(self, log: LocalLog, log_path: Path) -> None:
        names = {"request.topic.name": "asked", "response.topic.name": "told"}
        for name in names.values():
            log.create_topic(name, 1, {})
        with ShareConsumer({"group.id": "g", "log.path": str(log_path), **names}) as consumer:
            consumer.subscribe(["cl-1"])
            assert log.offsets("asked")[0].end_offset == 1
            consumer.close(0)


class TestRecords:
    def test_a_message_has_all_that_the_record_has(self, log: LocalLog, consume: Consume) -> None:
        log.create_topic("rich", 1, {})
        headers = (("a", b"1"), ("a", None))
        log.append("rich", 0, [NewRecord(b"k", b"value", headers, 1_700_000_000_000), NewRecord(None, None)])
        first, second = consume("rich").poll(TIMEOUT_S)
        assert (first.topic(), first.partition(), first.offset(), first.delivery_count()) == ("rich", 0, 0, 1)
        assert (first.key(), first.value(), first.headers()) == (b"k", b"value", list(headers))
        assert first.timestamp() == (1, 1_700_000_000_000)
        assert (first.error(), first.latency(), first.leader_epoch()) == (None, None, None)
        assert (second.key(), second.value(), second.headers(), len(second)) == (None, None, None, 0)

    def test_a_poll_returns_at_most_so_many_bytes_and_one_record_more(self, consume: Consume) -> None:
        consumer = consume("cl-1", fetch_max_bytes=5)
        assert [got(consumer.poll(TIMEOUT_S)) for _ in range(3)] == ["0-2:d1", "3-5:d1", "6-8:d1"]

    @pytest.mark.parametrize("stop", [ShareConsumer.unsubscribe, ShareConsumer.close])
    def test_what_a_poll_had_no_room_for_was_never_delivered(
        self, consume: Consume, stop: Callable[[ShareConsumer], None]
    ) -> None:
        consumer = consume("cl-1", mode="explicit", fetch_max_bytes=5)
        for message in consumer.poll(TIMEOUT_S):
            consumer.acknowledge(message)
        consumer.commit_sync()
        stop(consumer)
        other = consume("cl-1", max_poll_records=500)
        seen: dict[int, int] = {}

        def everything_is_seen() -> bool:
            seen.update({message.offset() or 0: message.delivery_count() or 0 for message in other.poll(0.5)})
            return len(seen) == 117

        eventually(everything_is_seen, "all records with the other consumer")
        assert seen == dict.fromkeys(range(3, 120), 1)

    def test_what_a_poll_had_no_room_for_is_dropped_when_its_lock_has_ended(
        self, log: LocalLog, consume: Consume
    ) -> None:
        AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "1000"})
        consumer = consume("cl-1", fetch_max_bytes=5)
        assert got(consumer.poll(TIMEOUT_S)) == "0-2:d1"
        assert member_of(consumer).wait(20_000)
        other = consume("cl-1", max_poll_records=500)
        counts: set[int] = set()

        def lock_has_ended() -> bool:
            counts.update(message.delivery_count() or 0 for message in other.poll(0.5) if message.offset() == 3)
            return bool(counts)

        eventually(lock_has_ended, "the next delivery of offset 3")
        assert counts == {2}
        assert not any(message.offset() in range(3, 10) for message in consumer.poll(0))

    def test_deleted_records_are_passed_over_and_acknowledged_as_gaps(
        self, log: LocalLog, consume: Consume, processor: ProcessorPeer
    ) -> None:
        callback = Callback()
        consumer = consume("cl-1")
        consumer.set_acknowledgement_commit_callback(callback)
        assert got(consumer.poll(TIMEOUT_S)) == "0-9:d1"
        assert member_of(consumer).wait(20_000)
        log.delete_records("cl-1", 0, 15)
        assert got(consumer.poll(TIMEOUT_S)) == "15-19:d1"
        consumer.commit_sync()
        assert callback.offsets == [list(range(10)), list(range(15, 20))]
        ranges = [
            r
            for envelope in processor.requests
            for topic in envelope.body.get("topics", [])
            for partition in topic["partitions"]
            for r in partition.get("acknowledgement_batches", [])
        ]
        assert {"first_offset": 10, "last_offset": 14, "acknowledge_types": [0],
                "reason": "deleted: the log starts at offset 15"} in ranges  # fmt: skip

    def test_a_topic_that_was_created_again_is_not_mistaken_for_the_old_one(
        self, log: LocalLog, consume: Consume
    ) -> None:
        consumer = consume("cl-1")
        assert got(consumer.poll(TIMEOUT_S)) == "0-9:d1"
        assert member_of(consumer).wait(20_000)
        log.delete_topic("cl-1")
        log.create_topic("cl-1", 1, {})
        log.append("cl-1", 0, [NewRecord(None, b"new")] * 12)
        messages = consumer.poll(TIMEOUT_S)
        assert {message.value() for message in messages} == {b"new"}
        assert got(messages).startswith("0-")

    def test_records_whose_lock_ended_while_they_waited_are_not_handed_out(
        self, log: LocalLog, consume: Consume, processor: ProcessorPeer
    ) -> None:
        AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "1000"})
        consumer = consume("cl-1", mode="explicit")
        first = consumer.poll(TIMEOUT_S)
        assert got(first) == "0-9:d1"
        assert member_of(consumer).wait(20_000)
        # The member gives back what waits when half of its lock has passed, so that it was never delivered.
        other = consume("cl-1", max_poll_records=500)
        seen: dict[int, int] = {}

        def everything_is_seen() -> bool:
            for message in other.poll(0.5):
                seen[message.offset() or 0] = message.delivery_count() or 0
            return len(seen) == 120

        eventually(everything_is_seen, "all records with the other consumer")
        assert {seen[offset] for offset in range(10)} == {2}
        assert {seen[offset] for offset in range(10, 20)} == {1}


def test_a_commit_without_an_answer_times_out_and_the_callback_hears_of_it_later(
    consume: Consume, processor: ProcessorPeer
) -> None:
    callback = Callback()
    consumer = consume("cl-1", max_poll_records=200)
    consumer.set_acknowledgement_commit_callback(callback)
    consumer.poll(TIMEOUT_S)
    with processor.stalled():
        (late,) = consumer.commit_sync(0.05).values()
        assert isinstance(late, KafkaException)
        assert late.args[0] == KafkaError._TIMED_OUT
        assert callback.told == []
    assert consumer.commit_sync() == {}
    assert callback.offsets == [list(range(120))]
    assert callback.told[0][1] is None
