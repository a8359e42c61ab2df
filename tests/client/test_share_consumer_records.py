"""The records that a share consumer gets from the real actors, and those that it must not get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.client.consumers import TIMEOUT_S, Callback, Consume, got, member_of
from tests.client.processor_peer import ProcessorPeer, eventually


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

    def test_one_partition_brings_at_most_so_many_bytes_and_one_record_more(
        self, log: LocalLog, consume: Consume
    ) -> None:
        log.create_topic("two", 2, {})
        for partition in range(2):
            log.append("two", partition, [NewRecord(None, b"four")] * 5)
        consumer = consume("two", max_partition_fetch_bytes=8)
        polled: list[tuple[int, int]] = []
        while len(polled) < 10:
            messages = consumer.poll(TIMEOUT_S)
            places = [(message.partition() or 0, message.offset() or 0) for message in messages]
            assert max(Counter(partition for partition, _ in places).values()) <= 2
            polled += places
        assert sorted(polled) == [(partition, offset) for partition in range(2) for offset in range(5)]

    @pytest.mark.parametrize("bound", ["fetch_max_bytes", "max_partition_fetch_bytes"])
    @pytest.mark.parametrize("stop", [ShareConsumer.unsubscribe, ShareConsumer.close])
    def test_what_a_poll_had_no_room_for_was_never_delivered(
        self, consume: Consume, stop: Callable[[ShareConsumer], None], bound: str
    ) -> None:
        consumer = consume("cl-1", mode="explicit", **{bound: 5})
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
        assert [offset for told in callback.offsets for offset in told] == [*range(10), *range(15, 20)]
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
