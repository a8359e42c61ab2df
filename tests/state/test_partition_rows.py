"""The rows of share-partitions come in fold order, however they are divided over temporary files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from random import Random

import pyarrow as pa
import pytest

from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state import partition_rows
from sharegroup.state.fold import fold_order
from sharegroup.state.partition_rows import rows_by_partition
from sharegroup.state.schema import partition_key, rows_to_table

_ROWS_PER_PIECE = 7


def shuffled_rows() -> list[StateRow]:
    """Rows of two groups, of which one share-partition has most, of their coordinators, and of one table snapshot."""
    rows = [
        StateRow(
            record_type=kind,
            group_id=group_id,
            topic_id="orders-id" if partition >= 0 else "",
            partition=partition,
            request_partition=len(group_id) % 2,
            request_offset=offset // 2,
            commit_id=offset,
            state_epoch=offset // 50,
            time_ms=offset,
        )
        for group_id, partition, count in (("packers", 0, 200), ("packers", 1, 9), ("labels", 0, 3), ("labels", -1, 8))
        for offset in range(count)
        for kind in (RecordType.SHARE_UPDATE, *([RecordType.TABLE_SNAPSHOT] if offset == 40 else []))
    ]
    Random(7).shuffle(rows)
    return rows


@pytest.mark.parametrize(
    ("file_bytes", "bucket_bytes"),
    [(1 << 30, 1 << 30), (100, 1 << 30), (100, 5_000), (100, 1)],
    ids=["in memory", "in buckets", "in parts of buckets", "in as many parts as there may be"],
)
def test_rows_are_in_fold_order(file_bytes: int, bucket_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_rows, "_FILE_BYTES_PER_BUCKET", file_bytes)
    monkeypatch.setattr(partition_rows, "_BUCKET_BYTES", bucket_bytes)
    monkeypatch.setattr(partition_rows, "_BUFFERED_BYTES", 1)
    monkeypatch.setattr(partition_rows, "_MOST_BUCKETS", 16)
    rows = shuffled_rows()
    pieces = [rows_to_table(rows[start : start + _ROWS_PER_PIECE]) for start in range(0, len(rows), _ROWS_PER_PIECE)]
    divided = {}
    for of_one in rows_by_partition(pieces, 1_000):
        listed = list(of_one)
        divided[partition_key(listed[0])] = [fold_order(row) for row in listed]
    expected = sorted(
        (row for row in rows if row.partition >= 0), key=lambda row: (partition_key(row), fold_order(row))
    )
    assert divided == {key: [fold_order(row) for row in of_one] for key, of_one in groupby(expected, partition_key)}


def test_the_rows_of_many_share_partitions_are_not_in_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a few, so that none of them fills a buffer; data files are compressed by more than was expected."""
    monkeypatch.setattr(partition_rows, "_BUCKET_BYTES", 200_000)
    monkeypatch.setattr(partition_rows, "_BUFFERED_BYTES", 100_000)
    before_bytes = highest_bytes = pa.total_allocated_bytes()

    def pieces() -> Iterator[pa.Table]:
        for offset in range(20):
            of_all = [
                StateRow(
                    record_type=RecordType.SHARE_UPDATE,
                    group_id="packers",
                    topic_id="orders-id",
                    partition=partition,
                    request_offset=offset,
                    payload={"reason": "r" * 500},
                )
                for partition in range(400)
            ]
            yield rows_to_table(of_all)

    count = 0
    for of_one in rows_by_partition(pieces(), 3_000_000):
        count += sum(1 for _ in of_one)
        highest_bytes = max(highest_bytes, pa.total_allocated_bytes())
    assert count == 8_000
    assert highest_bytes - before_bytes < 2_000_000
