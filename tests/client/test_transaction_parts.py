"""Transactions of a share consumer beyond one acquisition of one member: pieces, other tables, and the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.client.admin import AdminClient
from sharegroup.client.kafka_exceptions import KafkaException
from sharegroup.client.message import Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.client.sink_commits import CLOSING_PART, commits_of
from sharegroup.client.write_decisions import open_writes
from sharegroup.logs.local import LocalLog
from tests.client.consumers import fetches_ahead, got
from tests.client.written_tables import SCHEMA, folded, results, written
from tests.support.eventually import DEADLINE_S, eventually

Parts = dict[int, list[tuple[int, int | None]]]


def parts_of(table: str) -> Parts:
    """Version of a write → its parts in the table, each with the part before."""
    parts: Parts = {}
    for version in range(1, DeltaTable(table).version() + 1):
        lines = (Path(table) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        for commit in commits_of(lines, version):
            metadata = commit.metadata
            parts.setdefault(metadata.version, []).append((metadata.part, metadata.after))
    return parts


def test_an_acquisition_in_several_transactions_has_a_part_for_each(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str
) -> None:
    consumer = consume_into(share_acknowledgement_mode="explicit", share_acquire_mode="record_limit")
    for kept in (7, 3, 0):
        messages = consumer.poll(DEADLINE_S)
        with consumer.transaction() as write:
            for message in messages[:kept]:
                consumer.acknowledge(message, AcknowledgeType.RENEW)
            for message in messages[kept:]:
                consumer.acknowledge(message)
            write.append(results(Messages(messages[kept:])))
        # A poll that sends renewals returns nothing.
        assert not kept or not consumer.poll(DEADLINE_S)
    consumer.close()
    assert written(table) == list(range(10))
    assert list(parts_of(table).values()) == [[(0, None), (1, 0), (CLOSING_PART, 1)]]
    assert not open_writes(folded(log))
    (partition,) = folded(log).partitions.values()
    assert partition.share_partition.start_offset == 10


def test_close_releases_what_polls_returned_and_returns_the_rest_unread(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str
) -> None:
    consumer = consume_into()
    with consumer.transaction() as write:
        write.append(results(consumer.poll(DEADLINE_S)))
    # Of a further acquisition the application has nothing, or the first ten records.
    assert fetches_ahead(consumer)
    messages = consumer.poll(DEADLINE_S)
    assert got(messages) == "10-19:d1"
    consumer.close()
    assert written(table) == list(range(10))
    again = consume_into(max_poll_records=500)
    counts: dict[int, int] = {}

    def all_have_come() -> bool:
        counts.update((m.offset() or 0, m.delivery_count() or 0) for m in again.poll(0.2))
        return len(counts) == 110

    eventually(all_have_come, "all others are delivered")
    assert {offset for offset, count in counts.items() if count == 2} == set(range(10, 20))
    assert {count for offset, count in counts.items() if offset >= 20} == {1}


def test_members_of_one_group_have_different_sinks(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str, tmp_path: Path
) -> None:
    other_table = str(tmp_path / "others")
    write_deltalake(other_table, SCHEMA.empty_table())
    first, second = consume_into(), consume_into(sink=other_table)
    with first.transaction() as write:
        write.append(results(first.poll(DEADLINE_S)))
    messages = eventually(lambda: second.poll(0.2), "the other member gets records")
    with second.transaction() as write:
        write.append(results(messages))
    polled = first.poll(DEADLINE_S)
    begun = {each.write.address for each in open_writes(folded(log))}
    assert table in begun
    with first.transaction() as write:
        write.append(results(polled))
    first.close()
    second.close()
    assert not set(written(table)) & set(written(other_table))
    assert len(written(table)) == 20
    assert len(written(other_table)) == 10
    assert not set(parts_of(table)) & set(parts_of(other_table))


def test_members_resolve_open_writes_after_the_group_is_switched_off(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str
) -> None:
    admin = AdminClient(log)
    admin.alter_group_config("g", {"share.record.lock.duration.ms": "1000"})
    first, second = consume_into(), consume_into(fetch_max_wait_ms=300)
    first.poll(DEADLINE_S)
    eventually(lambda: second.poll(0.2), "the other member gets records")
    with second.transaction():
        pass
    admin.alter_group_config("g", {"share.exactly.once.enable": "false"})
    with pytest.raises(KafkaException, match=r"share\.exactly\.once\.enable of group g is false"):
        eventually(lambda: consume_into().poll(DEADLINE_S), "a new member is refused")
    assert open_writes(folded(log)), "the write of the first member is open"

    refusals: list[str] = []

    def is_refused() -> bool:
        try:
            if second.poll(0.2):
                with second.transaction():
                    pass
        except KafkaException as error:
            refusals.append(str(error))
        return bool(refusals)

    # As soon as nothing is open.
    eventually(is_refused, "the other member has resolved it, and is refused")
    assert "share.exactly.once.enable of group g is false" in refusals[0]
    assert not open_writes(folded(log))
