"""Sinks on object stores: writers and lookups at the same time agree, and a consumer needs nothing but the address."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.client.sink_commits import WritePart
from sharegroup.config.table_location import TableLocation
from sharegroup.protocol.sink_writes import UnresolvedWrite
from tests.support.eventually import eventually
from tests.support.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.long("an S3 server and Azurite")]

SCHEMA = pa.schema([("offset", pa.int64())])
RECORDS = 40


@pytest.fixture
def sink_table(table: TableLocation) -> TableLocation:
    write_deltalake(str(table), SCHEMA.empty_table(), storage_options=dict(table.options))
    return table


def written(table: TableLocation) -> list[int]:
    rows = DeltaTable(str(table), storage_options=dict(table.options)).to_pyarrow_table()
    return sorted(rows["offset"].to_pylist())


def test_a_writer_and_a_lookup_at_the_same_time_agree(sink_table: TableLocation) -> None:
    with DeltaSink(sink_table, sink_table.options) as sink, DeltaSink(sink_table, sink_table.options) as other:
        sink.check()
        for version in range(5):
            known = sink.sink
            write = UnresolvedWrite(
                app_id="app/0",
                version=version + 1,
                table_id=known.table_id,
                address=known.address,
                sink_version=known.version,
                opened_ms=time.time_ns() // 1_000_000,
            )
            rows = pa.table({"offset": [version]}, schema=SCHEMA)
            with ThreadPoolExecutor(1) as threads:
                lookup = threads.submit(other.resolve, write)
                is_written = sink.commit([WritePart(write)], rows).is_written
            assert (lookup.result().others is not None) is is_written
            assert (version in written(sink_table)) is is_written


def test_a_consumer_writes_to_a_store(sink_table: TableLocation, tmp_path: Path) -> None:
    site = Site(tmp_path)
    topic = site.new_topic(record_count=RECORDS)
    storage: dict[str, object] = {f"sink.storage.{name}": value for name, value in sink_table.options.items()}
    with site.running():
        group_id = site.new_group(share_exactly_once_enable="true")
        config = {"log.path": str(site.log_path), "group.id": group_id, "sink": str(sink_table), **storage}
        with ShareConsumer(config) as consumer:
            consumer.subscribe([topic])

            def all_are_there() -> bool:
                with consumer.transaction() as write:
                    write.append([{"offset": message.offset()} for message in consumer.poll(0.5)])
                return len(written(sink_table)) >= RECORDS

            eventually(all_are_there, "all results are in the table")
        site.until(lambda: site.is_drained(group_id, topic) or None, "all records are accepted")
    assert written(sink_table) == list(range(RECORDS))
    site.close()
