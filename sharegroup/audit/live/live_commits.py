"""The stream of the live auditor: positions by commit id, and the entries between two of them.

A position is that of the last commit, not of the table's version: a stopped auditor continues where it was, although
upkeep has merged files and cleaned up the log meanwhile. The version is kept for one purpose only: to check each commit
of the Delta log once, as long as it is there. A position has what was noticed on the way to it, so that the entries
between two positions are always the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from sharegroup.audit.live.live_check import LiveFinding
from sharegroup.audit.live.live_partition import (
    NO_PARTITION,
    AuditedPartition,
    Entry,
    Result,
    ResultKind,
    configurations_text,
    finding_result,
    results_document,
    rows_document,
)
from sharegroup.audit.live.minute_statistics import MINUTE_MS
from sharegroup.audit.live.recent_configurations import RecentConfigurations
from sharegroup.audit.verification.commits import check_commits
from sharegroup.config.broker import BrokerConfig
from sharegroup.errors import StateTableError
from sharegroup.protocol.messages import changed
from sharegroup.protocol.row_payloads import TableSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import (
    COMMIT_TRANSACTION,
    NO_COMMIT,
    SNAPSHOT_TRANSACTION,
    LogCommit,
    commits_after,
    has_commit,
)
from sharegroup.state.commit_rows import CommitRows, SnapshotPosition, TablePosition
from sharegroup.state.fold import SHARE_PARTITION_TYPES

MOST_COMMITS = 1_000
"""Commits of one batch: their rows are in memory together."""

_MERGE = "OPTIMIZE"
"""The operation of upkeep that merges files."""


@dataclass(frozen=True, slots=True)
class LivePosition:
    """A position of the stream.

    Attributes:
        commit_id: the last commit; -1 before the first.
        version: the newest version of the Delta log that was checked.
        polled_ms: when the table was polled; epoch ms. Minutes of statistics end also without commits.
        begins: True for the first position: the next batch begins with a table snapshot.
        noticed: (invariant, location, detail) of what the Delta log showed since the position before.
        time_ms: time of the log, which never falls: that of the last commit, carried on while no other one comes; 0
            before the first.
    """

    commit_id: int
    version: int
    polled_ms: int
    begins: bool = False
    noticed: tuple[tuple[str, str, str], ...] = ()
    time_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the position as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the position of a JSON object."""
        noticed = tuple((invariant, location, detail) for invariant, location, detail in fields["noticed"])
        return cls(**{**fields, "noticed": noticed})


@dataclass
class _Batch:
    """The content of a batch by share-partition.

    Attributes:
        results: results that belong to no share-partition.
        beginnings: rows of a table snapshot, which replace the states.
        rows: rows in fold order.
        configurations: group id → the configurations that may be in force, as text.
    """

    results: list[Result] = field(default_factory=list)
    beginnings: dict[AuditedPartition, StateRow] = field(default_factory=dict)
    rows: dict[AuditedPartition, list[StateRow]] = field(default_factory=lambda: defaultdict(list))
    configurations: dict[str, str] = field(default_factory=dict)

    def entries(self) -> list[Entry]:
        """Return an entry for each share-partition, and one of none, so that each batch has its time."""
        entries = [Entry(NO_PARTITION.to_text(), results_document(self.results))]
        for key in self.beginnings | self.rows:
            configurations = self.configurations[key.group_id]
            document = rows_document(self.beginnings.get(key), self.rows.get(key, ()), configurations)
            entries.append(Entry(key.to_text(), document))
        return entries


