"""The rows of share-partitions, one share-partition after the other, in memory that does not grow with the history.

1. Rows are divided over buckets on the disk, those of a share-partition into one. A small table stays in memory.
2. A bucket that fits into memory is ordered there.
3. A larger one is divided again, into parts that fit: a part has several share-partitions; or, of a share-partition
   that is too large, the rows with some request offsets, which the fold order begins with. Each part is ordered by
   itself, and those of one share-partition follow each other.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.protocol.rows import StateRow
from sharegroup.state.schema import PARTITION_KEY_COLUMNS, decoded, in_fold_order, partition_key
from sharegroup.state.spilled_rows import BucketOf, SpilledRows, by_key

_BUCKET_BYTES = 16 * 1024 * 1024
"""Bytes of rows that are ordered at once; twice as much is in memory then."""

_FILE_BYTES_PER_BUCKET = 2 * 1024 * 1024
"""The same in data files, which are compressed."""

_BUFFERED_BYTES = 8 * 1024 * 1024
"""Bytes of rows that wait in memory for their file."""

_MOST_BUCKETS = 256
"""Buckets, or parts of a share-partition, at most."""

_SEPARATOR = "\0"

_Key = tuple[str, str, int]


@dataclass(slots=True)
class _Extent:
    """The rows of a share-partition: how many, and their request offsets."""

    row_count: int
    first_offset: int
    last_offset: int


class _KeyParts(NamedTuple):
    """The parts of a share-partition's rows: those with the first `step` request offsets are in the first part."""

    first_part: int
    first_offset: int
    step: int


def rows_by_partition(pieces: Iterable[pa.Table], size_bytes: int) -> Iterator[Iterator[StateRow]]:
    """Yield the rows of each share-partition in fold order; rows of no share-partition are left out.

    Args:
        pieces: the rows, in any order, with `PARTITION_KEY_COLUMNS` and the columns of the fold order.
        size_bytes: size of the data files that they come from, at most.

    Raises:
        TemporaryFilesError: the disk for temporary files is full, or failed.
    """
    count = 1
    while count < _MOST_BUCKETS and count * _FILE_BYTES_PER_BUCKET < size_bytes:
        count *= 2
    with tempfile.TemporaryDirectory(prefix="sharegroup-audit-") as name:
        folder = Path(name)
        buckets = SpilledRows(folder, "rows", count, by_key(PARTITION_KEY_COLUMNS, count), _BUFFERED_BYTES)
        extents: dict[_Key, _Extent] = {}
        for piece in pieces:
            of_partitions = piece.filter(pc.greater_equal(piece["partition"], 0))
            buckets.add(of_partitions)
            if count > 1:
                _note(extents, of_partitions)
        row_count = sum(extent.row_count for extent in extents.values())
        bytes_per_row = sum(map(buckets.size_bytes, range(count))) / max(row_count, 1)
        keys = _keys_by_bucket(extents, count)
        for bucket in range(count):
            if count > 1 and buckets.size_bytes(bucket) > _BUCKET_BYTES:
                yield from _divided(buckets, bucket, {key: extents[key] for key in keys[bucket]}, bytes_per_row, folder)
            elif (rows := buckets.take(bucket)) is not None:
                yield from _ordered_in_memory(rows)


def _ordered_in_memory(rows: pa.Table) -> Iterator[Iterator[StateRow]]:
    yield from (of_one for _, of_one in groupby(decoded(in_fold_order(rows, PARTITION_KEY_COLUMNS)), partition_key))


