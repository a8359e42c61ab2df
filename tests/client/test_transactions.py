"""Transactions of a share consumer with a sink: each result is in the table once, and accepted only if it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.client.admin import AdminClient
from sharegroup.client.kafka_exceptions import IllegalStateException
from sharegroup.client.message import Messages
from sharegroup.client.share_consumer import AcknowledgeType, ShareConsumer
from sharegroup.errors import WriteFencedError
from sharegroup.logs.local import LocalLog
from tests.client.consumers import Consume, got
from tests.support.eventually import DEADLINE_S, eventually

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.string())])
RECORDS = 120


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "results")
    write_deltalake(path, SCHEMA.empty_table())
    return path


@pytest.fixture
def consume_into(consume: Consume, log: LocalLog, table: str) -> Callable[..., ShareConsumer]:
    """Makes consumers of cl-1 with the table as their sink."""
    AdminClient(log).alter_group_config("g", {"share.exactly.once.enable": "true"})

    def made(**keys: object) -> ShareConsumer:
        return consume("cl-1", sink=table, **keys)

    return made


def results(messages: Messages) -> list[dict[str, object]]:
    return [{"offset": each.offset(), "value": f"v{each.offset()}"} for each in messages]


def written(table: str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["offset"].to_pylist())


def write_rest(consumer: ShareConsumer, table: str) -> None:
    """Write the results of what is left, until the table has all."""

    def all_are_there() -> bool:
        if messages := consumer.poll(0.2):
            with consumer.transaction() as write:
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
