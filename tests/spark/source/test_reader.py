"""The stream reader of a share group, called as Spark calls it, against the real actors. No Spark session."""

from __future__ import annotations

import json
import logging
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from sharegroup.audit.verification.verify import verify
from sharegroup.client.admin import AdminClient
from sharegroup.client.held_records import HeldRange, unread
from sharegroup.core.record_state import AcknowledgeType, Cause
from sharegroup.errors import ConfigurationError, UnsupportedFormatVersionError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.features import ReadMaxRows
from sharegroup.spark.source import stream_reader
from sharegroup.spark.source.member import SourceMember
from sharegroup.spark.source.offset import AcquiredOffset
from sharegroup.spark.source.query_options import ShareGroupSourceConfig, source_options
from sharegroup.spark.source.stream_reader import ShareGroupStreamReader
from sharegroup.state.reader import StateTableReader
from tests.client.processor_peer import BROKER, ProcessorPeer
from tests.support.eventually import DEADLINE_S, eventually

Offset = dict[str, Any]
LIMIT = ReadMaxRows(10)
LOCK_MS = 1_000
POLL_S = 0.1
"""Between two reads of the state table, which cost much."""
DOCUMENT = Path(__file__).parents[3] / "docs" / "spark_source.md"


class Group:
    """A group of the topic `orders`, with its log, its processor and its state table."""

    def __init__(self, folder: Path, is_new: bool = True) -> None:
        self.log = LocalLog(folder / "events.log")
        self.state_path = str(folder / "state")
        if is_new:
            self.log.create_topic("orders", 1, {})

    def produce(self, count: int) -> None:
        self.log.append("orders", 0, [NewRecord(b"key", b"value", (("header", b"h"),))] * count)

    def set(self, **config: str) -> None:
        AdminClient(self.log).alter_group_config("g", {name.replace("_", "."): value for name, value in config.items()})

    def offsets(self, *causes: Cause) -> list[int]:
        """Offsets that were changed for these causes, one for each time."""
        rows = StateTableReader(self.state_path).rows()
        entries = [entry for row in rows for entry in row.transitions if entry.cause in causes]
        return sorted(o for entry in entries for o in range(entry.first_offset, entry.last_offset + 1))

    def until(self, cause: Cause, offsets: list[int]) -> None:
        eventually(lambda: self.offsets(cause) == offsets, f"{cause} of {offsets}", pause_s=POLL_S)


class Query:
    """A query that is started, or started again, from its offset log.

    Attributes:
        offsets: the offset log, as text; the first one is before the first batch.
    """

    def __init__(self, group: Group, offsets: list[str] | None = None, **options: str) -> None:
        self.reader = reader(group, **options)
        self.offsets = offsets or [json.dumps(self.reader.initialOffset())]

    def latest(self) -> Offset | None:
        """Acquire the batch that follows; None when there is nothing."""
        latest = json.dumps(self.reader.latestOffset(json.loads(self.offsets[-1]), LIMIT))
        if latest == self.offsets[-1]:
            return None
        self.offsets.append(latest)
        offset: Offset = json.loads(latest)
        return offset

    def read(self) -> list[dict[str, Any]]:
        """The rows of the latest batch."""
        start, end = (json.loads(text) for text in self.offsets[-2:])
        tasks = self.reader.partitions(start, end)
        return [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]

    def batch(self) -> list[tuple[int, int]]:
        """(offset, delivery count) of the next batch that has records."""
        eventually(lambda: self.latest() is not None, "a batch")
        return [(row["offset"], row["delivery_count"]) for row in self.read()]


def reader(group: Group, **options: str) -> ShareGroupStreamReader:
    wanted = {"log_path": str(group.log.path), "group_id": "g", "subscribe": "orders", "max_poll_records": "10"}
    named = {name.replace("_", "."): value for name, value in {**wanted, **options}.items()}
    return ShareGroupStreamReader(source_options(CaseInsensitiveDict(named)))