def _note(extents: dict[_Key, _Extent], rows: pa.Table) -> None:
    """Note the request offsets of each share-partition's rows."""
    keyed = rows.select([*PARTITION_KEY_COLUMNS, "request_offset"])
    of_offset = [("request_offset", name) for name in ("count", "min", "max")]
    of_keys = keyed.group_by(list(PARTITION_KEY_COLUMNS), use_threads=False).aggregate(of_offset)
    for row in of_keys.to_pylist():
        key = tuple(row[name] for name in PARTITION_KEY_COLUMNS)
        count, first, last = (row[f"request_offset_{name}"] for name in ("count", "min", "max"))
        known = extents.get(key)
        if known is None:
            extents[key] = _Extent(count, first, last)
        else:
            known.row_count += count
            known.first_offset, known.last_offset = min(known.first_offset, first), max(known.last_offset, last)


def _keys_by_bucket(extents: Iterable[_Key], bucket_count: int) -> Mapping[int, list[_Key]]:
    """Return the share-partitions whose rows are in each bucket."""
    keys = list(extents)
    by_bucket: dict[int, list[_Key]] = defaultdict(list)
    if keys:
        columns = zip(PARTITION_KEY_COLUMNS, zip(*keys, strict=True), strict=True)
        buckets = by_key(PARTITION_KEY_COLUMNS, bucket_count)(pa.table({name: list(of) for name, of in columns}))
        for key, bucket in zip(keys, buckets.to_pylist(), strict=True):
            by_bucket[bucket].append(key)
    return by_bucket


def _divided(
    buckets: SpilledRows, bucket: int, extents: Mapping[_Key, _Extent], bytes_per_row: float, folder: Path
) -> Iterator[Iterator[StateRow]]:
    """Yield the rows of each share-partition of a bucket that is too large to be ordered at once."""
    units, key_parts = _parts(extents, bytes_per_row)
    parts = SpilledRows(folder, f"{bucket}", units[-1].stop, _part_of(key_parts), _BUFFERED_BYTES)
    for piece in buckets.taken(bucket):
        parts.add(piece)
    for unit in units:
        if len(unit) > 1:
            yield _ordered(parts, unit)
        elif (rows := parts.take(unit.start)) is not None:
            yield from _ordered_in_memory(rows)


def _parts(extents: Mapping[_Key, _Extent], bytes_per_row: float) -> tuple[list[range], dict[_Key, _KeyParts]]:
    """Return the parts of each large share-partition or of several small ones together, and where each one's are."""
    units: list[range] = []
    key_parts: dict[_Key, _KeyParts] = {}
    end, room_bytes = 0, 0.0
    for key, extent in extents.items():
        size_bytes = extent.row_count * bytes_per_row
        count = min(int(size_bytes) // _BUCKET_BYTES + 1, _MOST_BUCKETS)
        if count > 1 or size_bytes > room_bytes:
            units.append(range(end, end + count))
            end += count
            room_bytes = _BUCKET_BYTES if count == 1 else 0
        room_bytes -= size_bytes
        step = (extent.last_offset - extent.first_offset) // count + 1
        key_parts[key] = _KeyParts(end - count, extent.first_offset, step)
    return units, key_parts


def _part_of(key_parts: Mapping[_Key, _KeyParts]) -> BucketOf:
    """Return the division of rows into parts."""
    names = pa.array([_SEPARATOR.join(map(str, key)) for key in key_parts])
    first_parts, first_offsets, steps = (
        pa.array(of_all, pa.int64()) for of_all in zip(*key_parts.values(), strict=True)
    )

    def part_of(rows: pa.Table) -> pa.Array:
        name = [pc.cast(rows[column], pa.string()) for column in PARTITION_KEY_COLUMNS]
        index = pc.index_in(pc.binary_join_element_wise(*name, _SEPARATOR), value_set=names)
        beyond = pc.subtract(rows["request_offset"], first_offsets.take(index))
        return pc.add(first_parts.take(index), pc.divide(beyond, steps.take(index))).combine_chunks()

    return part_of


def _ordered(parts: SpilledRows, unit: range) -> Iterator[StateRow]:
    for part in unit:
        rows = parts.take(part)
        if rows is not None:
            yield from decoded(in_fold_order(rows))
