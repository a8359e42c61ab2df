"""Rows that are divided over files on the disk, so that those of one bucket fit into memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.errors import TemporaryFilesError

_MOST_BUFFERED_BYTES = 96 * 1024 * 1024
_MOST_GROUPS = 1_024
"""Groups into which the rows in memory are divided when they go to the disk: of 96 MiB, each has some 280 rows."""
_MOST_PIECES = 200
"""Pieces that are buffered as they came: each takes some 10 KB beside its rows."""
_FACTOR = 104_729
"""A prime: keys that differ by a few have buckets that differ."""
_MASK = (1 << 40) - 1
_JOINED_BYTES = 1024 * 1024
"""Pieces are joined until they have as many bytes: the arrays of 90 rows take more memory than what is in them."""
_LENGTH_BYTES = 8
"""Before a piece on the disk: its length before it was compressed."""

BucketOf = Callable[[pa.Table], pa.Array]
"""Returns the bucket of each row, from 0 on."""


@contextmanager
def temporary_files(folder: Path) -> Iterator[None]:
    """Translate the errors of the disk with temporary files.

    Raises:
        TemporaryFilesError: the disk is full or failed.
    """
    try:
        yield
    except OSError as error:
        raise TemporaryFilesError(
            f"Temporary files in {folder} cannot be written or read: {error.strerror or error}.",
            "Free space there, or name a folder on a larger disk by the environment variable TMPDIR.",
        ) from error


class SpilledRows:
    """Rows in buckets; a few of them stay in memory.

    What does not stay is written to a file in pieces, each with rows of one bucket: so a single file is open, however
    many buckets there are. Where there are too many for one division, a piece has a group of neighbouring buckets, and
    a group is divided again when one of its buckets is taken. Take the buckets in their order.

    Args:
        bucket_of: divides the rows.
        most_buffered_bytes: bytes of rows that stay in memory; None is 96 MiB.
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
        self._group_size = -(-bucket_count // _MOST_GROUPS)
        self._most_buffered_bytes = _MOST_BUFFERED_BYTES if most_buffered_bytes is None else most_buffered_bytes
        self._buffered: list[pa.Table] = []
        self._buffered_bytes = 0
        self._piece_count = 0
        """The last pieces in the buffer, which are not joined yet."""
        self._bytes = [0] * bucket_count
        self._divided: tuple[pa.Table, list[int]] | None = None
        """Rows in memory in the order of their buckets, and where each group begins."""
        self._stored = _StoredPieces(folder / f"{name}.pieces")
        self._open_group: tuple[int, SpilledRows] | None = None
        """The group that was divided last."""

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same columns.

        Raises:
            TemporaryFilesError: the disk is full or failed.
        """
        if self._buffered and self._buffered_bytes + rows.nbytes > self._most_buffered_bytes:
            # Before, not after: a long history would reach a higher peak than a short one.
            self._flush()
        if rows.num_rows:
            self._buffered.append(rows)
            self._buffered_bytes += rows.nbytes
            self._piece_count += 1
        if self._piece_count == _MOST_PIECES:
            self._buffered[-_MOST_PIECES:] = [pa.concat_tables(self._buffered[-_MOST_PIECES:]).combine_chunks()]
            self._piece_count = 0
        if self._buffered_bytes > self._most_buffered_bytes:
            self._flush()

    def size_bytes(self, bucket: int) -> int:
        """Return the bytes that the rows of a bucket take in memory, about; no rows are added any more."""
        self._divide()
        return self._bytes[bucket]

    def take(self, bucket: int) -> pa.Table | None:
        """Return the rows of a bucket, None when it has none; no rows are added any more.

        Raises:
            TemporaryFilesError: the disk is full or failed.
        """
        pieces = list(self.taken(bucket))
        return pa.concat_tables(pieces) if pieces else None

    def taken(self, bucket: int) -> Iterator[pa.Table]:
        """Yield the rows of a bucket piece by piece, in the order in which they were added.

        Raises:
            TemporaryFilesError: the disk is full or failed.
        """
        self._divide()
        if self._group_size == 1:
            return self._taken_group(bucket)
        group, bucket_of_group = divmod(bucket, self._group_size)
        return self._divided_group(group).taken(bucket_of_group)

    def _taken_group(self, group: int) -> Iterator[pa.Table]:
        with temporary_files(self._folder):
            yield from self._stored.of_group(group)
        if self._divided is not None:
            rows, begin = self._divided
            if begin[group] < begin[group + 1]:
                yield rows.slice(begin[group], begin[group + 1] - begin[group])

    def _divided_group(self, group: int) -> SpilledRows:
        if self._open_group is not None and self._open_group[0] == group:
            return self._open_group[1]
        self._close_group()
        first = group * self._group_size
        divided = SpilledRows(
            self._folder,
            f"{self._name}-{group}",
            self._group_size,
            lambda rows: pc.subtract(self._bucket_of(rows), first),
            self._most_buffered_bytes,
        )
        for piece in self._taken_group(group):
            divided.add(piece)
        self._open_group = group, divided
        return divided

    def close(self) -> None:
        """Remove the file, and free the memory; no rows are taken any more.

        Raises:
            TemporaryFilesError: the disk failed.
        """
        self._close_group()
        self._buffered, self._divided = [], None
        with temporary_files(self._folder):
            self._stored.close()

    def _close_group(self) -> None:
        if self._open_group is not None:
            self._open_group[1].close()
            self._open_group = None

    def _divide(self) -> None:
        if self._buffered and self._stored.is_used:
            # Many rows: those that are left would only take memory while the others are checked.
            self._flush()
        elif self._buffered:
            self._divided = self._in_groups()

    def _flush(self) -> None:
        rows, begin = self._in_groups()
        with temporary_files(self._folder):
            self._stored.append(rows, begin)
        del rows
        # Arrow keeps what was freed for its next arrays, beside what others need until then.
        pa.default_memory_pool().release_unused()

    def _in_groups(self) -> tuple[pa.Table, list[int]]:
        """Take what is buffered, in the order of the buckets, and where each group begins."""
        rows = pa.concat_tables(self._buffered)
        self._buffered, self._buffered_bytes, self._piece_count = [], 0, 0
        counts = [0] * self._bucket_count
        order: pa.Array | None = None
        if self._bucket_count == 1:
            counts[0] = rows.num_rows
        else:
            buckets = self._bucket_of(rows)
            order = pc.array_sort_indices(buckets)
            for counted in pc.value_counts(buckets).to_pylist():
                counts[counted["values"]] = counted["counts"]
        schema, columns = rows.schema, rows.columns
        # The columns are the only reference now, and free their memory one by one.
        del rows
        rows = pa.Table.from_arrays(_moved(columns, order), schema=schema)
        for bucket, count in enumerate(counts):
            self._bytes[bucket] += count * rows.nbytes // max(rows.num_rows, 1)
        # The last group may have fewer buckets.
        begin = range(0, self._bucket_count, self._group_size)
        return rows, [0, *accumulate(sum(counts[first : first + self._group_size]) for first in begin)]


class _StoredPieces:
    """Pieces of rows in a file, each compressed as a whole: column by column, a few rows cost five times as much.

    Args:
        path: the file, which is created with the first piece.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema: pa.Schema | None = None
        self._positions: list[array[int]] = []
        """Where the piece of each group begins, and where the last one ends; a list for each append."""
        self._codec = pa.Codec("lz4_raw")
        self._reader: pa.OSFile | None = None

    @property
    def is_used(self) -> bool:
        """True if there are pieces."""
        return bool(self._positions)

    def append(self, rows: pa.Table, begin: list[int]) -> None:
        """Append a piece for each group.

        Args:
            rows: rows in the order of their groups, each column in one piece.
            begin: where each group begins, and where the last one ends.
        """
        self._schema = rows.schema
        positions = array("Q")
        (whole,) = rows.to_batches()
        with pa.OSFile(str(self._path), "ab") as file:
            for first, end in pairwise(begin):
                positions.append(file.tell())
                if first < end:
                    piece = whole.slice(first, end - first).serialize()
                    file.write(piece.size.to_bytes(_LENGTH_BYTES, "little"))
                    file.write(self._codec.compress(piece))
            positions.append(file.tell())
        self._positions.append(positions)

    def of_group(self, group: int) -> Iterator[pa.Table]:
        """Yield the rows of a group, in the order in which they were appended; small pieces are joined."""
        if not self.is_used:
            return
        if self._reader is None:
            self._reader = pa.OSFile(str(self._path))
        pieces: list[pa.RecordBatch] = []
        size_bytes = 0
        for positions in self._positions:
            begin, end = positions[group], positions[group + 1]
            if begin < end:
                stored = self._reader.read_at(end - begin, begin)
                length = int.from_bytes(stored[:_LENGTH_BYTES], "little")
                piece = self._codec.decompress(stored[_LENGTH_BYTES:], length)
                pieces.append(pa.ipc.read_record_batch(piece, self._schema))
                size_bytes += length
                if size_bytes >= _JOINED_BYTES:
                    yield _joined(pieces)
                    pieces, size_bytes = [], 0
        if pieces:
            yield _joined(pieces)

    def close(self) -> None:
        """Remove the file."""
        if self._reader is not None:
            self._reader.close()
        self._path.unlink(missing_ok=True)
        self._positions = []


def _joined(pieces: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(pieces)
    return rows if len(pieces) == 1 else rows.combine_chunks()


def by_key(keys: Iterable[str], bucket_count: int) -> BucketOf:
    """Return a division that puts rows with one key into one bucket.

    Args:
        keys: columns of the key: text or whole numbers.
    """
    names = tuple(keys)

    def bucket_of(rows: pa.Table) -> pa.Array:
        number = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for name in names:
            number = pc.add(pc.multiply(number, 31), pc.multiply(_numbers(rows[name]), _FACTOR))
            number = pc.bit_wise_and(number, _MASK)
        return _remainder(pc.add(number, pc.shift_right(number, 17)), bucket_count)

    return bucket_of


def by_number(name: str, bucket_count: int, span: int = 1) -> BucketOf:
    """Return a division that puts rows with one number into one bucket, and those with the next one into the next.

    Args:
        name: the column of the number.
        span: so many numbers in succession count as one.
    """
    return lambda rows: _remainder(pc.divide(pc.abs(_in_one_piece(rows[name])), span), bucket_count)


def _remainder(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


def _moved(columns: list[pa.ChunkedArray], order: pa.Array | None) -> list[pa.Array]:
    """Move columns out of a list, each in one piece and in an order: a single one is in memory twice at a time."""
    moved: list[pa.Array] = []
    columns.reverse()
    while columns:
        column = _in_one_piece(columns.pop())
        moved.append(column if order is None else column.take(order))
    return moved


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _numbers(column: pa.ChunkedArray) -> pa.Array:
    values = _in_one_piece(column)
    if not pa.types.is_string(values.type):
        return pc.cast(values, pa.int64())
    encoded = values.dictionary_encode()
    hashes = pa.array([crc32(text.encode()) for text in encoded.dictionary.to_pylist()], pa.int64())
    return hashes.take(encoded.indices)
