"""Transactions of a share consumer with a sink: each result is in the table once, and accepted only if it is there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType

from sharegroup.client.admin import AdminClient
from sharegroup.client.kafka_exceptions import IllegalStateException, KafkaException
from sharegroup.client.message import Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.client.write_decisions import open_writes
from sharegroup.errors import SinkError, WriteFencedError
from sharegroup.logs.local import LocalLog
from tests.client.consumers import Callback, Consume, got, member_of
from tests.client.processor_peer import ProcessorPeer
from tests.client.written_tables import folded, results, written
from tests.support.eventually import DEADLINE_S, eventually

RECORDS = 120


def write_rest(consumer: ShareConsumer, table: str) -> None:
    """Write the results of what is left, until the table has all."""

    def all_are_there() -> bool:
        if messages := consumer.poll(0.2):
            with suppress(WriteFencedError), consumer.transaction() as write:
                write.append(results(messages))
        return len(set(written(table))) == RECORDS

    eventually(all_are_there, "all records are in the table")


def test_results_are_in_the_table_once(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)
    with consumer.transaction() as write:
        write.append(results(messages))
    assert written(table) == list(range(10))
    consumer.close()
    # What was accepted does not come again.
    again = consume_into()
    assert got(again.poll(DEADLINE_S)) == "10-19:d1"
    again.close()
    write_rest(last := consume_into(), table)
    last.close()
    assert written(table) == list(range(RECORDS))


def test_the_callback_gets_what_the_table_has_confirmed(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    callback = Callback()
    consumer = consume_into(share_acknowledgement_mode="explicit")
    consumer.set_acknowledgement_commit_callback(callback)
    with consumer.transaction() as write:
        messages = consumer.poll(DEADLINE_S)
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType.REJECT if message.offset() == 3 else AcknowledgeType.ACCEPT)
        write.append(results(Messages(each for each in messages if each.offset() != 3)))
    consumer.close()
    assert sorted(offset for offsets in callback.offsets for offset in offsets) == list(range(10))
    assert {exception for _, exception in callback.reports} == {None}


def test_several_polls_are_one_commit(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into()
    with consumer.transaction() as write:
        for _ in range(4):
            write.append(results(consumer.poll(DEADLINE_S)))
    assert written(table) == list(range(40))
    assert DeltaTable(table).version() == 1


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"value": ["a"], "offset": pa.array([1], pa.int32())}),
        pa.record_batch({"offset": [1], "value": ["a"]}),
        pd.DataFrame({"offset": [1], "value": ["a"]}),
        {"offset": 1, "value": "a"},
        [{"offset": 1, "value": "a"}],
    ],
    ids=["table", "batch", "pandas", "dict", "dicts"],
)
def test_rows_have_many_forms(consume_into: Callable[..., ShareConsumer], table: str, rows: object) -> None:
    consumer = consume_into()
    consumer.poll(DEADLINE_S)
    with consumer.transaction() as write:
        write.append(rows)
        write.append({"offset": 2})
    rows_written = DeltaTable(table).to_pyarrow_table().sort_by("offset").to_pylist()
    assert rows_written == [{"offset": 1, "value": "a"}, {"offset": 2, "value": None}]


def test_columns_that_no_row_has_are_null(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into()
    consumer.poll(DEADLINE_S)
    with consumer.transaction() as write:
        write.append({"offset": 1})
    assert DeltaTable(table).to_pyarrow_table().to_pylist() == [{"offset": 1, "value": None}]


def test_columns_that_were_added_since_are_null(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)
    with consumer.transaction() as write:
        write.append(results(messages))
        DeltaTable(table).alter.add_columns([Field("later", PrimitiveType("long"))])
    rows_written = DeltaTable(table).to_pyarrow_table().sort_by("offset").to_pylist()
    assert rows_written[1] == {"offset": 1, "value": "v1", "later": None}
    assert len(rows_written) == 10


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        ({"other": 1}, ValueError, "'other' is not in the sink; it has offset, value"),
        (pa.table({"other": [1]}), ValueError, "'other' is not in the sink"),
        ({"offset": "x"}, ValueError, "offset"),
        (pa.table({"offset": ["x"]}), ValueError, "'offset' is string, and int64 in the sink"),
        ("text", TypeError, "not str"),
        ([1], TypeError, "a row must be a dict, not int"),
    ],
)
def test_rows_that_do_not_fit_write_nothing(
    consume_into: Callable[..., ShareConsumer], table: str, rows: object, error: type[Exception], text: str
) -> None:
    consumer = consume_into()
    consumer.poll(DEADLINE_S)
    with pytest.raises(error, match=text), consumer.transaction() as write:
        write.append(rows)
    assert written(table) == []


def test_an_exception_writes_nothing_and_releases(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)
    with pytest.raises(ZeroDivisionError), consumer.transaction() as write:
        write.append([{"offset": len(messages) // 0}])
    assert written(table) == []
    assert DeltaTable(table).version() == 0
    consumer.close()
    assert got(consume_into().poll(DEADLINE_S)) == "0-9:d2"


def test_the_application_acknowledges_in_explicit_mode(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into(share_acknowledgement_mode="explicit")
    messages = consumer.poll(DEADLINE_S)
    kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE]
    not_acknowledged = "10 records of the transaction have not been acknowledged"
    with pytest.raises(IllegalStateException, match=not_acknowledged), consumer.transaction():
        pass
    consumer.close()
    consumer = consume_into(share_acknowledgement_mode="explicit")
    messages = consumer.poll(DEADLINE_S)
    assert got(messages) == "0-9:d2"
    with consumer.transaction() as write:
        for message in messages:
            consumer.acknowledge(message, kinds[(message.offset() or 0) % 3])
        write.append(results(Messages(each for each in messages if (each.offset() or 0) % 3 == 0)))
    assert written(table) == [0, 3, 6, 9]
    consumer.close()
    other = consume_into(max_poll_records=500)
    released = [each for each in other.poll(DEADLINE_S) if (each.offset() or 0) < 10]
    assert [(each.offset(), each.delivery_count()) for each in released] == [(2, 3), (5, 3), (8, 3)]


def test_a_fenced_transaction_is_refused_and_its_records_come_again(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str
) -> None:
    AdminClient(log).alter_group_config("g", {"share.record.lock.duration.ms": "1000"})
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)
    # Another member finds the write in doubt once its locks have ended, and fences it.
    other = consume_into()
    eventually(lambda: other.poll(0.2) and DeltaTable(table).version() > 0, "the write is fenced")
    with pytest.raises(WriteFencedError, match="fenced"), consumer.transaction() as write:
        write.append(results(messages))
    assert written(table) == []
    other.close()
    write_rest(consumer, table)
    assert len(written(table)) == len(set(written(table)))


class TestGroups:
    def test_a_new_group_of_a_member_with_a_sink_writes_exactly_once(
        self, log_path: Path, processor: ProcessorPeer, log: LocalLog, table: str
    ) -> None:
        log.create_topic("t", 1, {})
        with ShareConsumer({"group.id": "new", "log.path": str(log_path), "sink": table}) as consumer:
            consumer.subscribe(["t"])
            eventually(lambda: member_of(consumer).standing().is_stable, "the consumer has joined")
            config = AdminClient(log).describe_configs(["new"])["new"]
            assert isinstance(config, dict)
            assert config["share.exactly.once.enable"].value == "true"

    def test_in_an_existing_group_it_is_refused_with_the_command(self, consume: Consume, table: str) -> None:
        with consume("cl-1") as other:
            other.poll(DEADLINE_S)
            command = "sharegroup groups configure --group g --alter --add-config share.exactly.once.enable=true"
            consumer = consume("cl-1", sink=table)
            with pytest.raises(KafkaException, match=command):
                consumer.poll(DEADLINE_S)

    def test_a_member_without_a_sink_is_refused(
        self, consume_into: Callable[..., ShareConsumer], consume: Consume
    ) -> None:
        consume_into().poll(DEADLINE_S)
        other = consume("cl-1")
        with pytest.raises(KafkaException, match="The member has no sink") as refused:
            other.poll(DEADLINE_S)
        assert refused.value.args[0].code() == 42


class TestMisuse:
    def test_a_consumer_without_a_sink_has_no_transactions(self, consume: Consume) -> None:
        with pytest.raises(IllegalStateException, match="set `sink`"), consume("cl-1").transaction():
            pass

    def test_commits_are_those_of_transactions(self, consume_into: Callable[..., ShareConsumer]) -> None:
        consumer = consume_into()
        for commit in (consumer.commit_sync, consumer.commit_async):
            with pytest.raises(IllegalStateException, match="use transaction"):
                commit()

    def test_rows_need_records(self, consume_into: Callable[..., ShareConsumer], table: str) -> None:
        consumer = consume_into()
        with consumer.transaction():
            pass
        with (
            pytest.raises(IllegalStateException, match="no poll has returned records"),
            consumer.transaction() as write,
        ):
            write.append({"offset": 1})
        assert DeltaTable(table).version() == 0

    def test_one_transaction_at_a_time(self, consume_into: Callable[..., ShareConsumer], table: str) -> None:
        consumer = consume_into()
        messages = consumer.poll(DEADLINE_S)
        with consumer.transaction() as write:
            with pytest.raises(IllegalStateException, match="open already"), consumer.transaction():
                pass
            write.append(results(messages))
        assert written(table) == list(range(10))

    @pytest.mark.parametrize(
        ("keys", "error", "text"),
        [
            ({"sink": "/nothing/there"}, SinkError, "cannot be made"),
            ({"sink": "s3://bucket"}, KafkaException, "has the form s3://bucket/path"),
            ({"sink": "/t", "sink.storage.aws_region": "eu-1"}, ValueError, "sink is on a local disk"),
            ({"sink.storage.aws_region": "eu-1"}, ValueError, "sink is not set"),
        ],
    )
    def test_a_sink_that_cannot_be_one_is_refused(
        self, log_path: Path, log: LocalLog, keys: dict[str, object], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            ShareConsumer({"group.id": "g", "log.path": str(log_path), **keys})

    def test_what_is_no_table_is_refused(self, log_path: Path, log: LocalLog, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match="is no Delta table"):
            ShareConsumer({"group.id": "g", "log.path": str(log_path), "sink": str(tmp_path / "nothing")})


def test_records_to_be_renewed_stay_with_the_application(
    consume_into: Callable[..., ShareConsumer], table: str
) -> None:
    consumer = consume_into(share_acknowledgement_mode="explicit", share_acquire_mode="record_limit")
    with consumer.transaction() as write:
        messages = consumer.poll(DEADLINE_S)
        for message in messages:
            kind = AcknowledgeType.RENEW if message.offset() == 4 else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
        write.append([row for row in results(messages) if row["offset"] != 4])
    assert written(table) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert not consumer.poll(DEADLINE_S)
    with consumer.transaction() as write:
        messages = consumer.poll(DEADLINE_S)
        assert got(messages) == "4-4:d1"
        consumer.acknowledge(messages[0])
        write.append(results(messages))
    assert written(table) == list(range(10))
    consumer.close()
    assert got(consume_into().poll(DEADLINE_S)) == "10-19:d1"


def test_acknowledgements_that_do_not_fit_into_a_commit_get_into_more_of_them(
    consume: Consume, log: LocalLog, produce: Callable[[str, int], None], table: str
) -> None:
    count = 4_000
    produce("cl-2", count)
    AdminClient(log).alter_group_config("g", {"share.exactly.once.enable": "true"})
    consumer = consume("cl-2", mode="explicit", sink=table, max_poll_records=count)
    with consumer.transaction() as write:
        messages = consumer.poll(DEADLINE_S)
        assert len(messages) == count
        for message in messages:
            is_odd = (message.offset() or 0) % 2
            consumer.acknowledge(message, AcknowledgeType.REJECT if is_odd else AcknowledgeType.ACCEPT)
        write.append([row for row in results(messages) if int(str(row["offset"])) % 2 == 0])
    assert written(table) == list(range(0, count, 2))
    assert DeltaTable(table).version() == 2
    consumer.close()
    (partition,) = folded(log).partitions.values()
    assert partition.share_partition.start_offset == count
    assert not open_writes(folded(log))


def test_a_commit_whose_outcome_is_unknown_is_looked_up(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)
    commits = iter([True, False])

    def failing(*arguments: Any, **keywords: Any) -> None:
        if next(commits, False):
            # The first attempt gets into the table, and its response is lost.
            write_deltalake(*arguments, **keywords)
        raise OSError("the store is away")

    monkeypatch.setattr("sharegroup.client.delta_sink.write_deltalake", failing)
    with pytest.raises(SinkError, match="the store is away"), consumer.transaction() as write:
        write.append(results(messages))
    others = consumer.poll(DEADLINE_S)
    with pytest.raises(SinkError, match="the store is away"), consumer.transaction() as write:
        write.append(results(others))
    monkeypatch.undo()
    write_rest(consumer, table)
    assert written(table) == list(range(RECORDS))
    consumer.close()
    eventually(lambda: not open_writes(folded(log)), "no write is open")


def test_close_looks_up_what_it_has_begun(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)

    def failing(*arguments: Any, **keywords: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr("sharegroup.client.delta_sink.write_deltalake", failing)
    with pytest.raises(SinkError), consumer.transaction() as write:
        write.append(results(messages))
    consumer.close()
    assert not open_writes(folded(log))
    monkeypatch.undo()
    # A sink that is away uses no delivery up.
    assert got(consume_into().poll(DEADLINE_S)) == "0-9:d1"


def test_columns_that_others_add_are_null(consume_into: Callable[..., ShareConsumer], table: str) -> None:
    consumer = consume_into()
    for name in ("first", "second"):
        messages = consumer.poll(DEADLINE_S)
        # The change of the columns refuses the commit that follows it.
        with suppress(WriteFencedError), consumer.transaction() as write:
            write.append(results(messages))
        DeltaTable(table).alter.add_columns([Field(name, PrimitiveType("string"), nullable=True)])
    write_rest(consumer, table)
    rows = DeltaTable(table).to_pyarrow_table()
    assert written(table) == list(range(RECORDS))
    assert rows["first"].null_count == rows["second"].null_count == RECORDS


def test_a_commit_that_fails_for_its_rows_counts_as_a_delivery(
    consume_into: Callable[..., ShareConsumer], log: LocalLog, table: str
) -> None:
    DeltaTable(table).alter.add_constraint({"few": "offset < 5"})
    consumer = consume_into()
    messages = consumer.poll(DEADLINE_S)
    with pytest.raises(SinkError, match="failed validation"), consumer.transaction() as write:
        write.append(results(messages))
    consumer.close()
    assert not open_writes(folded(log))
    assert got(consume_into().poll(DEADLINE_S)) == "0-9:d2"
