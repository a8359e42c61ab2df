"""Writes, results and acknowledgements for the tests of sinks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.spark.sink.spark_sink import SparkSink

ACCEPT, REJECT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE
RECORDS = 10
"""Offsets of each acquisition."""

_versions = itertools.count(100)


def write_of(sink: SparkSink, version: int | None = None, slot: int = 0) -> HeldWrite:
    """A write of an acquisition of ten records, as a fetch that is sent now would get it."""
    table = sink.sink
    return HeldWrite(
        app_id=f"sharegroup/s/g/{table.table_id}/{slot}",
        version=next(_versions) if version is None else version,
        table_id=table.table_id,
        address=table.address,
        sink_version=table.version,
        record_count=RECORDS,
    )


def rows(spark: SparkSession, *values: int, key: str = "a") -> DataFrame:
    return spark.createDataFrame([(key, value) for value in values], "key string, value bigint")


def acks(kind: AcknowledgeType, first: int, last: int) -> list[Acknowledgement]:
    return [Acknowledgement("t", 0, first, last, kind)]


ALL_ACCEPTED = acks(ACCEPT, 0, RECORDS - 1)


def values(spark: SparkSession, path: str) -> list[int]:
    return sorted(row.value for row in spark.sql(f"SELECT value FROM delta.`{path}`").collect())


Outcome = tuple[AcknowledgeType | None, bool, list[tuple[int, int, str]]]
"""Type of all other records, whether the write is closed; first and last offset and type of those that are named."""


def outcome(resolved: ResolveWriteRequest) -> Outcome:
    assert len(resolved.partitions) < 2
    return resolved.others, resolved.is_closed, list(_named(resolved))


def _named(resolved: ResolveWriteRequest) -> Iterable[tuple[int, int, str]]:
    for partition in resolved.partitions:
        for named in partition.ranges:
            yield named.first_offset, named.last_offset, named.acknowledge_type.name


WRITTEN: Outcome = (ACCEPT, True, [])
NOT_WRITTEN: Outcome = (None, True, [])
