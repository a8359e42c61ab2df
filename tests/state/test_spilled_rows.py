"""Rows in buckets on the disk: each bucket has its rows in their order, however many buckets there are."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from sharegroup.errors import TemporaryFilesError
from sharegroup.state.spilled_rows import SpilledRows

POOLS: list[pa.MemoryPool] = []
"""Pools of tests: one must be there as long as its arrays, which a failure's traceback holds."""


def spilled(folder: Path, bucket_count: int, most_buffered_bytes: int) -> SpilledRows:
    return SpilledRows(folder, "rows", bucket_count, lambda rows: rows["bucket"].combine_chunks(), most_buffered_bytes)


def piece(buckets: list[int], first: int) -> pa.Table:
    return pa.table({"bucket": pa.array(buckets, pa.int64()), "number": range(first, first + len(buckets))})


def wide_piece(buckets: list[int], first: int) -> pa.Table:
    """Rows with many columns, as those of a state table."""
    texts = [f"{number:08}" for number in buckets]
    columns = {f"text {name}": pa.array(texts) for name in range(8)}
    return pa.table({"bucket": pa.array(buckets, pa.int64()), "number": range(first, first + len(buckets)), **columns})


@pytest.mark.parametrize("bucket_count", [1, 2, 65, 1_024, 1_025, 3_000])
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


class TestMemory:
    BUFFERED = 1 << 20

    @pytest.fixture
    def pool(self) -> Iterator[pa.MemoryPool]:
        """Count what Arrow allocates in one test."""
        usual = pa.default_memory_pool()
        pool = pa.proxy_memory_pool(usual)
        POOLS.append(pool)
        pa.set_memory_pool(pool)
        try:
            yield pool
        finally:
            pa.set_memory_pool(usual)

    def filled(self, folder: Path, bucket_count: int) -> SpilledRows:
        """Add rows for several files, and so many more that the memory for them is nearly full again."""
        rows = spilled(folder, bucket_count, self.BUFFERED)
        for first in range(0, 108_000, 1_000):
            rows.add(wide_piece([number * 7 % bucket_count for number in range(1_000)], first))
        return rows

    def test_rows_are_divided_without_several_copies_of_them(self, pool: pa.MemoryPool, tmp_path: Path) -> None:
        self.filled(tmp_path, 64)
        assert pool.max_memory() < 1.8 * self.BUFFERED

    @pytest.mark.parametrize("bucket_count", [64, 4_096])
    def test_those_on_the_disk_take_none(self, bucket_count: int, pool: pa.MemoryPool, tmp_path: Path) -> None:
        rows = self.filled(tmp_path, bucket_count)
        assert rows.take(0) is not None
        assert pool.bytes_allocated() < self.BUFFERED / 4

    def test_many_small_pieces_take_no_more_than_their_rows(self, pool: pa.MemoryPool, tmp_path: Path) -> None:
        rows = spilled(tmp_path, 64, self.BUFFERED)
        for number in range(5_000):
            rows.add(wide_piece([number % 64], number))
        assert pool.bytes_allocated() < self.BUFFERED

    @pytest.mark.parametrize("bucket_count", [2, 4_096])
    @pytest.mark.parametrize("most_buffered_bytes", [0, 1 << 30], ids=["on the disk", "in memory"])
    def test_nothing_stays_after_all(
        self, most_buffered_bytes: int, bucket_count: int, pool: pa.MemoryPool, tmp_path: Path
    ) -> None:
        rows = spilled(tmp_path, bucket_count, most_buffered_bytes)
        for first in range(0, 10_000, 1_000):
            rows.add(wide_piece([number % bucket_count for number in range(1_000)], first))
        assert rows.take(1) is not None
        rows.close()
        assert (pool.bytes_allocated(), list(tmp_path.iterdir())) == (0, [])


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = spilled(tmp_path, 2, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(TemporaryFilesError, match="TMPDIR"):
            rows.add(piece([0, 1] * 1_000, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
