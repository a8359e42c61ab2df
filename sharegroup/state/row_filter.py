"""The rows that a reader of the state table asks for, as data: SQL for delta-rs, an expression for Arrow and Spark."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple

from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.protocol.rows import RecordType
from sharegroup.state.schema import utc_date

Operator = Literal["=", "<", "<=", ">", ">=", "IN"]


class Comparison(NamedTuple):
    """A column compared with a value; with `IN`, with several."""

    column: str
    operator: Operator
    value: str | int | tuple[str, ...]


_OPERATORS: Mapping[Operator, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "IN": lambda column, values: column.isin(list(values)),
}

_IS_TABLE_SNAPSHOT = Comparison("record_type", "IN", (RecordType.TABLE_SNAPSHOT.value,))
_IS_NO_TABLE_SNAPSHOT = Comparison(
    "record_type", "IN", tuple(sorted(kind.value for kind in RecordType if kind is not RecordType.TABLE_SNAPSHOT))
)

Clause = tuple[Comparison, ...]
"""Comparisons of which one has to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Conditions that a row has to fulfil; None is no condition.

    Attributes:
        group_id: the group; "" for rows of no group.
        topic: rows of share-partitions of other topics are left out; rows of no share-partition stay.
        partition: rows of share-partitions of other partitions are left out; rows of no share-partition stay.
        since_ms: earliest time; epoch ms.
        until_ms: latest time, inclusive; epoch ms.
        after_commit_id: rows of this commit and earlier ones are left out.
        through_commit_id: rows of later commits are left out.
        snapshot_ms: rows of the table snapshot of this time are selected, too, whatever types, times and commits are.
        touching: a reader may leave out updates without a transition of these offsets.
        columns: the columns to read, all without it; a reader adds those that order the rows.
    """

    record_types: Collection[RecordType] | None = None
    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    after_commit_id: int | None = None
    through_commit_id: int | None = None
    snapshot_ms: int | None = None
    touching: OffsetRange | None = None
    columns: tuple[str, ...] | None = None

    def clauses(self) -> Iterator[Clause]:
        """Yield the conditions, of which all have to hold."""
        for condition in self._changes():
            yield (condition,) if self.snapshot_ms is None else (condition, _IS_TABLE_SNAPSHOT)
        if self.snapshot_ms is not None:
            yield (_IS_NO_TABLE_SNAPSHOT, Comparison("time_ms", "=", self.snapshot_ms))
        if self.group_id is not None:
            yield (Comparison("group_id", "=", self.group_id),)
        of_no_partition = Comparison("partition", "<", 0)
        if self.topic is not None:
            yield (Comparison("topic", "=", self.topic), of_no_partition)
        if self.partition is not None:
            yield (Comparison("partition", "=", self.partition), of_no_partition)

    def _changes(self) -> Iterator[Comparison]:
        """Yield the conditions that do not concern the rows of the table snapshot."""
        if self.record_types is not None:
            yield Comparison("record_type", "IN", tuple(sorted(kind.value for kind in self.record_types)))
        if self.since_ms is not None:
            yield Comparison("time_ms", ">=", self.since_ms)
            yield Comparison("date", ">=", utc_date(self.since_ms))
        if self.until_ms is not None:
            yield Comparison("time_ms", "<=", self.until_ms)
            yield Comparison("date", "<=", utc_date(self.until_ms))
        if self.after_commit_id is not None:
            yield Comparison("commit_id", ">", self.after_commit_id)
        if self.through_commit_id is not None:
            yield Comparison("commit_id", "<=", self.through_commit_id)

    def expression(self, column: Callable[[str], Any]) -> Any | None:
        """Return the conditions as an expression of Arrow or of Spark; None when there are none.

        Args:
            column: returns the expression of a column by its name: `pyarrow.compute.field`, or Spark's `col`.
        """
        of_clauses = [
            reduce(operator.or_, (_OPERATORS[c.operator](column(c.column), c.value) for c in clause))
            for clause in self.clauses()
        ]
        return reduce(operator.and_, of_clauses) if of_clauses else None

    def sql(self) -> str | None:
        """Return the conditions as an expression of SQL; None when there are none."""
        clauses = ["(" + " OR ".join(map(_sql, clause)) + ")" for clause in self.clauses()]
        return " AND ".join(clauses) or None


def _sql(comparison: Comparison) -> str:
    column, sign, value = comparison
    if isinstance(value, tuple):
        return f"{column} IN ({', '.join(map(_literal, value))})" if value else "FALSE"
    return f"{column} {sign} {_literal(value) if isinstance(value, str) else value}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