class LiveCommits:
    """Reads the state table, and changes nothing.

    Args:
        broker: defaults and bounds that are in force.
        most_commits: commits of one batch.

    Raises:
        StateTableError: there is no table, or it cannot be read; each method raises it, too.
    """

    def __init__(self, path: str, broker: BrokerConfig, most_commits: int = MOST_COMMITS) -> None:
        self._path = path
        self._broker = broker
        self._most_commits = most_commits
        self._rows = CommitRows(path)
        self._configurations = RecentConfigurations(broker)
        self._configured_until: int | None = None

    def initial(self, now_ms: int) -> LivePosition:
        """Return the position of an auditor that has none yet."""
        position = self._rows.position()
        return LivePosition(NO_COMMIT, position.version, now_ms, begins=True)

    def latest(self, start: LivePosition, now_ms: int) -> LivePosition:
        """Return the end of the batch that begins at a position: `start` itself when there is nothing new."""
        version, last, noticed = self._followed(start)
        first = start.commit_id
        if start.begins and (snapshot := self._rows.last_snapshot(last)) is not None:
            first = snapshot.commit_id
        commit_id = min(max(last, start.commit_id), first + self._most_commits)
        is_same_minute = now_ms // MINUTE_MS == start.polled_ms // MINUTE_MS
        if is_same_minute and (commit_id, version) == (start.commit_id, start.version):
            return start
        time_ms = self._time_ms(start, commit_id, now_ms)
        return LivePosition(commit_id, version, now_ms, noticed=noticed, time_ms=time_ms)

    def entries(self, start: LivePosition, end: LivePosition) -> list[Entry]:
        """Return the entries between two positions: one for each share-partition, and one of none."""
        batch = _Batch()
        self._fill(batch, start, end)
        self._rows.forget(end.commit_id)
        return batch.entries()

    def _time_ms(self, start: LivePosition, commit_id: int, now_ms: int) -> int:
        """Return the time of the log at the end of a batch."""
        if commit_id > start.commit_id:
            # Brokers' clocks differ, so that commits may be some ms older than the ones before them.
            markers = filter(_is_marker, self._rows.between(commit_id - 1, commit_id))
            return max([start.time_ms, *(marker.time_ms for marker in markers)])
        return start.time_ms + max(now_ms - start.polled_ms, 0)

    def _followed(self, start: LivePosition) -> tuple[int, int, tuple[tuple[str, str, str], ...]]:
        """Return the newest version, the last commit of a processor, and what the commits of the log show."""
        noticed: list[tuple[str, str, str]] = []
        try:
            commits: Sequence[LogCommit] = list(commits_after(self._path, start.version))
            is_complete = has_commit(self._path, start.version)
        except (OSError, StateTableError):
            # A clean-up of the log is running, or the newest commit is torn: the next processor repairs it.
            commits, is_complete = [], False
        if not is_complete:
            position = self._position_after(start)
            if position.version > start.version:
                detail = "the log was cleaned up before it could be read: foreign commits in it are not known"
                location = f"versions {start.version + 1} to {position.version} of the Delta log"
                noticed.append(("each_version_is_checked", location, detail))
            return max(position.version, start.version), position.commit_id, tuple(noticed)
        last = start.commit_id
        for commit in commits:
            last = max(last, commit.transactions.get(COMMIT_TRANSACTION, NO_COMMIT))
            self._rows.remember(commit)
            if detail := _foreign_change(commit):
                noticed.append(("only_processors_write_rows", f"version {commit.version} of the Delta log", detail))
        version = commits[-1].version if commits else start.version
        if start.begins or not commits:
            # The log may begin after the last commit that is not in a batch yet.
            last = max(last, self._position_after(start).commit_id)
        return version, last, tuple(noticed)

    def _position_after(self, start: LivePosition) -> TablePosition:
        """Return the newest version of the table, which must not be an older one.

        Raises:
            StateTableError: the table ends before the position.
        """
        position = self._rows.position()
        if position.commit_id < start.commit_id:
            raise StateTableError(
                f"State table {self._path} ends with commit {position.commit_id}, but the live auditor has seen commit "
                f"{start.commit_id}: it is another table, or an older copy.",
                "Delete the auditor's checkpoint: it starts from the beginning then.",
            )
        return position

    def _fill(self, batch: _Batch, start: LivePosition, end: LivePosition) -> None:
        for invariant, location, detail in end.noticed:
            batch.results.append(finding_result(LiveFinding(location, invariant, detail)))
        if end.commit_id <= start.commit_id:
            return
        after, beginning = start.commit_id, None
        if start.begins:
            beginning = self._rows.last_snapshot(end.commit_id)
        rows = list(self._rows.between(after - 1 if beginning is None else beginning.commit_id - 1, end.commit_id))
        if beginning is None and not _is_whole(rows, after, end.commit_id):
            pruned = self._rows.last_pruned()
            if pruned > after:
                first, last = after + 1, min(pruned, end.commit_id)
                detail = f"the rows of commits {first} to {last} were pruned; a table snapshot replaces them"
                finding = LiveFinding(f"commit {last}", "pruned_rows_were_checked", detail)
                batch.results.append(finding_result(finding))
                beginning = self._rows.last_snapshot(pruned)
                if pruned > end.commit_id or beginning is None:
                    return
        if beginning is not None:
            self._add_beginning(batch, beginning)
            after = beginning.commit_id
            rows = [row for row in rows if row.commit_id >= after]
        self._add_commits(batch, rows, after, beginning)

    def _add_beginning(self, batch: _Batch, snapshot: SnapshotPosition) -> None:
        """Add the states of a table snapshot."""
        for row in self._rows.snapshot(snapshot):
            if row.partition >= 0:
                key = AuditedPartition(row.group_id, row.topic_id, row.partition)
                batch.beginnings[key] = changed(row, commit_id=snapshot.commit_id)

    def _add_commits(
        self, batch: _Batch, rows: Sequence[StateRow], after: int, beginning: SnapshotPosition | None
    ) -> None:
        """Add the rows after a commit, the findings about their commits, and the progress.

        Args:
            rows: the rows of that commit and of those after it, in fold order.
            after: the commit; -1 before the first.
            beginning: the table snapshot that the rows follow.
        """
        new = [row for row in rows if row.commit_id > after]
        batch.results += self._commit_findings(rows, new, after, beginning)
        if self._configured_until != after:
            self._configurations = RecentConfigurations(self._broker)
            for row in self._rows.configurations(after):
                self._configurations.add(row)
        since_ms = min((row.time_ms for row in new), default=0)
        for row in new:
            if row.record_type is RecordType.GROUP_METADATA:
                self._configurations.add(row)
            elif row.record_type in SHARE_PARTITION_TYPES:
                batch.rows[AuditedPartition(row.group_id, row.topic_id, row.partition)].append(row)
        for group_id in {key.group_id for key in (*batch.rows, *batch.beginnings)}:
            batch.configurations[group_id] = configurations_text(self._configurations.of(group_id, since_ms))
        last = max((row for row in rows if _is_marker(row)), key=_commit_id, default=None)
        if last is not None:
            self._configured_until = last.commit_id
            progress = {"commit_id": last.commit_id, "time_ms": last.time_ms}
            batch.results.append(Result(ResultKind.PROGRESS, json.dumps(progress)))

    def _commit_findings(
        self, rows: Sequence[StateRow], new: Sequence[StateRow], after: int, beginning: SnapshotPosition | None
    ) -> Iterator[Result]:
        """Yield the findings about the new commits; the one before them, or its marker, says where they begin."""
        known = [row for row in rows if row.commit_id == after]
        if beginning is not None and not any(map(_is_marker, known)):
            known = [_marker(row) for row in self._rows.snapshot(beginning) if not row.group_id]
        first = min((row.commit_id for row in new), default=after)
        # Nothing is known of what precedes these.
        unknown = {after} if known or after == NO_COMMIT else {after, first}
        if after != NO_COMMIT:
            new = [*known, *new]
        for finding in check_commits(new):
            if not any(finding.location.startswith(f"commit {commit_id} ") for commit_id in unknown):
                violation = finding.violation
                live = LiveFinding(finding.location, violation.invariant, violation.detail, finding.request_offset)
                yield finding_result(live)


