"""Rows in buckets on the disk: each bucket has its rows in their order, however many buckets there are."""

from __future__ import annotations

import resource
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from sharegroup.errors import TemporaryFilesError
from sharegroup.state.spilled_rows import SpilledRows


def spilled(folder: Path, bucket_count: int, most_buffered_bytes: int) -> SpilledRows:
    return SpilledRows(folder, "rows", bucket_count, lambda rows: rows["bucket"].combine_chunks(), most_buffered_bytes)


def piece(buckets: list[int], first: int) -> pa.Table:
    return pa.table({"bucket": pa.array(buckets, pa.int64()), "number": range(first, first + len(buckets))})


@pytest.mark.parametrize("bucket_count", [1, 2, 63, 64, 65, 200, 1_024])
@pytest.mark.parametrize("most_buffered_bytes", [0, 2_000, 1 << 30], ids=["on the disk", "on both", "in memory"])
def test_each_bucket_has_its_rows_in_their_order(bucket_count: int, most_buffered_bytes: int, tmp_path: Path) -> None:
    chance = Random(bucket_count)
    rows = spilled(tmp_path, bucket_count, most_buffered_bytes)
    expected: dict[int, list[int]] = {}
    for first in range(0, 1_000, 50):
        buckets = [chance.randrange(bucket_count) for _ in range(50)]
        for number, bucket in enumerate(buckets, first):
            expected.setdefault(bucket, []).append(number)
        rows.add(piece(buckets, first))
    taken = {bucket: rows.take(bucket) for bucket in range(bucket_count)}
    assert {bucket: of.column("number").to_pylist() for bucket, of in taken.items() if of is not None} == expected
    sizes = [rows.size_bytes(bucket) for bucket in range(bucket_count)]
    assert all((size > 0) == (bucket in expected) for bucket, size in enumerate(sizes))


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = spilled(tmp_path, 2, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(TemporaryFilesError, match="TMPDIR"):
            rows.add(piece([0, 1] * 1_000, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
