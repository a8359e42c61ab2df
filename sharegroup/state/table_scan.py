"""One version of the state table, read file by file: a history of any length in bounded memory.

Each file is compared with the Delta log on the way: its size, its number of rows, and the checksums of its pages where
its writer made some. A file that was lost or changed in place is reported by its name, and the others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sharegroup.state.commit_log import COMMIT_TRANSACTION
from sharegroup.state.data_file import DataFile
from sharegroup.state.data_files import FILE_SCHEMA
from sharegroup.state.delta_table import open_table, translated
from sharegroup.state.listed_files import listed_files
from sharegroup.state.open_storage import storage_of
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA
from sharegroup.state.store_errors import StoreError

_ROWS_AT_ONCE = 16_384


class DamagedFile(NamedTuple):
    """A data file that is not as it was written.

    Attributes:
        reason: how it differs.
    """

    path: str
    reason: str


class TableScan:
    """The newest version of the table when it is opened.

    Raises:
        StateTableError: there is no table, or it cannot be read.
        UnsupportedFormatVersionError: another release wrote it in a format unknown here.
    """

    def __init__(self, path: str) -> None:
        table = open_table(path)
        self.path = path
        with translated(path, "read"):
            self.version = int(table.version())
            self.last_commit_id: int | None = table.transaction_version(COMMIT_TRANSACTION)
            files = listed_files(table, ["commit_id"])
        self.files = sorted(files, key=lambda file: (file.lowest_commit_id, file.path))
        self.damaged: list[DamagedFile] = []

    @property
    def size_bytes(self) -> int:
        """The size of all data files."""
        return sum(file.size_bytes for file in self.files)

    def pieces(
        self,
        columns: Collection[str] | None = None,
        condition: pc.Expression | None = None,
        passed: Callable[[DataFile], None] = lambda _: None,
    ) -> Iterator[pa.Table]:
        """Yield the rows in pieces, in no order; what is wrong with a file is added to `damaged`.

        Args:
            columns: only these columns.
            condition: only rows that fulfil it.
            passed: called after each file.
        """
        wanted = [name for name in STATE_TABLE_SCHEMA.names if columns is None or name in columns]
        for file in self.files:
            reason = ""
            try:
                for piece in _checked(self.path, file, wanted):
                    yield piece if condition is None else piece.filter(condition)
            except _DamagedError as error:
                reason = str(error)
            if reason:
                self.damaged.append(DamagedFile(file.path, reason))
            passed(file)


class _DamagedError(Exception):
    """A file is not as it was written."""


def damage_of(path: str, file: DataFile) -> str:
    """Return how a file differs from what the Delta log says; empty when it does not."""
    try:
        for _ in _checked(path, file, FILE_SCHEMA.names):
            pass
    except _DamagedError as error:
        return str(error)
    return ""


def _checked(path: str, file: DataFile, columns: Collection[str]) -> Iterator[pa.Table]:
    """Yield the rows of a file; it is compared with the Delta log on the way."""
    try:
        with _only_damage(path):
            size_bytes = storage_of(path).size_bytes(file.path)
    except OSError as error:
        raise _DamagedError(error.strerror or str(error)) from None
    if size_bytes != file.size_bytes:
        raise _DamagedError(f"it has {size_bytes} bytes, the Delta log says {file.size_bytes}")
    row_count = 0
    of_file = [field for field in FILE_SCHEMA if field.name in columns]
    stored = [field.name for field in of_file]
    try:
        with _only_damage(path):
            source = storage_of(path).opened(file.path)
        with source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            for batch in _batches(parquet, stored):
                rows = pa.Table.from_batches([batch]).select(stored).cast(pa.schema(of_file))
                row_count += rows.num_rows
                if PARTITION_COLUMN in columns:
                    rows = rows.append_column(PARTITION_COLUMN, pa.repeat(file.date, rows.num_rows))
                yield rows.select(list(columns))
    except (pa.ArrowException, OSError) as error:
        raise _DamagedError(str(error).splitlines()[0]) from None
    if file.row_count not in (None, row_count):
        raise _DamagedError(f"it has {row_count} rows, the Delta log says {file.row_count}")


def _batches(parquet: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, a few row groups at a time: a reader keeps the columns of all that it was given."""
    counts = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    first = 0
    while first < len(counts):
        end = first + 1
        while end < len(counts) and sum(counts[first : end + 1]) <= _ROWS_AT_ONCE:
            end += 1
        groups = list(range(first, end))
        yield from parquet.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns, use_threads=False)
        first = end


@contextmanager
def _only_damage(path: str) -> Iterator[None]:
    """Translate failures of an object store that say nothing about the object.

    Raises:
        StateTableError: the store did not respond, or refused.
        FileNotFoundError: it does not have the object.
    """
    try:
        yield
    except StoreError:
        with translated(path, "read"):
            raise


def commits_of(scan: TableScan) -> Iterator[pa.Table]:
    """Yield the rows of commits in the order of their ids, in pieces that begin and end with whole commits.

    Rows that belong to no commit of a processor are left out, except table snapshots, which have the id of the last
    commit in them. Files of one time lie side by side, so only a few of them are in memory together.
    """
    following = [file.lowest_commit_id for file in scan.files[1:]]
    waiting: list[pa.Table] = []
    done: list[int] = []

    def passed(_: DataFile) -> None:
        done.append(1)

    def released() -> Iterator[pa.Table]:
        nonlocal waiting
        index = len(done) - 1
        rows = pa.concat_tables(waiting)
        if index < len(following):
            is_final = pc.less(rows["commit_id"], following[index]).combine_chunks()
        else:
            is_final = pa.repeat(True, rows.num_rows)
        ready = rows.filter(is_final)
        waiting = [rows.filter(pc.invert(is_final))] if ready.num_rows else [rows]
        if ready.num_rows:
            yield ready.take(pc.sort_indices(ready, sort_keys=[("commit_id", "ascending")]))

    handled = 0
    for piece in scan.pieces(condition=pc.field("commit_id") >= 0, passed=passed):
        if len(done) > handled and waiting:
            handled = len(done)
            yield from released()
        waiting.append(piece)
    if waiting:
        done[:] = [1] * len(scan.files)
        yield from released()
