"""The stream reader of a share group on a real broker, called as Spark calls it. No Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from sharegroup.core.record_state import Cause
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord
from sharegroup.spark.features import ReadMaxRows
from sharegroup.spark.source.query_options import source_options
from sharegroup.spark.source.stream_reader import ShareGroupStreamReader
from sharegroup.state.reader import StateTableReader
from tests.client.processor_peer import REQUESTS, RESPONSES, ProcessorPeer
from tests.kafka.conftest import Begin, new_group
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker
from tests.support.wall_clock import shift_wall_clock


@pytest.fixture
def table(log: KafkaLog, tmp_path: Path) -> Iterator[StateTableReader]:
    """The state table of a processor that runs."""
    path = str(tmp_path / "state")
    with ProcessorPeer(log, table_path=path):
        yield StateTableReader(path)
    for topic in (REQUESTS, RESPONSES):
        log.delete_topic(topic)


def offsets(table: StateTableReader, group_id: str, cause: Cause) -> list[int]:
    entries = [e for row in table.rows(None, group_id) for e in row.transitions if e.cause == cause]
    return sorted(offset for e in entries for offset in range(e.first_offset, e.last_offset + 1))


def test_a_batch_of_a_topic_with_transactions(
    broker: KafkaBroker, log: KafkaLog, table: StateTableReader, events: str, begin: Begin
) -> None:
    group = new_group(log, share_isolation_level="read_committed")
    begin(events, ["a", "b"]).abort_transaction(30)  # offsets 0 and 1, marker at 2
    eventually(lambda: log.offsets(events)[0].last_stable_offset == 3, "the transaction is over")
    log.append(events, 0, [NewRecord(b"k", b"c", (("h", b"x"),)), NewRecord(None, b"d")])
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "subscribe": events,
        "share.acknowledgement.mode": "explicit",
    }
    reader = ShareGroupStreamReader(source_options(CaseInsensitiveDict(options)))
    start = reader.initialOffset()
    ends = [start]

    def has_batch() -> bool:
        ends[0] = json.loads(json.dumps(reader.latestOffset(start, ReadMaxRows(10))))
        number: int = ends[0]["number"]
        return number == 1

    eventually(has_batch, "a batch")
    (end,) = ends
    rows = [row for task in reader.partitions(start, end) for b in reader.read(task) for row in b.to_pylist()]
    assert [(row["offset"], row["key"], row["value"], row["timestampType"]) for row in rows] == [
        (3, b"k", b"c", 0),
        (4, None, b"d", 0),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"x"}]
    acknowledgements = [[events, 0, 3, 3, "accept"], [events, 0, 4, 4, "reject"]]
    (Path(end["acknowledgement_folder"]) / "000000.json").write_text(json.dumps(acknowledgements))
    assert reader.latestOffset(end, ReadMaxRows(10)) == end
    eventually(lambda: offsets(table, group, Cause.REJECT) == [4], "the acknowledgements take effect")
    reader.stop()
    assert offsets(table, group, Cause.ACCEPT) == [3]
    assert offsets(table, group, Cause.GAP) == [0, 1, 2]
    assert offsets(table, group, Cause.RELEASE) == []


@pytest.mark.parametrize("ahead_ms", [16_000, -3_600_000])
def test_a_query_whose_clock_is_wrong_gets_its_records(
    broker: KafkaBroker,
    log: KafkaLog,
    table: StateTableReader,
    events: str,
    ahead_ms: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = new_group(log, share_record_lock_duration_ms="15000")
    log.append(events, 0, [NewRecord(None, b"a")])
    shift_wall_clock(monkeypatch, ahead_ms)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "group.id": group, "subscribe": events}
    reader = ShareGroupStreamReader(source_options(CaseInsensitiveDict(options)))
    start = reader.initialOffset()

    def batch() -> dict[str, object] | None:
        end: dict[str, object] = json.loads(json.dumps(reader.latestOffset(start, ReadMaxRows(10))))
        return end if end["number"] == 1 else None

    end = eventually(batch, "a batch")
    assert [r["value"] for t in reader.partitions(start, end) for b in reader.read(t) for r in b.to_pylist()] == [b"a"]
    assert reader.latestOffset(end, ReadMaxRows(10)) == end
    eventually(lambda: offsets(table, group, Cause.ACCEPT) == [0], "the acknowledgement takes effect")
    reader.stop()
