"""Detection of rows that another program removed from the state table: by RESTORE, overwrite, DELETE or UPDATE.

A running processor stops before its next commit (`writer`). A start examines what the state rests on:

1. The table snapshot that the Delta transaction names is there. RESTORE and overwrite keep transactions.
2. The last marker is that of the commit that the Delta transaction names.
3. Each commit after the table snapshot has its marker. Rows are pruned only with a table snapshot that replaces them.
4. No commit of another program since the last one of a processor has removed rows that are still missing. The log says
   so as long as it has these commits.

Rows that a table snapshot replaces are left to `audit verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

from sharegroup.protocol.row_payloads import TableSnapshotPayload
from sharegroup.protocol.rows import RecordType
from sharegroup.state.commit_log import (
    COMMIT_TRANSACTION,
    NO_COMMIT,
    NO_SNAPSHOT_MS,
    SNAPSHOT_TRANSACTION,
    LogCommit,
    read_commit,
)
from sharegroup.state.data_file import DataFile
from sharegroup.state.delta_table import last_snapshot_ms, translated
from sharegroup.state.listed_files import listed_files, read_listed_files
from sharegroup.state.schema import decoded

_MARKER = RecordType.COMMIT_MARKER.value
_SNAPSHOT = RecordType.TABLE_SNAPSHOT.value
_STATISTICS = ("record_type", "commit_id", "group_id", "time_ms")


class PresentCommits(NamedTuple):
    """The commits that a version of the table has.

    Attributes:
        snapshot_ms: time of the newest table snapshot; -1 without one.
        snapshot_commit_id: last commit in it; -1 without one.
        marked: ids of the later commits that have their marker, ascending.
    """

    snapshot_ms: int
    snapshot_commit_id: int
    marked: Sequence[int]

    @property
    def last_commit_id(self) -> int:
        """Return the last commit; -1 when there is none."""
        return self.marked[-1] if self.marked else self.snapshot_commit_id

    def transactions(self) -> dict[str, int]:
        """Return the Delta transactions that agree with these commits."""
        return {COMMIT_TRANSACTION: self.last_commit_id, SNAPSHOT_TRANSACTION: self.snapshot_ms}


def present_commits(path: str, table: DeltaTable) -> PresentCommits:
    """Return the commits that a version of the table has.

    Raises:
        StateTableError: the table cannot be read.
    """
    with translated(path, "read"):
        files = listed_files(table, _STATISTICS)
        snapshot_ms, after = _newest_snapshot(path, files, last_snapshot_ms(table))
        return PresentCommits(snapshot_ms, after, sorted(_marked(path, files, after)))


def lost_rows(path: str, table: DeltaTable, accepted_commit_id: int = NO_COMMIT) -> str:
    """Return which rows another program has removed; "" when none are missing.

    Args:
        accepted_commit_id: last commit of a state that an administrator accepted without them.

    Raises:
        StateTableError: the table cannot be read.
    """
    present = present_commits(path, table)
    named_ms = last_snapshot_ms(table)
    if named_ms is not None and named_ms != present.snapshot_ms:
        return f"it lacks its table snapshot of {named_ms}"
    with translated(path, "read"):
        last_commit_id = table.transaction_version(COMMIT_TRANSACTION)
    if last_commit_id is not None and last_commit_id > present.last_commit_id:
        return f"it lacks commits {present.last_commit_id + 1} to {last_commit_id}"
    after = max(present.snapshot_commit_id, accepted_commit_id)
    for before, commit_id in pairwise([after, *(commit_id for commit_id in present.marked if commit_id > after)]):
        if commit_id != before + 1:
            return f"it lacks commits {before + 1} to {commit_id - 1}"
    with translated(path, "read"):
        commit = _removing_commit(_commits_since_processor(path, table.version()))
    if commit is None:
        return ""
    return f"version {commit.version}, {commit.operation or 'a commit'} of another program, has removed rows"


def _newest_snapshot(path: str, files: Sequence[DataFile], named_ms: int | None) -> tuple[int, int]:
    """Return time and last commit of the table snapshot that a transaction names, else of the newest that is there."""
    if named_ms is None:
        return NO_SNAPSHOT_MS, NO_COMMIT
    named = [file for file in files if file.may_have("time_ms", named_ms)]
    for time_ms, commit_id in _snapshots(path, named):
        if time_ms == named_ms:
            return time_ms, commit_id
    return max(_snapshots(path, files), default=(NO_SNAPSHOT_MS, NO_COMMIT))


def _snapshots(path: str, files: Sequence[DataFile]) -> Iterator[tuple[int, int]]:
    """Yield time and last commit of each table snapshot whose first row is in the files."""
    files = [file for file in files if file.may_have("record_type", _SNAPSHOT) and file.may_have("group_id", "")]
    is_first = (pc.field("record_type") == _SNAPSHOT) & (pc.field("group_id") == "")
    for row in decoded(read_listed_files(path, files, is_first)):
        yield row.time_ms, TableSnapshotPayload.model_validate(row.payload).commit_id


def _marked(path: str, files: Sequence[DataFile], after: int) -> set[int]:
    """Return the ids of the commits after one that have their marker."""
    marked: set[int] = set()
    merged: list[DataFile] = []
    for file in files:
        if file.highest_commit_id <= after or not file.may_have("record_type", _MARKER):
            continue
        # Most files have one commit, and their statistics say that its marker is there.
        if file.lowest_commit_id == file.highest_commit_id and file.bounds.get("min.record_type") == _MARKER:
            marked.add(file.highest_commit_id)
        else:
            merged.append(file)
    is_later_marker = (pc.field("record_type") == _MARKER) & (pc.field("commit_id") > after)
    return marked.union(read_listed_files(path, merged, is_later_marker)["commit_id"].to_pylist())


def _commits_since_processor(path: str, version: int) -> list[LogCommit]:
    """Return the commits after the last one of a processor, ascending, as far back as the log has them."""
    commits: list[LogCommit] = []
    while version >= 0:
        try:
            commit = read_commit(path, version)
        except FileNotFoundError:
            break
        if commit.is_own and COMMIT_TRANSACTION in commit.transactions:
            break
        commits.append(commit)
        version -= 1
    return commits[::-1]


def _removing_commit(commits: Sequence[LogCommit]) -> LogCommit | None:
    """Return the first commit of another program that removed rows which no later one has brought back."""
    removed_by: dict[str, LogCommit] = {}
    # A RESTORE brings back the files of which upkeep has made others meanwhile.
    sources: dict[str, set[str]] = {}
    foreign: set[str] = set()
    for commit in commits:
        added = {file.path for file in commit.added}
        removed = {source for path in commit.removed for source in sources.get(path, {path})} - foreign
        if commit.changes_rows and not commit.is_own:
            for path in removed:
                removed_by.setdefault(path, commit)
            foreign |= added - removed_by.keys() - sources.keys()
        else:
            sources.update(dict.fromkeys(added, removed))
        for source in (source for path in added for source in sources.get(path, {path})):
            removed_by.pop(source, None)
    return min(removed_by.values(), key=lambda commit: commit.version, default=None)
