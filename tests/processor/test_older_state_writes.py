"""An older copy of the state table under a group that writes exactly once: first its sinks are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.audit.history.row_source import TableRows
from sharegroup.audit.sinks.verify_sinks import verify_sinks
from sharegroup.cli.resolve_older_state import OlderStateTakeover
from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.kafka_exceptions import KafkaException
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.client.sink_commits import WritePart
from sharegroup.client.write_decisions import open_writes
from sharegroup.errors import InvalidRequestError, UndecidedWriteError
from sharegroup.protocol.row_payloads import FencePayload
from sharegroup.protocol.rows import RecordType
from tests.support.eventually import DEADLINE_S, WAIT_MS
from tests.support.processor_thread import ProcessorThread
from tests.support.site import Site

pytestmark = pytest.mark.slow

NewSite = Callable[..., Site]
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "results")
    write_deltalake(path, SCHEMA.empty_table())
    return path


def rows_of(offsets: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist([{"topic": "topic-0", "partition": 0, "offset": offset} for offset in offsets], SCHEMA)


def written(table: str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["offset"].to_pylist())


def write_some(site: Site, group_id: str, topic: str, table: str) -> list[int]:
    """The offsets of ten records whose results a member writes."""
    with site.consumer(group_id, topic, max_poll_records=10, sink=table) as consumer:
        return write_next(site, consumer)


def write_next(site: Site, consumer: ShareConsumer) -> list[int]:
    messages = site.until(lambda: consumer.poll(0.2), "records come")
    with consumer.transaction() as write:
        write.append([{"topic": m.topic(), "partition": m.partition(), "offset": m.offset()} for m in messages])
    return [message.offset() or 0 for message in messages]


def leave_write(site: Site, group_id: str, topic: str, table: str) -> HeldWrite:
    """A write that is open, whose member is gone."""
    fetch = FetchSettings(max_records=10, batch_size=10, fetches_ahead=False)
    with DeltaSink(table) as sink:
        member = GroupMember(site.log, MemberSettings(group_id=group_id, fetch=fetch, sink=sink.sink))
        member.subscribe([topic])
        acquired = member.next_acquisition(WAIT_MS)
        assert acquired is not None
        assert acquired.write is not None
        member.close(WAIT_MS)
        return acquired.write


@contextmanager
def accepted(site: Site, older: Path) -> Iterator[None]:
    """A processor that goes on with an older copy."""
    shutil.rmtree(site.state_path)
    older.rename(site.state_path)
    processor = ProcessorThread(site.settings, accepts_older_state=True)
    processor.start()
    try:
        yield
    finally:
        processor.stop()


def takeover(site: Site, group_id: str, *, accepts_unclear: bool = False) -> OlderStateTakeover:
    return OlderStateTakeover(
        site.log,
        site.admin,
        group_id,
        lambda: site.folded(group_id),
        {},
        DEADLINE_S,
        accepts_unclear=accepts_unclear,
    )


def test_what_the_copy_does_not_know_is_taken_over_before_anything_is_acquired(
    new_site: NewSite, tmp_path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=50)
        group_id = site.new_group(**{"share.exactly.once.enable": "true", "share.exactly.once.sinks": table})
        assert write_some(site, group_id, topic, table) == list(range(10))
        known = leave_write(site, group_id, topic, table)
    shutil.copytree(site.state_path, tmp_path / "older")
    with site.running():
        admin = site.admin
        with DeltaSink(table) as sink:
            admin.resolve_write(group_id, sink.resolve(known.unresolved))
        assert write_some(site, group_id, topic, table) == list(range(10, 20))
        unknown = leave_write(site, group_id, topic, table)
    with accepted(site, tmp_path / "older"):
        command = f'command="sharegroup groups resolve --group {group_id} --older-state"'
        assert command in caplog.text
        with site.consumer(group_id, topic, max_poll_records=10, sink=table) as consumer:
            with pytest.raises(KafkaException, match=f"groups resolve --group {group_id} --older-state"):
                consumer.poll(DEADLINE_S)
            with pytest.raises(InvalidRequestError, match="has 1 members"):
                takeover(site, group_id).run()
        done = takeover(site, group_id).run()
        assert done is not None
        ((address, _, id_count, write_count),) = done.sinks
        assert (address, id_count, write_count) == (table, 1_000, 2)
        # That the sink does not have the write of the copy is in the request log, whose messages are applied again.
        assert (done.resolved_count, done.partition_count) == (0, 1)
        # The late writer of a write that nobody knows.
        with DeltaSink(table) as sink:
            rows = rows_of([20])
            assert not sink.commit([WritePart(unknown.unresolved)], rows).is_written
        assert takeover(site, group_id).run() is None
        with site.consumer(group_id, topic, max_poll_records=10, sink=table) as consumer:
            while len(written(table)) < 50:
                write_next(site, consumer)
        site.until(lambda: not open_writes(site.folded(group_id)), "no write is open")
    assert written(table) == list(range(50))
    verified = verify_sinks(TableRows(site.table_path), [table])
    assert (verified.findings, verified.accepted_count, verified.unchecked_count) == ([], 40, 1)
    assert verified.row_count == 50
    fences = [FencePayload.model_validate(row.payload) for row in site.rows(None, RecordType.FENCE)]
    assert [len(fence.earlier_states) for fence in fences] == [0, 1]


def test_a_group_without_a_known_sink_waits_until_it_is_named(new_site: NewSite, tmp_path: Path, table: str) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=20)
        group_id = site.new_group(**{"share.exactly.once.enable": "true"})
    shutil.copytree(site.state_path, tmp_path / "older")
    with site.running():
        write_some(site, group_id, topic, table)
    with accepted(site, tmp_path / "older"):
        with pytest.raises(InvalidRequestError, match=r"Name each table .* with --sink"):
            takeover(site, group_id).run()
        # The copy does not have the share-partition.
        done = takeover(site, group_id).run([table])
        assert done is not None
        assert done.partition_count == 1
        assert write_some(site, group_id, topic, table) == list(range(10, 20))
    # A later processor goes on with it.
    with site.running():
        assert takeover(site, group_id).run() is None
    assert written(table) == list(range(20))


def test_what_a_sink_does_not_tell_any_more_is_refused_unless_it_is_accepted(
    new_site: NewSite, tmp_path: Path, table: str
) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=20)
        group_id = site.new_group(**{"share.exactly.once.enable": "true", "share.exactly.once.sinks": table})
        site.until(lambda: site.folded(group_id), "the group is there")
    shutil.copytree(site.state_path, tmp_path / "older")
    with site.running():
        write_some(site, group_id, topic, table)
    write_deltalake(table, SCHEMA.empty_table(), mode="append")
    DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        (Path(table) / "_delta_log" / f"{version:020}.json").unlink()
    with accepted(site, tmp_path / "older"):
        with pytest.raises(UndecidedWriteError, match="begins with version 2, later than the copy"):
            takeover(site, group_id).run()
        with (
            site.consumer(group_id, topic, sink=table) as consumer,
            pytest.raises(KafkaException, match=f"groups resolve --group {group_id} --older-state"),
        ):
            consumer.poll(DEADLINE_S)
        assert takeover(site, group_id, accepts_unclear=True).run() is not None
        assert write_some(site, group_id, topic, table) == list(range(10))


def test_open_writes_of_the_copy_are_looked_up(new_site: NewSite, tmp_path: Path, table: str) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=20)
        group_id = site.new_group(**{"share.exactly.once.enable": "true"})
        write = leave_write(site, group_id, topic, table)
    shutil.copytree(site.state_path, tmp_path / "older")
    with site.running():
        site.new_group()
    # It was not known any more, whatever the member did.
    with DeltaSink(table) as sink:
        rows = rows_of(range(10))
        assert sink.commit([WritePart(write.unresolved)], rows).is_written
    with accepted(site, tmp_path / "older"):
        done = takeover(site, group_id).run()
        assert done is not None
        assert done.resolved_count == 1
        assert not open_writes(site.folded(group_id))
        assert write_some(site, group_id, topic, table) == list(range(10, 20))
    assert written(table) == list(range(20))


def test_a_copy_that_is_accepted_twice_awaits_both_lost_states(new_site: NewSite, tmp_path: Path, table: str) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=40)
        group_id = site.new_group(**{"share.exactly.once.enable": "true", "share.exactly.once.sinks": table})
        site.until(lambda: site.folded(group_id), "the group is there")
    for copy in ("older", "again"):
        shutil.copytree(site.state_path, tmp_path / copy)
    with site.running():
        write_some(site, group_id, topic, table)
    with accepted(site, tmp_path / "older"):
        assert takeover(site, group_id).run() is not None
        assert write_some(site, group_id, topic, table) == list(range(10, 20))
    with accepted(site, tmp_path / "again"):
        # Of the first copy's state only the log of announcements knows.
        done = takeover(site, group_id).run()
        assert done is not None
        assert [(sink.id_count, sink.write_count) for sink in done.sinks] == [(2_000, 2)]
        assert write_some(site, group_id, topic, table) == list(range(20, 30))
    assert written(table) == list(range(30))


def test_groups_that_do_not_write_exactly_once_go_on_at_once(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    with site.running():
        topic = site.new_topic(record_count=10)
        group_id = site.new_group()
    shutil.copytree(site.state_path, tmp_path / "older")
    with site.running(), site.consumer(group_id, topic) as consumer:
        site.poll(consumer, 10)
    with accepted(site, tmp_path / "older"), site.consumer(group_id, topic) as consumer:
        assert len(site.poll(consumer, 10)) == 10
        assert takeover(site, group_id).run() is None
