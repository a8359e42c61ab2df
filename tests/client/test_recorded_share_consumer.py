"""Everything that confluent-kafka's share consumer was recorded to do, with ours, against the real actors.

Produced batches were of ten records, which polls of at most ten records stand for.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_results import ShareGroupDescription
from sharegroup.client.message import Message, Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.consumers import Callback, Consume, member_of, reader_of
from tests.client.processor_peer import BROKER, ProcessorPeer
from tests.client.recording import (
    SHORT_S,
    Recording,
    accessors,
    intruded,
    listed_differences,
    recorded_scenarios,
    reports_of,
)
from tests.support.eventually import DEADLINE_S, eventually


@pytest.fixture
def two_partitions(log: LocalLog) -> None:
    """The topic cl-2, a hundred records in each of two partitions."""
    log.create_topic("cl-2", 2, {})
    for partition in range(2):
        log.append("cl-2", partition, [NewRecord(None, b"v%d" % i) for i in range(100)])


def await_responses(consumer: ShareConsumer) -> None:
    """Wait until all that the consumer sent has responses."""
    eventually(lambda: not member_of(consumer).unconfirmed_partitions(), "all responses")


def implicit(recording: Recording, consume: Consume) -> None:
    callback = Callback()
    consumer = consume("cl-1")
    consumer.set_acknowledgement_commit_callback(callback)
    message = recording.polled("poll until records", lambda: consumer.poll(DEADLINE_S))[0]
    recording.polled("poll(0.3)", lambda: consumer.poll(DEADLINE_S))
    recording.differs("callbacks")
    recording.same("acknowledge(message) in implicit mode", lambda: consumer.acknowledge(message))
    recording.same("commit_sync()", consumer.commit_sync)
    recording.same("commit_sync() again", consumer.commit_sync)
    recording.polled("poll(0.3)", lambda: consumer.poll(DEADLINE_S))
    recording.same("commit_async()", consumer.commit_async)
    await_responses(consumer)
    recording.polled("poll(0.3)", lambda: consumer.poll(DEADLINE_S))
    recording.same("callbacks", lambda: reports_of(callback))
    consumer.close()
    recording.same("callbacks after close", lambda: reports_of(callback))
    recording.polled("new consumer first poll", lambda: consume("cl-1").poll(DEADLINE_S))


def explicit_unacked(recording: Recording, consume: Consume) -> None:
    consumer = consume("cl-1", mode="explicit")
    messages = recording.polled("poll until records", lambda: consumer.poll(DEADLINE_S))
    recording.same("poll(0.3) nothing acknowledged", lambda: consumer.poll(0.3))
    recording.same("acknowledge 3", lambda: _acknowledged(consumer, messages[:3]))
    recording.same("poll(0.3) some acknowledged", lambda: consumer.poll(0.3))
    recording.same("commit_sync()", consumer.commit_sync)
    recording.same("poll(0.3) after commit_sync, rest unacknowledged", lambda: consumer.poll(0.3))
    for message in messages[3:]:
        consumer.acknowledge(message)
    recording.polled("poll(0.3) all acknowledged", lambda: consumer.poll(DEADLINE_S))
    consumer.close()
    recording.polled("new consumer after close with unacknowledged records", lambda: consume("cl-1").poll(DEADLINE_S))


def acknowledge_errors(recording: Recording, consume: Consume) -> None:
    consumer = consume("cl-1", mode="explicit")
    offset, any_call = consumer.acknowledge_offset, _untyped(consumer)
    recording.same("commit_sync() before any poll", consumer.commit_sync)
    recording.same("acknowledge_offset before any poll", lambda: offset("cl-1", 0, 0))
    messages = recording.polled("poll", lambda: consumer.poll(DEADLINE_S))
    first = messages[0]
    recording.same("acknowledge('x')", lambda: any_call.acknowledge("x"))
    recording.same("acknowledge(m, 9)", lambda: consumer.acknowledge(first, 9))
    recording.same("acknowledge(m, 0)", lambda: consumer.acknowledge(first, 0))
    recording.differs("acknowledge(m, 4) (RENEW id)", lambda: consumer.acknowledge(first, 4))
    recording.same("acknowledge(m, 'ACCEPT')", lambda: any_call.acknowledge(first, "ACCEPT"))
    recording.same("acknowledge(None)", lambda: any_call.acknowledge(None))
    recording.same("acknowledge_offset(cl-1,0,9999)", lambda: offset("cl-1", 0, 9999))
    recording.same("acknowledge_offset(cl-1,0,-1)", lambda: offset("cl-1", 0, -1))
    recording.same("acknowledge_offset(cl-2,0,0)", lambda: offset("cl-2", 0, 0))
    recording.same("acknowledge_offset(cl-1,0,1) delivered", lambda: offset("cl-1", 0, 1))
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
    recording.same(
        "acknowledge(r2, ACCEPT), then acknowledge(r2, REJECT)",
        lambda: list(map(consumer.acknowledge, [messages[2]] * 2, kinds)),
    )
    recording.same(
        "acknowledge(Message(topic, partition, offset))", lambda: consumer.acknowledge(Message("cl-1", 0, 3))
    )
    for message in messages:
        if message.offset() not in (1, 2, 3):
            consumer.acknowledge(message, AcknowledgeType.RELEASE if message.offset() == 5 else AcknowledgeType.ACCEPT)
    recording.same("commit_sync()", consumer.commit_sync)
    recording.same("acknowledge after commit", lambda: consumer.acknowledge(messages[2]))
    recording.same("commit_sync(1)", lambda: consumer.commit_sync(1))
    recording.same("commit_sync('x')", lambda: any_call.commit_sync("x"))
    recording.differs("poll(0.3)", lambda: consumer.poll(DEADLINE_S))
    recording.same("poll('x')", lambda: any_call.poll("x"))
    recording.differs("poll(timeout=0)", lambda: consumer.poll(timeout=0))


def commit_callback(recording: Recording, consume: Consume, two_partitions: None) -> None:
    callback, inside = Callback(), list[str]()
    consumer = consume("cl-2", mode="explicit", max_poll_records=100)
    consumer.set_acknowledgement_commit_callback(callback)
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    for message in recording.polled("poll", lambda: consumer.poll(DEADLINE_S)):
        consumer.acknowledge(message, kinds[(message.offset() or 0) % 3])
    recording.same("commit_sync()", consumer.commit_sync)
    recording.same("callbacks", lambda: reports_of(callback))
    polled = recording.differs("poll", lambda: consumer.poll(DEADLINE_S))
    _acknowledge_all(consumer, polled)
    callback.reports.clear()
    recording.same("commit_async()", consumer.commit_async)
    await_responses(consumer)
    recording.same("callbacks after 0.7 s without a call", lambda: reports_of(callback))
    polled = recording.differs("poll", lambda: consumer.poll(DEADLINE_S))
    recording.differs("callbacks", lambda: reports_of(callback))
    _acknowledge_all(consumer, polled)

    def calls_the_consumer(offsets: object, exception: object) -> None:
        for call in (consumer.commit_sync, lambda: consumer.poll(0)):
            try:
                call()
            except Exception as error:
                inside.append(repr(error))

    consumer.set_acknowledgement_commit_callback(calls_the_consumer)
    recording.differs("commit_sync() with a callback that calls the consumer", consumer.commit_sync)
    recording.same("the callback got", lambda: inside)
    recording.polled("poll", lambda: consumer.poll(SHORT_S))
    recording.same("commit_sync() with a callback that raises", consumer.commit_sync)
    recording.polled("poll", lambda: consumer.poll(SHORT_S))
    recording.same(
        "set_acknowledgement_commit_callback(3)", lambda: _untyped(consumer).set_acknowledgement_commit_callback(3)
    )


def lock_expiry(recording: Recording, consume: Consume, log: LocalLog) -> None:
    lock_duration_ms = 4_000
    AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": str(lock_duration_ms)})
    callback = Callback()
    first, second = consume("cl-1"), consume()
    first.set_acknowledgement_commit_callback(callback)
    recording.polled("c1 poll", lambda: first.poll(DEADLINE_S))
    _wait_until(log, log.now_ms() + lock_duration_ms + 500)
    recording.same("c1 commit_sync() 2.3 s later", first.commit_sync)
    recording.same("callbacks", lambda: reports_of(callback))
    recording.polled("c1 poll", lambda: first.poll(DEADLINE_S))
    first.unsubscribe()
    _wait_until(log, log.now_ms() + lock_duration_ms)
    second.subscribe(["cl-1"])
    recording.differs("c2 poll", lambda: second.poll(DEADLINE_S))
    callback.reports.clear()
    recording.same("c1 commit_sync() while c2 has the records", first.commit_sync)
    recording.same("callbacks", lambda: reports_of(callback))
    recording.same("c2 commit_sync()", second.commit_sync)
    recording.differs("poll", lambda: second.poll(DEADLINE_S))


def max_poll_records(recording: Recording, consume: Consume, log: LocalLog) -> None:
    for mode in ("batch_optimized", "record_limit"):
        for count in (25, 3):
            with consume(share_acquire_mode=mode, max_poll_records=count) as consumer:
                recording.differs(f"{mode} max.poll.records={count}", consumer.subscription)
    for count in (25, 3):
        with consume("cl-1", max_poll_records=count) as consumer:
            polls = [len(consumer.poll(DEADLINE_S)) for _ in range(4)]
            assert polls == [count] * 4
            recording.differs(f"None max.poll.records={count}: polls")
    log.create_topic("rec-b", 4, {})
    for partition in range(4):
        log.append("rec-b", partition, [NewRecord(None, b"v")] * 500)
    with consume("rec-b", max_poll_records=500, fetch_max_wait_ms=50) as consumer:
        recording.differs(
            "defaults, topic rec-b (4 partitions, one batch of 500 each): polls",
            lambda: [consumer.poll(DEADLINE_S) for _ in range(4)] + [consumer.poll(SHORT_S) for _ in range(2)],
        )


def delivery_count(recording: Recording, consume: Consume, produce: Callable[[str, int], None]) -> None:
    produce("ten", 10)
    consumer = consume("ten", mode="explicit")
    seen: Counter[tuple[int | None, int | None]] = Counter()
    while seen.total() < 5 * 10:
        messages = consumer.poll(DEADLINE_S)
        seen.update((message.offset(), message.delivery_count()) for message in messages)
        # The last delivery is that of one record at a time, in whatever order they come.
        assert sum(message.delivery_count() == 5 for message in messages) <= 1
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
    assert seen == Counter((offset, count) for offset in range(10) for count in range(1, 6))
    for number in range(12):
        recording.differs(f"poll {number}")


def group_type_clash(recording: Recording, consume: Consume) -> None:
    recording.differs("Consumer group.protocol=classic in a share group: polls")
    recording.differs("Consumer group.protocol=consumer in a share group: polls")
    recording.differs("ShareConsumer in a classic group: poll")


def lifecycle(recording: Recording, consume: Consume, log_path: Path) -> None:
    consumer = consume(mode="explicit", max_poll_records=500)
    any_call = _untyped(consumer)
    recording.same("poll without subscribe", consumer.poll)
    recording.same("subscribe([])", lambda: consumer.subscribe([]))
    recording.same("poll after subscribe([])", consumer.poll)
    recording.same("subscribe('cl-1')", lambda: any_call.subscribe("cl-1"))
    recording.same("subscribe([''])", lambda: consumer.subscribe([""]))
    recording.same("subscribe(['cl-1','cl-1'])", lambda: consumer.subscribe(["cl-1", "cl-1"]))
    for name in ("bad topic!", "^cl-.*"):
        recording.same(f"subscribe(['{name}'])", partial(consumer.subscribe, [name]))
        recording.differs("poll(2)", lambda: consumer.poll(SHORT_S))
    recording.same("subscribe(['cl-1'])", lambda: consumer.subscribe(["cl-1"]))
    recording.same("subscription()", consumer.subscription)
    messages = recording.polled("poll", lambda: consumer.poll(DEADLINE_S))
    recording.same("acknowledge all", lambda: _acknowledged(consumer, messages))
    refusals: list[str] = []
    recording.same("poll(1) while another thread calls commit_sync", lambda: intruded(consumer, refusals))
    recording.same("the other thread got", lambda: refusals)
    recording.same("unsubscribe()", consumer.unsubscribe)
    recording.same("subscription()", consumer.subscription)
    recording.same("poll", consumer.poll)
    recording.same("close()", consumer.close)
    recording.same("close() again", consumer.close)
    recording.same("poll after close", consumer.poll)
    recording.same("commit_sync after close", consumer.commit_sync)
    recording.same("subscription after close", consumer.subscription)
    _configurations(recording, {"group.id": "g", "log.path": str(log_path)})


def _configurations(recording: Recording, known: dict[str, object]) -> None:
    def with_keys(**keys: object) -> Callable[[], object]:
        def made() -> str:
            ShareConsumer({**known, **{key.replace("_", "."): value for key, value in keys.items()}}).close()
            return "accepted"

        return made

    recording.same("ShareConsumer with {}", with_keys())
    refused: dict[str, object] = {
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.instance.id": "x",
        "isolation.level": "read_committed",
        "session.timeout.ms": 10000,
        "group.protocol": "consumer",
    }
    for key, value in refused.items():
        check = recording.differs if key == "session.timeout.ms" else recording.longer
        check(f"ShareConsumer with {{'{key}': {value!r}}}", with_keys(**{key: value}))
    for key, value in {"share.acknowledgement.mode": "maybe", "share.acquire.mode": "record_limit"}.items():
        recording.differs(f"ShareConsumer with {{'{key}': {value!r}}}", with_keys(**{key: value}))
    recording.same("ShareConsumer with {'max.poll.records': 0}", with_keys(max_poll_records=0))
    recording.same("ShareConsumer with {'no.such.config': 1}", with_keys(no_such_config=1))
    recording.same(
        "ShareConsumer with {'on_commit': <built-in function print>}", lambda: ShareConsumer(known, on_commit=print)
    )
    recording.same("ShareConsumer without group.id", lambda: ShareConsumer({"log.path": "x"}))
    recording.same("ShareConsumer()", lambda: ShareConsumer())


def callback_raises(recording: Recording, consume: Consume) -> None:
    consumer = consume("cl-1", mode="explicit")
    messages = recording.polled("poll", lambda: consumer.poll(DEADLINE_S))

    def raises(offsets: object, exception: object) -> None:
        raise RuntimeError("thrown by the callback")

    consumer.set_acknowledgement_commit_callback(raises)
    _acknowledge_all(consumer, messages)
    recording.same("commit_sync()", consumer.commit_sync)
    _acknowledge_all(consumer, recording.polled("poll", lambda: consumer.poll(DEADLINE_S)))
    member_of(consumer).acknowledge(consumer._delivered.take_acknowledged())
    await_responses(consumer)
    eventually(lambda: reader_of(consumer).is_ready(1), "the next records are read")
    recording.same("poll carrying acknowledgements", lambda: consumer.poll(DEADLINE_S))
    recording.differs("poll", lambda: consumer.poll(DEADLINE_S))
    consumer.set_acknowledgement_commit_callback(None)


def misc(recording: Recording, consume: Consume) -> None:
    recording.differs(
        "share.acknowledgement.mode='maybe': poll", lambda: consume("cl-1", mode="maybe").poll(DEADLINE_S)
    )
    recording.differs("acknowledge")
    recording.differs("poll")
    consumer = consume("cl-1", mode="explicit")
    messages = recording.polled("explicit: poll", lambda: consumer.poll(DEADLINE_S))
    consumer.unsubscribe()
    recording.same("acknowledge after unsubscribe()", lambda: consumer.acknowledge(messages[0]))
    recording.same("commit_sync()", consumer.commit_sync)
    consumer.subscribe(["cl-1"])
    recording.same("subscribe again, poll", lambda: consumer.poll(DEADLINE_S))
    recording.differs("Message accessors", lambda: accessors(messages[0]))
    recording.same(
        "Messages",
        lambda: {
            "repr": repr(messages)[:200],
            "count": messages.count(),
            "is_empty": messages.is_empty(),
            "slice": type(messages[:2]).__name__,
            "records": type(messages.records()).__name__,
        },
    )
    _acknowledge_all(consumer, messages[1:])
    result = recording.same("commit_sync(timeout=5)", lambda: consumer.commit_sync(timeout=5))
    assert isinstance(result, dict)
    (key,) = result
    recording.same("commit_sync key type", lambda: f"{type(key).__name__} {key!r}")


def member_count(admin: AdminClient) -> int:
    group = admin.describe_share_groups(["g"])["g"]
    return len(group.members) if isinstance(group, ShareGroupDescription) else 0


def max_group_size(recording: Recording, log: LocalLog, log_path: Path) -> None:
    log.create_topic("cl-1", 1, {})
    log.append("cl-1", 0, [NewRecord(None, b"v")] * 120)
    # The default is reached step by step, so the first poll would return one record.
    config: dict[str, object] = {
        "group.id": "g",
        "log.path": str(log_path),
        "fetch.max.wait.ms": 100,
        "max.poll.records": 500,
    }
    with ProcessorPeer(log, BROKER.model_copy(update={"group_share_max_size": 2})):
        admin = AdminClient(log)
        admin.alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        consumers = [ShareConsumer(config) for _ in range(3)]
        for consumer in consumers:
            consumer.subscribe(["cl-1"])
            if consumer is consumers[0]:
                recording.polled("member 1 poll(1)", lambda: consumers[0].poll(0))
                recording.polled("member 1 poll(1)", lambda: consumers[0].poll(DEADLINE_S))
                recording.polled("member 1 poll(1)", lambda: consumers[0].poll(SHORT_S))
            if consumer is consumers[1]:
                eventually(lambda: member_count(admin) == 2, "member 2 has joined")
        for _ in range(3):
            recording.polled("member 2 poll(1)", lambda: consumers[1].poll(SHORT_S))
        recording.same("member 3 poll(1)", lambda: consumers[2].poll(DEADLINE_S))
        for _ in range(2):
            recording.polled("member 3 poll(1)", lambda: consumers[2].poll(SHORT_S))
        for consumer in consumers:
            recording.same("close", consumer.close)


REPLAYS: dict[str, Callable[..., None]] = {
    "implicit": implicit,
    "explicit-unacked": explicit_unacked,
    "acknowledge-errors": acknowledge_errors,
    "commit-callback": commit_callback,
    "lock-expiry": lock_expiry,
    "max-poll-records": max_poll_records,
    "delivery-count": delivery_count,
    "group-type-clash": group_type_clash,
    "lifecycle": lifecycle,
    "callback-raises": callback_raises,
    "misc": misc,
    "max-group-size": max_group_size,
}
"""Scenario → its replay."""


def test_every_recorded_scenario_is_replayed() -> None:
    assert REPLAYS.keys() == recorded_scenarios().keys()
    assert {scenario for scenario, _ in listed_differences()} <= REPLAYS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.long("locks end by time") if name == "lock-expiry" else ())
        for name in REPLAYS
    ],
)
def test_a_recorded_scenario(scenario: str, request: pytest.FixtureRequest) -> None:
    recording = Recording(scenario)
    replay = REPLAYS[scenario]
    names = [name for name in inspect.signature(replay).parameters if name != "recording"]
    replay(recording, **{name: request.getfixturevalue(name) for name in names})
    recording.end()
    assert recording.different == [listed for listed in listed_differences() if listed[0] == scenario]


def _untyped(consumer: ShareConsumer) -> Any:
    """For calls that a type checker would refuse."""
    return consumer


def _acknowledged(consumer: ShareConsumer, messages: Iterable[Message]) -> str:
    for message in messages:
        consumer.acknowledge(message)
    return "ok"


def _acknowledge_all(consumer: ShareConsumer, messages: object) -> None:
    assert isinstance(messages, Messages)
    for message in messages:
        consumer.acknowledge(message)


def _wait_until(log: LocalLog, time_ms: int) -> None:
    eventually(lambda: log.now_ms() >= time_ms, "the time")