def _foreign_change(commit: LogCommit) -> str:
    """Return what a foreign commit does to the rows; "" for one of this package, and for one that changes no rows.

    Nobody else may add or rewrite rows.
    """
    if not commit.added and not commit.removed:
        return ""
    operation = commit.operation or "a commit without a name"
    files = f"{operation} adds {len(commit.added)} and removes {len(commit.removed)} data files"
    if not commit.is_own:
        return f"{files}, and neither a processor nor its upkeep made it"
    if commit.operation == _MERGE and commit.changes_rows:
        return f"{files}, and changes rows"
    if commit.removed and not commit.transactions.keys().isdisjoint({COMMIT_TRANSACTION, SNAPSHOT_TRANSACTION}):
        return f"{files}, although it appends"
    return ""


def _is_whole(rows: Iterable[StateRow], after: int, until: int) -> bool:
    """Return True if each commit after one has its marker."""
    return sum(1 for row in rows if _is_marker(row) and row.commit_id > after) == until - after


def _marker(row: StateRow) -> StateRow:
    """Return the marker of the last commit in a table snapshot, from the snapshot's first row."""
    payload = TableSnapshotPayload.model_validate(row.payload)
    return StateRow(
        record_type=RecordType.COMMIT_MARKER,
        commit_id=payload.commit_id,
        leader_epoch=payload.leader_epoch,
        time_ms=payload.commit_time_ms,
        payload=payload.marker.model_dump(mode="json"),
    )


def _is_marker(row: StateRow) -> bool:
    return row.record_type is RecordType.COMMIT_MARKER


def _commit_id(row: StateRow) -> int:
    return row.commit_id
