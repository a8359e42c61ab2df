"""Rows that are divided over files on the disk, so that those of one bucket fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

_MOST_BUFFERED_BYTES = 64 * 1024 * 1024
_FACTOR = 104_729
"""A prime: keys that differ by a few have buckets that differ."""
_MASK = (1 << 40) - 1

BucketOf = Callable[[pa.Table], pa.Array]
"""Returns the bucket of each row, from 0 on."""


class SpilledRows:
    """Rows in buckets; a few of them stay in memory.

    What does not stay is written in files that each have some rows of every bucket: so few files are open, however
    many buckets there are.

    Args:
        folder: the folder for the files.
        name: prefix of their names.
        bucket_count: number of buckets.
        bucket_of: divides the rows.
        most_buffered_bytes: bytes of rows that stay in memory; None is 64 MiB.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        bucket_count: int,
        bucket_of: BucketOf,
        most_buffered_bytes: int | None = None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._bucket_of = bucket_of
        self._bucket_count = bucket_count
        self._most_buffered_bytes = _MOST_BUFFERED_BYTES if most_buffered_bytes is None else most_buffered_bytes
        self._buffered: list[pa.Table] = []
        self._buffered_bytes = 0
        self._bytes = [0] * bucket_count
        self._divided: list[tuple[pa.Table, list[int]]] = []
        """Rows in memory in the order of their buckets, and where each bucket begins."""
        self._files: list[tuple[Path, dict[int, int]]] = []
        """Files, with the position of each bucket in them."""

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same columns.

        Raises:
            OSError: the disk is full or failed.
        """
        if rows.num_rows:
            self._buffered.append(rows)
            self._buffered_bytes += rows.nbytes
        if self._buffered_bytes > self._most_buffered_bytes:
            self._flush()

    def size_bytes(self, bucket: int) -> int:
        """Return the bytes that the rows of a bucket take in memory, about; no rows are added any more."""
        self._divide()
        return self._bytes[bucket]

    def take(self, bucket: int) -> pa.Table | None:
        """Return the rows of a bucket, None when it has none; no rows are added any more.

        Raises:
            OSError: the disk failed.
        """
        pieces = list(self.taken(bucket))
        return pa.concat_tables(pieces) if pieces else None

    def taken(self, bucket: int) -> Iterator[pa.Table]:
        """Yield the rows of a bucket piece by piece, in the order in which they were added.

        Raises:
            OSError: the disk failed.
        """
        self._divide()
        for path, positions in self._files:
            if bucket in positions:
                with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
                    yield pa.Table.from_batches([reader.get_batch(positions[bucket])])
        for rows, begin in self._divided:
            if begin[bucket] < begin[bucket + 1]:
                yield rows.slice(begin[bucket], begin[bucket + 1] - begin[bucket])

    def _divide(self) -> None:
        if self._buffered:
            self._divided.append(self._in_buckets())

    def _flush(self) -> None:
        rows, begin = self._in_buckets()
        path = self._folder / f"{self._name}-{len(self._files)}.arrow"
        filled = [bucket for bucket in range(self._bucket_count) if begin[bucket] < begin[bucket + 1]]
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema, options=options) as writer:
            for bucket in filled:
                (batch,) = rows.slice(begin[bucket], begin[bucket + 1] - begin[bucket]).to_batches()
                writer.write_batch(batch)
        self._files.append((path, {bucket: position for position, bucket in enumerate(filled)}))

    def _in_buckets(self) -> tuple[pa.Table, list[int]]:
        """Take what is buffered, in the order of the buckets, and where each one begins."""
        rows = pa.concat_tables(self._buffered).combine_chunks()
        self._buffered, self._buffered_bytes = [], 0
        if self._bucket_count == 1:
            begin = [0, rows.num_rows]
        else:
            buckets = self._bucket_of(rows)
            rows = rows.take(pc.array_sort_indices(buckets)).combine_chunks()
            counts = dict.fromkeys(range(self._bucket_count), 0)
            counts.update((counted["values"], counted["counts"]) for counted in pc.value_counts(buckets).to_pylist())
            begin = [0, *accumulate(counts.values())]
        for bucket, (first, end) in enumerate(pairwise(begin)):
            self._bytes[bucket] += (end - first) * rows.nbytes // max(rows.num_rows, 1)
        return rows, begin


def by_key(keys: Iterable[str], bucket_count: int) -> BucketOf:
    """Return a division that puts rows with one key into one bucket.

    Args:
        keys: columns of the key: text or whole numbers.
        bucket_count: a power of two.
    """
    names = tuple(keys)

    def bucket_of(rows: pa.Table) -> pa.Array:
        number = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for name in names:
            number = pc.add(pc.multiply(number, 31), pc.multiply(_numbers(rows[name]), _FACTOR))
            number = pc.bit_wise_and(number, _MASK)
        return pc.bit_wise_and(pc.add(number, pc.shift_right(number, 17)), bucket_count - 1)

    return bucket_of


def _numbers(column: pa.ChunkedArray) -> pa.Array:
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_string(values.type):
        return pc.cast(values, pa.int64())
    encoded = values.dictionary_encode()
    hashes = pa.array([crc32(text.encode()) for text in encoded.dictionary.to_pylist()], pa.int64())
    return hashes.take(encoded.indices)