@pytest.fixture(autouse=True)
def short_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that finds nothing ends soon: the processor responds within some milliseconds here."""
    monkeypatch.setattr(stream_reader, "_TRIGGER_WAIT_MS", 200)


@pytest.fixture
def new_group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path)
    yield group
    group.log.close()


@pytest.fixture
def processor(new_group: Group) -> Iterator[ProcessorPeer]:
    with ProcessorPeer(new_group.log, table_path=new_group.state_path) as processor:
        yield processor
    assert verify(StateTableReader(new_group.state_path).rows(), BROKER).findings == []


@pytest.fixture
def group(new_group: Group, processor: ProcessorPeer) -> Group:
    new_group.set(share_auto_offset_reset="earliest")
    return new_group


@pytest.fixture
def start(group: Group) -> Iterator[Callable[..., Query]]:
    """Starts queries, which are stopped at the end."""
    queries: list[Query] = []

    def started(offsets: list[str] | None = None, **options: str) -> Query:
        queries.append(Query(group, offsets, **options))
        return queries[-1]

    yield started
    for query in queries:
        query.reader.stop()


Start = Callable[..., Query]


def first(count: int, delivery_count: int = 1) -> list[tuple[int, int]]:
    return [(offset, delivery_count) for offset in range(count)]


def test_a_batch_is_accepted_once_spark_asks_for_the_next_and_not_before(group: Group, start: Start) -> None:
    group.produce(20)
    query = start()
    assert query.batch() == first(10)
    assert group.offsets(Cause.ACCEPT) == []
    assert [offset for offset, _ in query.batch()] == list(range(10, 20))
    group.until(Cause.ACCEPT, list(range(10)))
    assert query.latest() is None
    group.until(Cause.ACCEPT, list(range(20)))


def test_a_commit_that_comes_after_that_changes_nothing(group: Group, start: Start) -> None:
    group.produce(20)
    query = start()
    query.batch()
    query.batch()
    query.reader.commit(json.loads(query.offsets[1]))
    query.reader.commit(json.loads(query.offsets[2]))
    group.until(Cause.ACCEPT, list(range(20)))


def test_the_rows_are_those_of_sparks_kafka_source_with_a_delivery_count(group: Group, start: Start) -> None:
    group.produce(1)
    query = start()
    eventually(lambda: query.latest() is not None, "a batch")
    (row,) = query.read()
    (record,) = group.log.read("orders", 0, 0, 1)
    assert round(row.pop("timestamp").timestamp() * 1000) == record.timestamp_ms
    assert row == {
        "key": b"key",
        "value": b"value",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "header", "value": b"h"}],
        "delivery_count": 1,
    }


def test_tasks_share_a_batch_evenly(group: Group, start: Start) -> None:
    group.produce(10)
    query = start(numPartitions="3")
    eventually(lambda: query.latest() is not None, "a batch")
    tasks = query.reader.partitions(*(json.loads(text) for text in query.offsets[-2:]))
    assert [sum(batch.num_rows for batch in query.reader.read(task)) for task in tasks] == [4, 4, 2]


def test_a_query_started_again_reads_its_batch_once_more_and_acknowledges_it(group: Group, start: Start) -> None:
    group.produce(30)
    query = start()
    query.batch()
    assert [offset for offset, _ in query.batch()] == list(range(10, 20))
    query.reader.stop()
    again = start(query.offsets)
    assert [(row["offset"], row["delivery_count"]) for row in again.read()] == [(o, 1) for o in range(10, 20)]
    assert [offset for offset, _ in again.batch()] == list(range(20, 30))
    assert again.latest() is None
    group.until(Cause.ACCEPT, list(range(30)))
    assert max(Counter(group.offsets(Cause.ACQUIRE))[offset] for offset in range(20)) == 1
    assert group.offsets(Cause.SESSION_CLOSE) == []


def begin_a_batch(folder: Path, offsets: Connection) -> None:
    """The calls of a driver until it is killed."""
    query = Query(Group(folder, is_new=False))
    query.batch()
    offsets.send(query.offsets)
    threading.Event().wait()


def test_a_query_that_was_killed_is_started_again_as_the_same_member(
    group: Group, start: Start, tmp_path: Path
) -> None:
    group.produce(10)
    context = multiprocessing.get_context("spawn")
    received, sent = context.Pipe()
    driver = context.Process(target=begin_a_batch, args=(tmp_path, sent))
    driver.start()
    assert received.poll(DEADLINE_S)
    offsets: list[str] = received.recv()
    driver.kill()
    driver.join()
    again = start(offsets)
    assert [row["offset"] for row in again.read()] == list(range(10))
    assert again.latest() is None
    group.until(Cause.ACCEPT, list(range(10)))
    assert group.offsets(Cause.ACQUIRE) == list(range(10))


def test_a_query_stopped_after_the_commit_of_its_batch_acknowledges_it_when_started_again(
    group: Group, start: Start
) -> None:
    group.produce(10)
    query = start()
    query.batch()
    query.reader.stop()
    assert group.offsets(Cause.ACCEPT) == []
    assert start(query.offsets).latest() is None
    group.until(Cause.ACCEPT, list(range(10)))


def test_a_query_started_again_after_its_locks_ended_reads_its_batch_and_goes_on(group: Group, start: Start) -> None:
    group.set(share_record_lock_duration_ms=str(3 * LOCK_MS))
    group.produce(10)
    query = start()
    assert query.batch() == first(10)
    query.reader.stop()
    group.until(Cause.LOCK_TIMEOUT, list(range(10)))
    again = start(query.offsets)
    assert [row["offset"] for row in again.read()] == list(range(10))
    assert again.batch() == first(10, delivery_count=2)
    assert json.loads(again.offsets[-1])["refused_record_count"] == 10
    assert again.latest() is None
    group.until(Cause.ACCEPT, list(range(10)))


@pytest.mark.long("locks end by time, and are renewed before")
def test_the_locks_of_a_batch_that_takes_long_are_renewed(group: Group, start: Start) -> None:
    group.set(share_record_lock_duration_ms=str(6 * LOCK_MS))
    group.produce(10)
    query = start()
    query.batch()
    eventually(lambda: Counter(group.offsets(Cause.RENEW))[0] >= 4, "renewals for more than a lock", pause_s=POLL_S)
    assert query.latest() is None
    group.until(Cause.ACCEPT, list(range(10)))
    assert group.offsets(Cause.LOCK_TIMEOUT) == []


@pytest.mark.long("locks end by time, and are renewed before")
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_a_refused_renewal_ends_only_the_renewals_of_its_records(group: Group, is_restarted: bool) -> None:
    group.set(share_record_lock_duration_ms=str(6 * LOCK_MS))
    group.log.create_topic("returns", 1, {})
    group.log.append("returns", 0, [NewRecord(b"key", b"value")])
    group.produce(9)
    options = source_options({"log.path": str(group.log.path), "group.id": "g", "subscribe": "orders,returns"})
    member = SourceMember(group.log, options, AcquiredOffset(), max_fetch_wait_ms=200)
    try:
        # One fetch need not acquire the records of both topics.
        ranges: tuple[HeldRange, ...] = ()
        while len(ranges) < 2:
            acquisition = eventually(lambda: member.acquire(200), "an acquisition")
            ranges += acquisition.ranges
        batch = member.begin_batch(AcquiredOffset(), replace(acquisition, ranges=ranges))
        group.log.delete_topic("returns")
        if is_restarted:
            member.close()
            member = SourceMember(group.log, options, batch, max_fetch_wait_ms=200)
            member.resume_batch(AcquiredOffset(), batch)
        # Only the topic that stays has this offset.
        eventually(lambda: Counter(group.offsets(Cause.RENEW))[8] >= 6, "renewals for more than a lock", pause_s=POLL_S)
        member.acknowledge_batch(batch)
        group.until(Cause.ACCEPT, list(range(9)))
        assert 8 not in group.offsets(Cause.LOCK_TIMEOUT)
    finally:
        member.close()


def test_refused_acknowledgements_of_other_records_do_not_end_the_renewals_of_a_batch(group: Group) -> None:
    group.set(share_record_lock_duration_ms=str(6 * LOCK_MS))
    group.produce(20)
    options = {"log.path": str(group.log.path), "group.id": "g", "subscribe": "orders", "max.poll.records": "10"}
    member = SourceMember(group.log, source_options(options), AcquiredOffset(), max_fetch_wait_ms=200)

    def renewal_count() -> int:
        return group.offsets(Cause.RENEW).count(0)

    try:
        (held,) = member.begin_batch(AcquiredOffset(), eventually(lambda: member.acquire(200), "a batch")).ranges
        other = eventually(lambda: member.acquire(200), "other records").ranges
        member.group_member.acknowledge(part.acknowledgement(AcknowledgeType.ACCEPT) for part in other)
        group.until(Cause.ACCEPT, list(range(10, 20)))
        # Both are in one request, which is refused.
        member.group_member.acknowledge([held.acknowledgement(AcknowledgeType.RENEW), *unread(other, "once more")])
        before = eventually(renewal_count, "a renewal", pause_s=POLL_S)
        eventually(lambda: renewal_count() > before, "another renewal", pause_s=POLL_S)
    finally:
        member.close()


def warnings_of_new_checkpoints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(r.msg) for r in caplog.records if str(r.msg).startswith("event=new_checkpoint_of_known_group ")]


def test_a_new_checkpoint_of_a_group_that_has_read_before_is_warned_of_once(
    group: Group, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sharegroup.spark.source")
    group.produce(40)
    before = start(client_id="sales")
    assert before.batch() == first(10)
    assert before.latest() is not None
    group.until(Cause.ACCEPT, list(range(10)))
    before.reader.stop()
    assert warnings_of_new_checkpoints(caplog) == [], "the group was new"
    start(before.offsets, client_id="sales").reader.partitions(*(json.loads(text) for text in before.offsets[-2:]))
    assert warnings_of_new_checkpoints(caplog) == [], "the query has kept its checkpoint"
    again = start(client_id="sales")
    again.batch()
    again.batch()
    (warning,) = warnings_of_new_checkpoints(caplog)
    assert warning.startswith("event=new_checkpoint_of_known_group group=g client=sales ")
    assert "txnAppId" in warning
    assert "remedy=" in warning


def test_a_stopped_query_gives_back_at_once_what_it_fetched_ahead(group: Group, start: Start) -> None:
    group.produce(20)
    query = start()
    query.batch()
    eventually(lambda: group.offsets(Cause.ACQUIRE) == list(range(20)), "the next batch is fetched ahead")
    query.reader.stop()
    assert group.offsets(Cause.UNREAD) == list(range(10, 20))


class TestExplicitAcknowledgement:
    @staticmethod
    def say(
        query: Query, number: int, *acknowledgements: tuple[int, int, str] | tuple[int, int, str, int | None]
    ) -> None:
        """Leave what `acknowledge` would leave."""
        folder = Path(json.loads(query.offsets[-1])["acknowledgement_folder"])
        (folder / f"{number:06d}.json").write_text(json.dumps([["orders", 0, *one] for one in acknowledgements]))

    def test_the_commit_sends_the_acknowledgements_and_releases_the_rest(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start(share_acknowledgement_mode="explicit")
        query.batch()
        self.say(query, 0, (0, 5, "accept"))
        self.say(query, 1, (5, 6, "reject"), (90, 99, "reject"))
        assert query.batch() == [(offset, 2) for offset in (7, 8, 9)]
        assert group.offsets(Cause.ACCEPT) == list(range(5))
        assert group.offsets(Cause.REJECT) == [5, 6]
        assert group.offsets(Cause.RELEASE) == [7, 8, 9]

    def test_what_is_released_with_a_delay_stays_away_for_so_long(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start(share_acknowledgement_mode="explicit")
        query.batch()
        self.say(query, 0, (0, 7, "accept", None), (8, 8, "release", None), (9, 9, "release", 604_800_000))
        assert query.batch() == [(8, 2)]
        rows = StateTableReader(group.state_path).rows()
        released = [entry for row in rows for entry in row.transitions if entry.cause is Cause.RELEASE]
        assert [(entry.first_offset, entry.last_offset) for entry in released] == [(8, 8), (9, 9)]
        assert released[0].deadline_ms == 0
        assert released[1].deadline_ms == released[1].time_ms + 604_800_000

    def test_a_batch_that_is_executed_again_begins_without_acknowledgements(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start(share_acknowledgement_mode="explicit")
        query.batch()
        self.say(query, 0, (0, 9, "reject"))
        query.reader.stop()
        again = start(query.offsets, share_acknowledgement_mode="explicit")
        again.read()
        self.say(again, 0, (0, 9, "accept"))
        assert again.latest() is None
        group.until(Cause.ACCEPT, list(range(10)))
        assert group.offsets(Cause.REJECT) == []

    def test_acknowledgements_of_a_committed_batch_count_after_a_restart(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start(share_acknowledgement_mode="explicit")
        query.batch()
        self.say(query, 0, (0, 9, "reject"))
        query.reader.stop()
        again = start(query.offsets)
        assert again.latest() is None
        group.until(Cause.REJECT, list(range(10)))

    def test_a_batch_is_settled_as_it_was_begun(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start()
        query.batch()
        query.reader.stop()
        again = start(query.offsets, share_acknowledgement_mode="explicit")
        assert {row["acquisition"] for row in again.read()} == {""}
        assert again.latest() is None
        group.until(Cause.ACCEPT, list(range(10)))

    def test_an_offset_without_a_record_is_a_gap_and_not_released(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start(share_acknowledgement_mode="explicit")
        query.batch()
        group.log.delete_records("orders", 0, 3)
        self.say(query, 0, (3, 9, "accept"))
        assert query.latest() is None
        group.until(Cause.ACCEPT, list(range(3, 10)))
        assert group.offsets(Cause.RELEASE) == []

    def test_nothing_stays_behind(self, group: Group, start: Start) -> None:
        group.produce(10)
        query = start(share_acknowledgement_mode="explicit")
        query.batch()
        folder = Path(json.loads(query.offsets[-1])["acknowledgement_folder"])
        self.say(query, 0, (0, 9, "accept"))
        assert query.latest() is None
        eventually(lambda: not folder.exists(), "the folder of the batch is deleted")
        query.reader.stop()
        assert not folder.parent.exists()


class TestAvailableNow:
    def test_the_query_ends_with_what_was_there_at_its_start(self, group: Group, start: Start) -> None:
        group.produce(15)
        query = start()
        query.reader.prepareForTriggerAvailableNow()
        group.produce(10)
        assert query.latest() is not None
        query.read()
        assert query.latest() is not None
        assert [row["offset"] for row in query.read()] == list(range(10, 15))
        assert query.latest() is None
        group.until(Cause.ACCEPT, list(range(15)))

    def test_a_query_with_nothing_to_do_ends(self, group: Group, start: Start) -> None:
        query = start()
        query.reader.prepareForTriggerAvailableNow()
        assert query.latest() is None


@pytest.mark.slow
def test_a_query_waits_for_the_first_start_of_a_processor(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.produce(1)
    query = Query(group)
    assert query.latest() is None
    with ProcessorPeer(group.log):
        group.set(share_auto_offset_reset="earliest")
        assert query.batch() == first(1)
        query.reader.stop()


@pytest.mark.parametrize("name", ShareGroupSourceConfig.key_names())
def test_the_document_has_every_option(name: str) -> None:
    (option,) = (field for field in ShareGroupSourceConfig.model_fields.values() if field.alias == name)
    has_none = option.is_required() or option.default in ("", ())
    default = "" if has_none else f"`{str(option.default).lower() if option.default is False else option.default}` "
    assert f"| `{name}` | {default}| {option.description} |" in DOCUMENT.read_text(encoding="utf-8")


def test_an_offset_of_a_later_release_is_refused() -> None:
    with pytest.raises(UnsupportedFormatVersionError, match="version 2; this release reads 1"):
        AcquiredOffset.from_json({**AcquiredOffset().to_json(), "version": 2})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"subscribe": "orders", "log.path": "x"}, "group.id which has no default value"),
        ({"group.id": "g", "log.path": "x"}, "subscribe which has no default value"),
        ({"group.id": "g", "subscribe": "orders"}, "are both missing"),
        ({"group.id": "g", "subscribe": "o", "log.path": "x", "kafka.bootstrap.servers": "h:1"}, "are both set"),
        ({"group.id": "g", "subscribe": "o", "log.path": "x", "max.poll.record": "1"}, "Did you mean max.poll.records"),
        ({"group.id": "g", "subscribe": "o", "log.path": "x", "max.poll.records": "0"}, "must be at least 1"),
        ({"group.id": "g", "subscribe": "o", "log.path": "x", "numpartitions": "0"}, "numPartitions"),
        ({"group.id": "g", "subscribe": "o", "log.path": "x", "startingoffsets": "earliest"}, "auto.offset.reset"),
        (
            {"group.id": "g", "subscribe": "o", "log.path": "x", "share.acknowledgement.mode": "no"},
            "implicit, explicit",
        ),
        ({"group.id": "g", "subscribe": "o", "kafka.bootstrap.servers": "nowhere"}, "Invalid url"),
        ({"group.id": "g", "subscribe": "o", "kafka.acks": "all", "log.path": "x"}, "Unknown configuration acks"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        source_options(options)
