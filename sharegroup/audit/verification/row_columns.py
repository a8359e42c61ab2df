"""Rows of share-partitions as columns of numbers, ordered by segment and fold order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.core.record_state import RecordState
from sharegroup.core.transition_rules import CAUSE_NUMBERS, NOT_IN_FLIGHT
from sharegroup.protocol.rows import RecordType

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

KIND_NUMBERS = {kind: number for number, kind in enumerate(RecordType)}
SEGMENT = "segment"
"""Column with the snapshot epoch of the segment, which is not always that of the row."""

SEGMENT_COLUMNS = ("group_id", "topic_id", "partition", "state_epoch", SEGMENT)
"""Columns that name a segment."""

_LARGEST = 1 << 62
_UNKNOWN = -1


class UndecidedError(Exception):
    """The columns have values that can be checked row by row only."""


class RowColumns:
    """Columns of rows in their order.

    Args:
        rows: rows with their segment, in any order.

    Raises:
        UndecidedError: a value that must be there is missing, or offsets are too far from each other.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.table = rows
        self.kind = _numbers_of(rows["record_type"], {kind.value: n for kind, n in KIND_NUMBERS.items()})
        texts = {name: _codes(rows[name]) for name in ("group_id", "topic_id", "topic")}
        numbers = {
            name: _numbers(rows[name])
            for name in (
                *("partition", "state_epoch", SEGMENT, "request_partition", "request_offset", "leader_epoch"),
                *("commit_id", "time_ms", "snapshot_epoch", "start_offset", "delivery_complete_count"),
            )
        }
        segments = _combined([texts["group_id"], texts["topic_id"], *(numbers[name] for name in SEGMENT_COLUMNS[2:])])
        is_tombstone = (self.kind == KIND_NUMBERS[RecordType.SHARE_TOMBSTONE]).astype(np.int64)
        is_table_snapshot = (self.kind == KIND_NUMBERS[RecordType.TABLE_SNAPSHOT]).astype(np.int64)
        keys = [
            *(segments, numbers["request_partition"], numbers["request_offset"], is_table_snapshot),
            *(numbers["leader_epoch"], numbers["commit_id"], is_tombstone),
        ]
        self.order = _order(keys)
        """Positions in the table."""
        self.kind = self.kind[self.order]
        self._columns = {name: values[self.order] for name, values in {**texts, **numbers}.items()}
        segments = segments[self.order]
        is_first = np.ones(len(segments), np.bool_)
        is_first[1:] = segments[1:] != segments[:-1]
        self.segment_begin = np.flatnonzero(is_first)
        """First row of each segment."""
        self.segment = np.cumsum(is_first) - 1
        """The segment of each row."""

    def __getitem__(self, name: str) -> Numbers:
        """Return a column; texts are numbers that only distinguish them."""
        return self._columns[name]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def segment_end(self) -> Numbers:
        """One past the last row of each segment."""
        return np.append(self.segment_begin[1:], len(self))

    @cached_property
    def transitions(self) -> Entries:
        """All transitions, by row."""
        return Entries(self.table["transitions"], self.order)

    @cached_property
    def runs(self) -> Entries:
        """All runs, by row."""
        return Entries(self.table["runs"], self.order)

    @cached_property
    def state_batches(self) -> Entries:
        """All state batches, by row."""
        return Entries(self.table["state_batches"], self.order)

    def members(self) -> tuple[Numbers, Numbers, list[str]]:
        """Return the members of runs and of transitions as positions in a list; "" is the first one."""
        texts = [self.runs.column("member_id"), self.transitions.column("member_id")]
        encoded = pa.chunked_array([pa.array([""]), *texts], pa.string()).combine_chunks().dictionary_encode()
        numbers = _whole(encoded.indices)[1:]
        border = len(texts[0])
        return numbers[:border], numbers[border:], encoded.dictionary.to_pylist()

    def is_empty(self, name: str) -> Flags:
        """Return the rows in which a text is empty."""
        flags: Flags = pc.equal(self.table[name], "").to_numpy()[self.order]
        return flags

    def payloads(self, positions: Numbers) -> list[str]:
        """Return the payloads of some rows as JSON."""
        texts: list[str] = self.table["payload"].take(pa.array(self.order[positions])).to_pylist()
        return texts

    def piece(self, positions: Any) -> pa.Table:
        """Return rows as they are stored, by their positions in the order."""
        return self.table.take(pa.array(self.order[positions]))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the entries of the rows are."""

    begin: Numbers
    index: Numbers
    row: Numbers


class Entries:
    """The entries of a list column, those of a row after those of the row before.

    Args:
        order: positions of the rows in it.
    """

    def __init__(self, column: pa.ChunkedArray, order: Numbers) -> None:
        lists = column.combine_chunks()
        if isinstance(lists, pa.ChunkedArray):
            lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
        if lists.null_count:
            raise UndecidedError
        offsets = _whole(lists.offsets)
        starts, lengths = offsets[:-1][order], np.diff(offsets)[order]
        begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        row = np.repeat(np.arange(len(order)), lengths)
        index = np.arange(begin[-1]) + (starts - begin[:-1])[row]
        self._structs = lists.values
        self._layout = _Layout(begin, index, row)
        self._is_ordered = bool(np.array_equal(index, np.arange(len(self._structs))))

    def __len__(self) -> int:
        return len(self._layout.index)

    @property
    def begin(self) -> Numbers:
        """First entry of each row, and the number of all."""
        return self._layout.begin

    @property
    def row(self) -> Numbers:
        """The row of each entry."""
        return self._layout.row

    def column(self, name: str) -> pa.Array:
        """Return a field of the entries."""
        values = self._structs.field(name)
        return values if self._is_ordered else values.take(pa.array(self._layout.index))

    def numbers(self, name: str) -> Numbers:
        """Return a field of whole numbers."""
        values = _whole(self._structs.field(name))
        return values if self._is_ordered else values[self._layout.index]

    def flags(self, name: str) -> Numbers:
        """Return a field of truth values as 0 and 1."""
        values = _whole(pc.cast(self._structs.field(name), pa.int8()))
        return values if self._is_ordered else values[self._layout.index]

    def states(self, name: str) -> Numbers:
        """Return a field of states; NOT_IN_FLIGHT where there is none."""
        values = self._structs.field(name)
        known = pc.min_max(values).as_py()
        if known["min"] is not None and not min(RecordState) <= known["min"] <= known["max"] <= max(RecordState):
            raise UndecidedError
        filled = _whole(pc.fill_null(values, NOT_IN_FLIGHT))
        return filled if self._is_ordered else filled[self._layout.index]

    def causes(self) -> Numbers:
        """Return the causes as numbers."""
        numbers = _numbers_of(self.column("cause"), {cause.value: n for cause, n in CAUSE_NUMBERS.items()})
        if len(numbers) and numbers.min() < 0:
            raise UndecidedError
        return numbers


def _whole(column: Any) -> Numbers:
    if column.null_count:
        raise UndecidedError
    values: Numbers = column.to_numpy().astype(np.int64, copy=False)
    return values


def _numbers(column: pa.ChunkedArray) -> Numbers:
    return _whole(column)


def _codes(column: pa.ChunkedArray) -> Numbers:
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    return _whole(encoded.indices)


def _numbers_of(column: Any, numbers: dict[str, int]) -> Numbers:
    """Return the numbers of texts; -1 for unknown ones."""
    encoded = column.combine_chunks().dictionary_encode() if isinstance(column, pa.ChunkedArray) else None
    encoded = column.dictionary_encode() if encoded is None else encoded
    known = np.array([numbers.get(text, _UNKNOWN) for text in encoded.dictionary.to_pylist()] or [0], np.int64)
    return known[_whole(encoded.indices)]


def _combined(columns: Sequence[Numbers]) -> Numbers:
    """Return numbers that are equal where all columns are, and ascend as they do."""
    combined, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        size *= span
        if size > _LARGEST:
            raise UndecidedError
        combined = combined * span + (column - low)
    return combined


def _order(keys: Sequence[Numbers]) -> Numbers:
    """Return the order by all keys, the first one first."""
    # Rows come nearly in the order of their commits, so most often the first key alone orders them.
    order: Numbers = np.argsort(keys[0], kind="stable")
    if _is_ascending([key[order] for key in keys]):
        return order
    return np.lexsort(keys[::-1])


def _is_ascending(keys: Sequence[Numbers]) -> bool:
    is_ascending = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in reversed(keys):
        is_ascending = (key[:-1] < key[1:]) | ((key[:-1] == key[1:]) & is_ascending)
    return bool(is_ascending.all())
