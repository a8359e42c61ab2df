"""A share-partition as the live auditor follows it, with a state that is stored between two batches as text.

A batch has one entry for each share-partition that it touches, since what Spark adds to an entry costs more than the
check of a row. Both texts are JSON. That of the state has a version, the share-partition as a row of a table snapshot,
and the statistics of the present minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from sharegroup.audit.live.live_check import LiveFinding, checked, context_of
from sharegroup.audit.live.minute_statistics import MinuteStatistics
from sharegroup.audit.live.row_fields import fields_of, row_of
from sharegroup.errors import UnsupportedFormatVersionError
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.rows import RecordType, StateRow

_VERSION = 2


class ResultKind(StrEnum):
    """Kind of a result."""

    FINDING = "finding"
    PROGRESS = "progress"
    STATISTICS = "statistics"


class Result(NamedTuple):
    """A finding, a progress or a minute of statistics, as JSON."""

    kind: str
    document: str


class AuditedPartition(NamedTuple):
    """A share-partition; the results that belong to none are of `NO_PARTITION`."""

    group_id: str
    topic_id: str
    partition: int

    def to_text(self) -> str:
        """Return the text by which the stream is divided."""
        return json.dumps(self)


NO_PARTITION = AuditedPartition("", "", -1)


class Entry(NamedTuple):
    """The part of a batch that belongs to a share-partition.

    Attributes:
        document: its rows (`rows_document`), or results that go through unchanged (`results_document`).
    """

    share_partition: str
    document: str


def rows_document(beginning: StateRow | None, rows: Sequence[StateRow], configurations: str) -> str:
    """Return the document of a share-partition.

    Args:
        beginning: its row of a table snapshot, which replaces its state; None if it goes on.
        rows: its rows, in fold order.
        configurations: the configurations of the group that may be in force, as `configurations_text` has them.
    """
    fields = {
        "beginning": None if beginning is None else fields_of(beginning),
        "rows": [fields_of(row) for row in rows],
        "configurations": configurations,
    }
    return json.dumps(fields, separators=(",", ":"))


def results_document(results: Sequence[Result]) -> str:
    """Return the document of results that go through unchanged."""
    return json.dumps({"results": results})


def configurations_text(configurations: Sequence[StateRow]) -> str:
    """Return the configurations of a group, as rows, in a form that is the same for the same configurations."""
    return json.dumps([fields_of(row) for row in configurations], separators=(",", ":"))


@dataclass
class LivePartition:
    """The share-partition after the entries so far.

    Attributes:
        state: its state as a row of a table snapshot; None when it has none.
        named: its last row, without content.
        commit_id: the last commit; rows up to it are in the state.
        statistics: those of the present minute.
    """

    state: StateRow | None = None
    named: StateRow | None = None
    commit_id: int = -1
    statistics: MinuteStatistics = field(default_factory=MinuteStatistics)

    def advance(self, document: str, broker: str) -> Iterator[Result]:
        """Apply the next document; yield the results.

        Args:
            document: see `Entry`.
            broker: defaults and bounds that are in force, as JSON.
        """
        fields = json.loads(document)
        if "results" in fields:
            yield from (Result(kind, text) for kind, text in fields["results"])
            return
        if fields["beginning"] is not None:
            self._begin(row_of(fields["beginning"]))
        # A batch may be read again, and a beginning may be younger than the rows after it.
        rows = [row for row in map(row_of, fields["rows"]) if row.commit_id > self.commit_id]
        if rows:
            yield from self._check(rows, fields["configurations"], broker)

    def close_minute(self, time_ms: int) -> Iterator[Result]:
        """Yield the present minute if it ended before a time of the log."""
        if self.named is not None:
            for row in self.statistics.close(self.named, time_ms):
                yield Result(ResultKind.STATISTICS, json.dumps(row.to_json()))

    @property
    def is_over(self) -> bool:
        """True if nothing is lost with it: it has no state, and nothing is to be written."""
        return self.state is None and self.statistics.is_idle

    def _begin(self, row: StateRow) -> None:
        self.state, self.commit_id, self.named = row, row.commit_id, _named(row)
        self.statistics.begin(row)

    def _check(self, rows: Sequence[StateRow], configurations: str, broker: str) -> Iterator[Result]:
        self.state, findings = checked(self.state, rows, context_of(configurations, broker))
        yield from map(finding_result, findings)
        for row in rows:
            for minute in self.statistics.apply(row):
                yield Result(ResultKind.STATISTICS, json.dumps(minute.to_json()))
        if self.state is None:
            self.statistics.end()
        self.commit_id, self.named = rows[-1].commit_id, _named(rows[-1])

    def to_text(self) -> str:
        """Return the text to store."""
        named = self.named
        fields = {
            "version": _VERSION,
            "state": None if self.state is None else fields_of(self.state),
            "named": None if named is None else [named.group_id, named.topic_id, named.topic, named.partition],
            "commit_id": self.commit_id,
            "statistics": self.statistics.to_json(),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the share-partition of a stored text.

        Raises:
            UnsupportedFormatVersionError: another release stored it.
        """
        fields: dict[str, Any] = json.loads(text)
        if fields["version"] != _VERSION:
            raise UnsupportedFormatVersionError(
                f"The stored state of the live auditor has version {fields['version']}; this release knows {_VERSION}.",
                "Delete the checkpoint of the live auditor: it begins with the last table snapshot then.",
            )
        return cls(
            None if fields["state"] is None else row_of(fields["state"]),
            None if fields["named"] is None else _name(*fields["named"]),
            fields["commit_id"],
            MinuteStatistics.from_json(fields["statistics"]),
        )


def finding_result(finding: LiveFinding) -> Result:
    """Return a finding as a result."""
    return Result(ResultKind.FINDING, json.dumps(asdict(finding), ensure_ascii=False))


def _named(row: StateRow) -> StateRow:
    return _name(row.group_id, row.topic_id, row.topic, row.partition)


def _name(group_id: str, topic_id: str, topic: str, partition: int) -> StateRow:
    return constructed(
        StateRow,
        record_type=RecordType.SHARE_TOMBSTONE,
        group_id=group_id,
        topic_id=topic_id,
        topic=topic,
        partition=partition,
    )
