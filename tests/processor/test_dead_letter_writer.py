"""The dead-letter writer: its appends, its confirmations and its failures, on a real log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from sharegroup.actor.effects import DeadLetterReason, DeadLetters, DropDeadLetters, WriteDeadLetters
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.errors import ConfigurationError, LogUnavailableError, RecordTooLargeError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import LogRecord, NewRecord, TopicDescription
from sharegroup.logs.topic_properties import DEAD_LETTER_QUEUE_ENABLE_CONFIG
from sharegroup.processor.dead_letters.headers import dead_letter_headers_of, without_dead_letter_headers
from sharegroup.processor.dead_letters.records import (
    MAX_RECORDS,
    NOT_COPIED_HEADER,
    dead_letter_topic,
)
from sharegroup.processor.dead_letters.writer import DeadLetterWriter, GroupCounts
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import DlqStatusChanged, DlqWritten
from sharegroup.protocol.messages import RequestEnvelope, parsed
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from tests.actor.group_harness import Group, group_with, joined
from tests.processor.commits import published
from tests.support.eventually import eventually

DLQ = "dlq.orders"
REJECTED = DeadLetterReason.REJECTED
EXCEEDED = DeadLetterReason.DELIVERY_COUNT_EXCEEDED
LEADER_EPOCH = 7
STATE_EPOCH = 3


class FailingLog(LocalLog):
    """A log in which appends to some topics fail, and all appends are counted."""

    failing: frozenset[str] = frozenset()
    longest_record: int | None = None
    """Bytes of a record that the dead-letter topic takes, without the headers of dead-letter records."""
    during_failure: Callable[[], None] | None = None
    """Called while an append fails."""
    appended = 0

    def append_all(self, batches: Sequence[tuple[str, int, Sequence[NewRecord]]]) -> list[int]:
        self.appended += 1
        for topic, partition, records in batches:
            if topic in self.failing:
                if self.during_failure is not None:
                    self.during_failure()
                raise LogUnavailableError(f"The topic {topic} does not respond.")
            own = [record._replace(headers=without_dead_letter_headers(record.headers)) for record in records]
            sizes = [record.size_bytes for record in own]
            if topic == DLQ and self.longest_record is not None and max(sizes) > self.longest_record:
                raise RecordTooLargeError(f"A record for partition {topic}-{partition} is too large.")
        return super().append_all(batches)


class OlderLog(LocalLog):
    """A log that refuses topic configuration that it does not know, as a broker does."""

    def create_topic(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None, if_not_exists: bool = False
    ) -> TopicDescription:
        if DEAD_LETTER_QUEUE_ENABLE_CONFIG in (config or {}):
            raise ConfigurationError(f"Unknown topic config name: {DEAD_LETTER_QUEUE_ENABLE_CONFIG}")
        return super().create_topic(name, partition_count, config, if_not_exists)


class Desk:
    """A writer with a clock that stands still, and everything that it sent."""

    def __init__(self, log: FailingLog, may_create_topics: bool = False) -> None:
        self.log = log
        self.now_s = 0.0
        self.sent: list[RequestEnvelope] = []
        self.failures: list[BaseException] = []
        self.writer = DeadLetterWriter(
            log,
            self.sent.extend,
            self.failures.append,
            LEADER_EPOCH,
            {"requests"},
            may_create_topics,
            lambda: self.now_s,
        )

    def write(self, *ranges: DeadLetters, group_id: str = "group-1", topic: str = DLQ, copies: bool = False) -> None:
        """Queue dead-letter records, and let the writer do what is due."""
        self.writer.enqueue([WriteDeadLetters(group_id, topic, copies, ranges)])
        self.writer.write_due()

    def advance(self, seconds: float) -> None:
        """Let time pass, and the writer do what is due on the way."""
        end_s = self.now_s + seconds
        while (pause_s := self.writer.write_due()) is not None and self.now_s + pause_s <= end_s:
            self.now_s += pause_s
        self.now_s = end_s
        self.writer.write_due()

    def records(self, topic: str = DLQ, partition: int = 0) -> list[LogRecord]:
        return self.log.read(topic, partition, 0, self.log.offsets(topic)[partition].end_offset)

    def offsets(self, topic: str = DLQ, partition: int = 0) -> list[int]:
        """Return the source offsets of the dead-letter records, in order."""
        return [int(dict(record.headers)["__dlq.errors.offset"] or b"") for record in self.records(topic, partition)]

    def confirmed(self) -> list[tuple[str, int, int, int]]:
        """Return (group, partition, first offset, last offset) of each confirmed range."""
        return [
            (envelope.group_id, written.partition_index, written.first_offset, written.last_offset)
            for envelope in self.sent
            if envelope.api_key == ApiKey.DLQ_WRITTEN
            for written in parsed(DlqWritten, envelope.body).ranges
        ]

    def statuses(self) -> list[tuple[str, str]]:
        return [
            (envelope.group_id, parsed(DlqStatusChanged, envelope.body).failure)
            for envelope in self.sent
            if envelope.api_key == ApiKey.DLQ_STATUS_CHANGED
        ]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FailingLog]:
    with FailingLog(tmp_path / "log.db") as opened:
        opened.create_topic("orders", 3)
        for partition in range(3):
            records = [NewRecord(b"key-%d" % n, b"value-%d" % n, (("original", b"x"),)) for n in range(10)]
            opened.append("orders", partition, records)
        opened.create_topic(DLQ, 2)
        opened.appended = 0
        yield opened


@pytest.fixture
def desk(log: FailingLog) -> Desk:
    return Desk(log)


def dead_letters(
    log: LocalLog,
    first_offset: int,
    last_offset: int,
    partition: int = 0,
    delivery_count: int = 1,
    reason: DeadLetterReason = REJECTED,
) -> DeadLetters:
    topic_id = log.describe_topic("orders").topic_id
    return DeadLetters("orders", topic_id, partition, first_offset, last_offset, delivery_count, reason, STATE_EPOCH)


class TestRecords:
    def test_the_headers_name_source_and_reason(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 3, 3), dead_letters(log, 5, 5, partition=2, delivery_count=4, reason=EXCEEDED))
        assert [(record.key, record.value, record.headers) for record in desk.records()] == [
            (
                None,
                None,
                (
                    ("__dlq.errors.topic", b"orders"),
                    ("__dlq.errors.partition", partition),
                    ("__dlq.errors.offset", offset),
                    ("__dlq.errors.group", b"group-1"),
                    ("__dlq.errors.delivery.count", count),
                    ("__dlq.errors.message", message),
                ),
            )
            for partition, offset, count, message in (
                (b"0", b"3", b"1", b"Offset rejected by client."),
                (b"2", b"5", b"4", b"Offset delivery count exceeded the threshold."),
            )
        ]

    def test_key_value_and_headers_are_copied_on_demand_before_the_own_headers(
        self, desk: Desk, log: FailingLog
    ) -> None:
        desk.write(dead_letters(log, 3, 4), copies=True)
        assert [(record.key, record.value, record.headers[0]) for record in desk.records()] == [
            (b"key-3", b"value-3", ("original", b"x")),
            (b"key-4", b"value-4", ("original", b"x")),
        ]
        assert [[name for name, _ in record.headers[1:3]] for record in desk.records()] == [
            ["__dlq.errors.topic", "__dlq.errors.partition"]
        ] * 2

    def test_a_copied_dead_letter_record_leads_to_its_own_source(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 3, 3, partition=1), copies=True)
        (of_orders,) = desk.records(partition=1)
        log.create_topic("dlq.dlq", 1)
        topic_id = log.describe_topic(DLQ).topic_id
        given_up = DeadLetters(DLQ, topic_id, 1, 0, 0, 2, EXCEEDED, STATE_EPOCH)
        desk.write(given_up, group_id="group-2", topic="dlq.dlq", copies=True)
        (record,) = desk.records("dlq.dlq")
        assert record.headers[: len(of_orders.headers)] == of_orders.headers
        origin = dead_letter_headers_of(record.headers)
        assert origin == (DLQ, 1, 0, "group-2", 2, "Offset delivery count exceeded the threshold.")

    def test_the_partition_is_that_of_the_source_modulo_the_count(self, desk: Desk, log: FailingLog) -> None:
        desk.write(*(dead_letters(log, 0, partition, partition) for partition in range(3)))
        assert [len(desk.records(partition=partition)) for partition in range(2)] == [1 + 3, 2]

    @pytest.mark.parametrize("what", ["deleted records", "deleted topic", "another topic of the name"])
    def test_a_record_that_is_gone_still_gets_its_dead_letter_record(
        self, desk: Desk, log: FailingLog, what: str
    ) -> None:
        wanted = dead_letters(log, 0, 3)
        if what == "deleted records":
            log.delete_records("orders", 0, 10)
        else:
            log.delete_topic("orders")
        if what == "another topic of the name":
            log.create_topic("orders", 1)
            log.append("orders", 0, [NewRecord(b"other", b"other")] * 5)
        desk.write(wanted, copies=True)
        assert desk.offsets() == [0, 1, 2, 3]
        assert {(record.key, record.value) for record in desk.records()} == {(None, None)}

    def test_some_source_records_are_gone(self, desk: Desk, log: FailingLog) -> None:
        log.delete_records("orders", 0, 2)
        desk.write(dead_letters(log, 0, 12), copies=True)
        assert desk.offsets() == list(range(13))
        values = [record.value for record in desk.records()]
        assert values == [None, None, *(b"value-%d" % n for n in range(2, 10)), None, None, None]


class TestAppends:
    def test_records_of_several_groups_are_one_append(self, desk: Desk, log: FailingLog) -> None:
        effects = [
            WriteDeadLetters(group, DLQ, False, (dead_letters(log, 0, 1), dead_letters(log, 4, 4, partition=1)))
            for group in ("group-1", "group-2")
        ]
        desk.writer.enqueue(effects)
        assert desk.writer.metrics.waiting_records == 6
        assert desk.writer.write_due() is None
        assert log.appended == 1
        assert desk.confirmed() == [
            *(("group-1", 0, 0, 1), ("group-1", 1, 4, 4)),
            *(("group-2", 0, 0, 1), ("group-2", 1, 4, 4)),
        ]
        metrics = desk.writer.metrics
        assert metrics.groups() == {"group-1": GroupCounts(3, 1, 0), "group-2": GroupCounts(3, 1, 0)}
        assert metrics.waiting_records == 0

    @pytest.mark.parametrize("copies", [False, True])
    def test_a_long_range_is_several_confirmed_appends(self, desk: Desk, log: FailingLog, copies: bool) -> None:
        count = 2 * MAX_RECORDS + 7
        log.append("orders", 0, [NewRecord(None, b"x" * 2_000)] * count)
        desk.write(dead_letters(log, 0, count - 1), copies=copies)
        assert desk.offsets() == list(range(count))
        counts = desk.writer.metrics.groups()["group-1"]
        assert counts.appends > 2
        assert (counts.written_records, counts.failed_appends) == (count, 0)
        ends = [last for _, _, _, last in desk.confirmed()]
        assert [first for _, _, first, _ in desk.confirmed()] == [0, *(end + 1 for end in ends[:-1])]
        assert ends[-1] == count - 1

    def test_confirmations_carry_the_leader_epoch_and_the_state_epoch(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 0, 1))
        (envelope,) = desk.sent
        assert envelope.leader_epoch == LEADER_EPOCH
        assert [written.state_epoch for written in parsed(DlqWritten, envelope.body).ranges] == [STATE_EPOCH]

    def test_what_a_published_commit_asks_for_is_written(self, desk: Desk, log: FailingLog) -> None:
        effect = WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 0, 1),))
        desk.writer.published(published(effect, group_id="group-1"))
        desk.writer.write_due()
        assert desk.confirmed() == [("group-1", 0, 0, 1)]

    def test_nothing_is_confirmed_before_it_is_written(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 1))
        assert desk.sent == []
        log.failing = frozenset()
        desk.advance(1)
        assert (desk.offsets(), desk.confirmed()) == ([0, 1], [("group-1", 0, 0, 1)])

    def test_what_waits_is_replaced(self, desk: Desk, log: FailingLog) -> None:
        desk.writer.enqueue([WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 0, 1),))])
        desk.writer.enqueue(
            [WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 1, 1),), replaces_waiting=True)]
        )
        desk.writer.write_due()
        assert desk.offsets() == [1]


class TestRecordsThatAreTooLarge:
    @pytest.fixture(autouse=True)
    def long_values(self, log: FailingLog) -> None:
        for partition in range(3):
            values = [b"long value" if n == 2 else b"short" for n in range(10)]
            headers = [(("long", b"header"),) if n == 5 else (("a", b"b"),) for n in range(10)]
            records = [NewRecord(b"key", value, of_record) for value, of_record in zip(values, headers, strict=True)]
            log.append("orders", partition, records)  # offsets 10 to 19
        log.longest_record = 12

    def test_they_are_written_without_the_copy_and_a_header_explains_it(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 10, 19), dead_letters(log, 15, 15, partition=1), copies=True)
        assert desk.offsets() == list(range(10, 20))
        assert desk.offsets(partition=1) == [15]
        copies = [(record.key, record.value) for record in desk.records()]
        assert copies == [(None, None) if n in (2, 5) else (b"key", b"short") for n in range(10)]
        copied_headers = [without_dead_letter_headers(record.headers) for record in desk.records()]
        assert copied_headers == [() if n in (2, 5) else (("a", b"b"),) for n in range(10)]
        explained = [dict(record.headers).get(NOT_COPIED_HEADER) for record in desk.records()]
        reason = b"A record for partition dlq.orders-0 is too large."
        assert explained == [reason if n in (2, 5) else None for n in range(10)]
        assert desk.confirmed() == [("group-1", 0, 10, 19), ("group-1", 1, 15, 15)]
        assert desk.statuses() == []
        metrics = desk.writer.metrics
        assert (metrics.groups()["group-1"].written_records, metrics.records_without_copy) == (11, 3)

    def test_a_topic_that_takes_no_record_at_all_makes_the_group_wait(self, desk: Desk, log: FailingLog) -> None:
        log.longest_record = -1
        desk.write(dead_letters(log, 15, 15), copies=True)
        desk.advance(30)
        assert (desk.records(), desk.confirmed()) == ([], [])
        assert desk.statuses() == [("group-1", "A record for partition dlq.orders-0 is too large.")]


class TestFailures:
    def test_five_tries_with_back_off_then_every_thirty_seconds(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 1))
        tried_at: list[float] = []
        while len(tried_at) < 8:
            tried_at.append(desk.now_s)
            pause_s = desk.writer.write_due()
            assert pause_s is not None
            desk.now_s += pause_s
            desk.writer.write_due()
        assert tried_at == [0, 1, 3, 7, 15, 45, 75, 105]

    def test_it_is_tried_for_days(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 0))
        desk.advance(100_000)
        counts = desk.writer.metrics.groups()["group-1"]
        assert counts.failed_appends == counts.appends > 3_000
        log.failing = frozenset()
        desk.advance(30)
        assert desk.offsets() == [0]

    def test_a_failure_is_reported_after_the_fifth_try_and_when_it_is_over(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 1))
        desk.advance(14)
        assert (desk.statuses(), desk.writer.metrics.failures) == ([], {})
        assert desk.writer.metrics.groups() == {"group-1": GroupCounts(0, 4, 4)}
        desk.advance(100)
        failure = f"The topic {DLQ} does not respond."
        assert desk.statuses() == [("group-1", failure)]
        assert desk.writer.metrics.failures == {"group-1": failure}
        assert desk.writer.metrics.waiting_records == 2
        log.failing = frozenset()
        desk.advance(30)
        assert desk.statuses() == [("group-1", failure), ("group-1", "")]
        assert (desk.writer.metrics.failures, desk.writer.metrics.waiting_records) == ({}, 0)
        assert desk.offsets() == [0, 1]

    @pytest.mark.parametrize("is_over", [False, True], ids=["it still fails", "it is over"])
    def test_a_group_that_is_resumed_hears_the_status_again(self, desk: Desk, log: FailingLog, is_over: bool) -> None:
        failure = f"The topic {DLQ} does not respond."
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 1))
        desk.advance(100)
        if is_over:
            log.failing = frozenset()
            desk.advance(30)
        desk.sent.clear()
        asked_again = WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 0, 1),), replaces_waiting=True)
        desk.writer.enqueue([asked_again])
        desk.advance(100)
        assert desk.statuses() == [("group-1", "" if is_over else failure)]

    def test_a_resumed_group_for_which_nothing_waits_hears_that_nothing_fails(self, desk: Desk) -> None:
        desk.writer.enqueue([WriteDeadLetters("group-1", DLQ, False, (), replaces_waiting=True)])
        desk.writer.write_due()
        desk.writer.write_due()
        assert desk.statuses() == [("group-1", "")]

    def test_a_group_whose_topic_fails_holds_up_no_other(self, desk: Desk, log: FailingLog) -> None:
        log.create_topic("failing", 1)
        log.failing = frozenset({"failing"})
        desk.write(dead_letters(log, 0, 0), group_id="bad", topic="failing")
        desk.write(dead_letters(log, 1, 1))
        assert desk.confirmed() == [("group-1", 0, 1, 1)]

    def test_another_group_is_served_after_the_append_that_takes_long(self, desk: Desk, log: FailingLog) -> None:
        log.create_topic("failing", 1)
        log.failing = frozenset({"failing"})
        desk.write(*(dead_letters(log, 0, 0, partition=p) for p in range(3)), group_id="bad", topic="failing")
        failures: list[int] = []

        def wait() -> None:
            failures.append(len(desk.confirmed()))
            desk.now_s += 5
            if len(failures) == 1:
                desk.writer.enqueue([WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 1, 1),))])

        log.during_failure = wait
        desk.now_s += 1
        desk.writer.write_due()
        # One try fails before the other group's record is there, and two after it is written.
        assert failures[:3] == [0, 1, 1]

    def test_a_stop_comes_after_the_append_under_way(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(*(dead_letters(log, 0, 0, partition=p) for p in range(3)))
        log.during_failure = desk.writer.stop
        desk.now_s += 1
        desk.writer.write_due()
        assert log.appended == 2

    def test_what_failed_together_is_tried_by_share_partition(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 0), dead_letters(log, 1, 1), dead_letters(log, 0, 0, partition=1))
        assert log.appended == 1
        desk.advance(1)
        assert log.appended == 3

    def test_a_topic_that_may_not_be_created_is_waited_for(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 0, 0), topic="missing")
        desk.advance(20)
        ((group_id, failure),) = desk.statuses()
        assert group_id == "group-1"
        assert "Dead-letter topic missing does not exist" in failure
        assert "errors.deadletterqueue.auto.create.topics.enable" in failure
        log.create_topic("missing", 1)
        desk.advance(30)
        assert desk.offsets("missing") == [0]

    def test_a_change_of_configuration_is_tried_at_once(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 0, 0), topic="missing")
        desk.advance(20)
        desk.write(copies=True)
        assert desk.records()[0].value == b"value-0"
        assert desk.statuses()[-1] == ("group-1", "")

    @pytest.mark.parametrize(
        ("topic", "text"),
        [("", "has no dead-letter queue any more"), ("requests", "internal topic"), ("refused", "is no dead-letter")],
    )
    def test_a_topic_that_is_never_written_to(self, desk: Desk, log: FailingLog, topic: str, text: str) -> None:
        log.create_topic("requests", 1)
        log.create_topic("refused", 1, {"errors.deadletterqueue.group.enable": "false"})
        desk.write(dead_letters(log, 0, 0), topic=topic)
        desk.advance(20)
        assert text in desk.statuses()[0][1]
        assert (desk.confirmed(), log.appended) == ([], 0)


def test_a_missing_topic_is_created_when_it_may_be(log: FailingLog) -> None:
    desk = Desk(log, may_create_topics=True)
    desk.write(dead_letters(log, 2, 2, partition=2), topic="dlq.new")
    topic = log.describe_topic("dlq.new")
    assert topic.partition_count == 1
    assert topic.config == {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
    assert desk.offsets("dlq.new") == [2]


def test_a_log_that_does_not_know_the_key_of_dead_letter_topics_has_them_without_it(tmp_path: Path) -> None:
    with OlderLog(tmp_path / "log.db") as log:
        topic = dead_letter_topic(log, "dlq.new", (), may_create=True)
        assert (topic.partition_count, topic.config) == (1, {"message.timestamp.type": "CreateTime"})
        assert dead_letter_topic(log, "dlq.new", (), may_create=False) == topic


class TestRemovedGroup:
    def test_its_records_are_not_written_and_its_failure_ends(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 0, 1), topic="missing")
        desk.advance(20)
        desk.writer.published(published(DropDeadLetters("group-1"), group_id="group-1"))
        log.create_topic("missing", 1)
        desk.advance(100)
        assert (desk.records("missing"), desk.confirmed()) == ([], [])
        assert [failure != "" for _, failure in desk.statuses()] == [True, False]
        assert (desk.writer.metrics.failures, desk.writer.metrics.waiting_records) == ({}, 0)

    def test_a_later_group_of_its_name_gets_none_of_them(self, desk: Desk, log: FailingLog) -> None:
        log.create_topic("other", 1)
        desk.write(dead_letters(log, 0, 1), topic="missing")
        later = WriteDeadLetters("group-1", "other", False, (dead_letters(log, 5, 5),))
        desk.writer.enqueue([DropDeadLetters("group-1"), later])
        desk.advance(100)
        assert desk.offsets("other") == [5]
        assert desk.confirmed() == [("group-1", 0, 5, 5)]

    def test_one_that_is_removed_while_an_append_fails_fails_no_more(self, desk: Desk, log: FailingLog) -> None:
        log.failing = frozenset({DLQ})
        desk.write(dead_letters(log, 0, 0))
        desk.advance(14)
        log.during_failure = lambda: desk.writer.enqueue([DropDeadLetters("group-1")])
        desk.advance(100)
        assert desk.writer.metrics.failures == {}
        assert [failure for _, failure in desk.statuses()][-1:] in ([], [""])

    def test_nothing_is_sent_to_one_whose_records_were_written(self, desk: Desk, log: FailingLog) -> None:
        desk.write(dead_letters(log, 0, 1))
        desk.sent.clear()
        desk.writer.enqueue([DropDeadLetters("group-1")])
        desk.advance(100)
        assert desk.sent == []


class TestThread:
    def test_it_writes_what_is_queued(self, desk: Desk, log: FailingLog) -> None:
        desk.writer.start()
        try:
            desk.writer.enqueue([WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 0, 1),))])
            eventually(lambda: desk.confirmed() == [("group-1", 0, 0, 1)], "the records are written")
        finally:
            desk.writer.stop()
        assert desk.failures == []

    def test_its_failure_is_reported(self, log: FailingLog) -> None:
        failures: list[BaseException] = []

        def send(requests: list[RequestEnvelope]) -> None:
            raise LogUnavailableError("The request log does not respond.")

        writer = DeadLetterWriter(log, send, failures.append, LEADER_EPOCH)
        writer.enqueue([WriteDeadLetters("group-1", DLQ, False, (dead_letters(log, 0, 1),))])
        writer.start()
        eventually(lambda: [str(failure) for failure in failures] == ["The request log does not respond."], "it ended")
        writer.stop()


class TestResuming:
    """A processor ended at some point; the next one goes on from the state table."""

    @pytest.fixture
    def group(self) -> Group:
        """0..4 are rejected; their dead-letter records are not written."""
        group = group_with(10)
        assert group.alter_config(errors_deadletterqueue_topic_name=DLQ) == 0
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=10)
        anna.acknowledge({("orders-id", 0): [(0, 4, AcknowledgeType.REJECT), (5, 9, AcknowledgeType.ACCEPT)]})
        return group

    @staticmethod
    def resume(desk: Desk, group: Group) -> None:
        desk.writer.resume(fold(group.rows), BrokerConfig())
        desk.writer.write_due()

    @staticmethod
    def hear(group: Group, desk: Desk) -> None:
        """Let the group hear everything that the writer sent."""
        for envelope in desk.sent:
            group.append(envelope)
        group.settle()

    def assert_finished(self, group: Group) -> None:
        assert group.leader.partitions["orders-id", 0].share_partition.start_offset == 10
        archived = [e for row in group.rows for e in row.transitions if e.cause is Cause.DEAD_LETTER_WRITTEN]
        assert [(entry.first_offset, entry.last_offset) for entry in archived] == [(0, 4)]
        assert verify(group.rows, BrokerConfig()).findings == []

    def test_it_ended_before_the_append(self, desk: Desk, group: Group) -> None:
        self.resume(desk, group)
        self.hear(group, desk)
        assert desk.offsets() == [0, 1, 2, 3, 4]
        self.assert_finished(group)

    def test_it_ended_between_append_and_confirmation(self, log: FailingLog, group: Group) -> None:
        first, second = Desk(log), Desk(log)

        def end(requests: list[RequestEnvelope]) -> None:
            raise LogUnavailableError("The processor is gone.")

        first.writer = DeadLetterWriter(log, end, first.failures.append, LEADER_EPOCH)
        first.writer.enqueue(group.dead_letters)
        with pytest.raises(LogUnavailableError):
            first.writer.write_due()
        self.resume(second, group)
        self.hear(group, second)
        assert second.offsets() == [0, 1, 2, 3, 4] * 2
        self.assert_finished(group)

    def test_it_ended_before_the_confirmation_was_applied(self, log: FailingLog, group: Group) -> None:
        first, second = Desk(log), Desk(log)
        first.writer.enqueue(group.dead_letters)
        first.writer.write_due()
        self.resume(second, group)
        self.hear(group, first)
        self.hear(group, second)
        assert second.offsets() == [0, 1, 2, 3, 4] * 2
        self.assert_finished(group)

    def test_it_ended_when_all_was_done(self, desk: Desk, group: Group) -> None:
        group.write_dead_letters()
        group.settle()
        self.resume(desk, group)
        assert (desk.records(), desk.sent) == ([], [])

    @pytest.mark.parametrize("is_written", [False, True], ids=["records still wait", "nothing waits any more"])
    def test_a_reported_failure_is_taken_back(self, desk: Desk, group: Group, is_written: bool) -> None:
        group.tell(ApiKey.DLQ_STATUS_CHANGED, DlqStatusChanged(failure="no such topic"))
        if is_written:
            group.write_dead_letters()
        group.settle()
        self.resume(desk, group)
        assert desk.statuses() == [("group-1", "")]
        assert desk.offsets() == ([] if is_written else [0, 1, 2, 3, 4])

    def test_a_quarantined_group_is_left_alone(self, desk: Desk, group: Group) -> None:
        status = {"role": "leader", "status": "FAILED", "reason": "it failed"}
        group.rows.append(
            group.rows[-1].model_copy(
                update={"record_type": RecordType.GROUP_STATUS, "payload": status, "transitions": []}
            )
        )
        self.resume(desk, group)
        assert (desk.records(), desk.sent) == ([], [])
