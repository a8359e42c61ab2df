"""The records that a share consumer gets from the real actors, and those that it must not get."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from tests.client.consumers import Callback, Consume, acknowledge_all, fetches_ahead, got
from tests.client.processor_peer import ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually


class TestRecords:
    def test_a_message_has_all_that_the_record_has(self, log: LocalLog, consume: Consume) -> None:
        log.create_topic("rich", 1, {})
        headers = (("a", b"1"), ("a", None))
        log.append("rich", 0, [NewRecord(b"k", b"value", headers, 1_700_000_000_000), NewRecord(None, None)])
        first, second = consume("rich").poll(DEADLINE_S)
        assert (first.topic(), first.partition(), first.offset(), first.delivery_count()) == ("rich", 0, 0, 1)
        assert (first.key(), first.value(), first.headers()) == (b"k", b"value", list(headers))
        assert first.timestamp() == (1, 1_700_000_000_000)
        assert (first.error(), first.latency(), first.leader_epoch()) == (None, None, None)
        assert (second.key(), second.value(), second.headers(), len(second)) == (None, None, None, 0)

    def test_a_poll_returns_at_most_so_many_bytes_and_one_record_at_least(self, consume: Consume) -> None:
        consumer = consume("cl-1", fetch_max_bytes=5)
        assert [got(consumer.poll(DEADLINE_S)) for _ in range(3)] == ["0-1:d1", "2-3:d1", "4-5:d1"]
        assert got(consume("cl-1", fetch_max_bytes=0).poll(DEADLINE_S)) == "10-10:d1"

    def test_one_partition_brings_at_most_so_many_bytes_and_one_record_at_least(
        self, log: LocalLog, consume: Consume
    ) -> None:
        log.create_topic("two", 2, {})
        for partition in range(2):
            log.append("two", partition, [NewRecord(None, b"four")] * 5)
        consumer = consume("two", max_partition_fetch_bytes=8)
        polled: list[tuple[int, int]] = []
        while len(polled) < 10:
            messages = consumer.poll(DEADLINE_S)
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
        for message in consumer.poll(DEADLINE_S):
            consumer.acknowledge(message)
        consumer.commit_sync()
        stop(consumer)
        other = consume("cl-1", max_poll_records=500)
        seen: dict[int, int] = {}

        def everything_is_seen() -> bool:
            seen.update({message.offset() or 0: message.delivery_count() or 0 for message in other.poll(0.5)})
            return len(seen) == 118

        eventually(everything_is_seen, "all records with the other consumer")
        assert seen == dict.fromkeys(range(2, 120), 1)

    def test_offsets_without_a_record_are_passed_over_and_acknowledged_as_gaps(
        self, log_path: Path, consume: Consume, processor: ProcessorPeer
    ) -> None:
        with closing(sqlite3.connect(log_path)) as connection, connection:
            connection.execute("DELETE FROM records WHERE offset IN (13, 14)")
        callback = Callback()
        consumer = consume("cl-1")
        consumer.set_acknowledgement_commit_callback(callback)
        assert [got(consumer.poll(DEADLINE_S)) for _ in range(2)] == ["0-9:d1", "10-12:d1 15-21:d1"]
        consumer.commit_sync()
        assert [offset for acknowledged in callback.offsets for offset in acknowledged] == [*range(13), *range(15, 22)]
        ranges = [
            r
            for envelope in processor.requests
            for topic in envelope.body.get("topics", [])
            for partition in topic["partitions"]
            for r in partition.get("acknowledgement_batches", [])
        ]
        assert {"first_offset": 13, "last_offset": 14, "acknowledge_types": [0],
                "reason": "no record in the log: compacted, or a transaction's marker"} in ranges  # fmt: skip

    def test_a_topic_that_was_created_again_is_not_mistaken_for_the_old_one(
        self, log: LocalLog, consume: Consume
    ) -> None:
        consumer = consume("cl-1")
        assert got(consumer.poll(DEADLINE_S)) == "0-9:d1"
        assert fetches_ahead(consumer)
        log.delete_topic("cl-1")
        log.create_topic("cl-1", 1, {})
        log.append("cl-1", 0, [NewRecord(None, b"new")] * 12)
        polled = [consumer.poll(DEADLINE_S)]
        while polled[-1][0].value() != b"new":
            # Read before the topic was deleted.
            assert got(polled[-1]) == "10-19:d1"
            polled.append(consumer.poll(DEADLINE_S))
        assert {message.value() for message in polled[-1]} == {b"new"}
        assert got(polled[-1]).startswith("0-")

    def test_a_consumer_that_stands_still_holds_what_it_polled_and_no_more(self, consume: Consume) -> None:
        assert got(consume("cl-1", max_poll_records=1).poll(DEADLINE_S)) == "0-0:d1"
        other = consume("cl-1", max_poll_records=500)
        seen: dict[int, int] = {}

        def everything_else_is_seen() -> bool:
            seen.update({message.offset() or 0: message.delivery_count() or 0 for message in other.poll(0.5)})
            return len(seen) == 119

        eventually(everything_else_is_seen, "all other records with the other consumer")
        assert seen == dict.fromkeys(range(1, 120), 1)

    def test_with_record_limit_no_record_waits_behind_those_that_were_polled(
        self, consume: Consume, processor: ProcessorPeer
    ) -> None:
        first = consume("cl-1", mode="explicit", share_acquire_mode="record_limit")
        for offset in (0, 10):
            messages = first.poll(DEADLINE_S)
            assert got(messages) == f"{offset}-{offset + 9}:d1"
            acknowledge_all(first, messages)
            first.commit_sync(DEADLINE_S)
        assert len(processor.sent(ApiKey.SHARE_FETCH)) == 2
        second = consume("cl-1", max_poll_records=500)
        assert got(second.poll(DEADLINE_S)) == "20-119:d1"

    def test_what_a_consumer_fetched_ahead_goes_back_where_another_one_waits(
        self, consume: Consume, produce: Callable[[str, int], None], processor: ProcessorPeer
    ) -> None:
        topics = (f"waits-{number}" for number in itertools.count())

        def goes_back_with_a_notice() -> bool:
            """On a busy machine it may go back without one, after a second."""
            topic = next(topics)
            produce(topic, 120)
            first, second = consume(topic), consume()
            assert got(first.poll(DEADLINE_S)) == "0-9:d1"
            assert fetches_ahead(first)
            second.subscribe([topic])
            polled: list[int] = []
            while len(polled) < 110:
                polled += [message.offset() or 0 for message in second.poll(DEADLINE_S)]
            assert sorted(polled) == list(range(10, 120))
            acknowledgements = processor.sent(ApiKey.SHARE_ACKNOWLEDGE)
            return any("another member waits" in str(envelope.body) for envelope in acknowledgements)

        eventually(goes_back_with_a_notice, "records that went back since another consumer waits")

    def test_polls_begin_with_one_record_and_grow_where_their_size_is_not_set(
        self, log_path: Path, consume: Consume
    ) -> None:
        with ShareConsumer({"group.id": "g", "log.path": str(log_path)}) as consumer:
            consumer.subscribe(["cl-1"])
            sizes = [len(consumer.poll(DEADLINE_S))]
            while sum(sizes) < 120:
                sizes.append(len(consumer.poll(DEADLINE_S)))
        assert sizes[0] == 1
        assert max(sizes) > 1
        assert all(after <= 8 * max(sizes[: index + 1]) for index, after in enumerate(sizes[1:]))

    @pytest.mark.long("locks end by time")
    def test_records_whose_lock_ended_while_they_waited_are_not_handed_out(
        self, log: LocalLog, consume: Consume, processor: ProcessorPeer
    ) -> None:
        AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "5000"})
        consumer = consume("cl-1", mode="explicit")
        first = consumer.poll(DEADLINE_S)
        assert got(first) == "0-9:d1"
        assert fetches_ahead(consumer)
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
