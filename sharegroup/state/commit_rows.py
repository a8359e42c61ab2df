"""The rows of a range of commits, wherever upkeep has moved them: rows keep their commit ids.

A reader that follows the table by commit id, and not by the version of its log, continues after any pause: until the
rows after its position were pruned. Then it begins again with a table snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import pyarrow.compute as pc

from sharegroup.errors import StateTableError
from sharegroup.protocol.row_payloads import PrunedPayload, TableSnapshotPayload
from sharegroup.protocol.rows import RecordType
from sharegroup.state.commit_log import COMMIT_TRANSACTION, NO_COMMIT, LogCommit
from sharegroup.state.data_file import DataFile
from sharegroup.state.delta_table import last_snapshot_ms, newest, translated
from sharegroup.state.listed_files import listed_files, read_listed_files
from sharegroup.state.schema import StoredRows

_CHOSEN_BY = ("record_type", "commit_id", "group_id", "time_ms")
_TRIES = 5
_CONFIG_RECORDS = ('"ShareGroupConfig"', '"ShareGroupRemoved"')
_WITHOUT_COMMIT = (RecordType.FENCE, RecordType.TABLE_SNAPSHOT, RecordType.PRUNED)


class TablePosition(NamedTuple):
    """The newest version of the table.

    Attributes:
        commit_id: id of the last commit of a processor; -1 before the first.
    """

    version: int
    commit_id: int


class SnapshotPosition(NamedTuple):
    """A table snapshot.

    Attributes:
        time_ms: its time, which identifies it; epoch ms.
        commit_id: the last commit in it.
    """

    time_ms: int
    commit_id: int


class CommitRows:
    """Reads rows by commit id; it changes nothing.

    The open version of the table serves as long as it has the commits that are asked for: to open a newer one takes as
    long as to read a hundred commits. Every call raises StateTableError when there is no table or it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._table = newest(None, path)
        self._listed: tuple[int, list[DataFile]] | None = None
        self._added: dict[int, tuple[DataFile, ...]] = {}

    def position(self) -> TablePosition:
        """Return the newest version."""
        self._table = newest(self._table, self._path)
        return self._position()

    def _position(self) -> TablePosition:
        with translated(self._path, "read"):
            last = self._table.transaction_version(COMMIT_TRANSACTION)
        return TablePosition(self._table.version(), NO_COMMIT if last is None else last)

    def remember(self, commit: LogCommit) -> None:
        """Keep the files that a commit added, so that `between` reads its rows without listing the table."""
        commit_id = commit.transactions.get(COMMIT_TRANSACTION, NO_COMMIT)
        if commit_id > NO_COMMIT:
            self._added[commit_id] = commit.added

    def forget(self, before: int) -> None:
        """Discard the remembered files of the commits before one."""
        self._added = {commit_id: files for commit_id, files in self._added.items() if commit_id >= before}

    def between(self, after: int, until: int) -> StoredRows:
        """Return the rows of the commits after one, up to another one; without those that belong to no commit.

        Remembered commits are read from the files that they added: to find the files of the table that have them,
        wherever upkeep has moved them, takes longer than to read some hundred commits.
        """
        is_wanted = _is_of_commits(after, until)
        commit_ids = range(max(after, NO_COMMIT) + 1, until + 1)
        if all(commit_id in self._added for commit_id in commit_ids):
            files = [file for commit_id in commit_ids for file in self._added[commit_id]]
            try:
                with translated(self._path, "read"):
                    return StoredRows(read_listed_files(self._path, files, is_wanted))
            except StateTableError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return self._read(lambda file: file.overlaps("commit_id", after + 1, until), is_wanted, until)

    def last_pruned(self) -> int:
        """Return the id of the last commit whose rows were pruned; -1 when none were."""
        rows = self._of_types([RecordType.PRUNED])
        return max((PrunedPayload.model_validate(row.payload).commit_id for row in rows), default=NO_COMMIT)

    def last_snapshot(self, until: int) -> SnapshotPosition | None:
        """Return the last table snapshot with no commit after one; None when there is none."""
        with translated(self._path, "read"):
            if last_snapshot_ms(newest(self._table, self._path)) is None:
                return None
        kind = RecordType.TABLE_SNAPSHOT.value
        first_rows = self._read(
            lambda file: file.overlaps("record_type", kind, kind) and file.overlaps("group_id", "", ""),
            (pc.field("record_type") == kind) & (pc.field("group_id") == ""),
        )
        positions = [
            SnapshotPosition(row.time_ms, TableSnapshotPayload.model_validate(row.payload).commit_id)
            for row in first_rows
        ]
        return max((position for position in positions if position.commit_id <= until), default=None)

    def snapshot(self, position: SnapshotPosition) -> StoredRows:
        """Return the rows of a table snapshot, its first row included."""
        time_ms = position.time_ms
        is_of_snapshot = pc.field("record_type") == RecordType.TABLE_SNAPSHOT.value
        return self._read(
            lambda file: file.overlaps("time_ms", time_ms, time_ms),
            is_of_snapshot & (pc.field("time_ms") == time_ms),
        )

    def configurations(self, until: int) -> StoredRows:
        """Return the rows with the configurations of all groups, up to a commit: from its last table snapshot on."""
        snapshot = self.last_snapshot(until)
        after = NO_COMMIT if snapshot is None else snapshot.commit_id
        is_metadata = pc.field("record_type") == RecordType.GROUP_METADATA.value
        is_wanted = is_metadata & (pc.field("commit_id") > after) & (pc.field("commit_id") <= until)
        if snapshot is not None:
            is_snapshot = pc.field("record_type") == RecordType.TABLE_SNAPSHOT.value
            is_wanted |= is_snapshot & (pc.field("time_ms") == snapshot.time_ms) & (pc.field("partition") < 0)
        has_config = pc.match_substring(pc.field("payload"), _CONFIG_RECORDS[0]) | pc.match_substring(
            pc.field("payload"), _CONFIG_RECORDS[1]
        )

        def may_have(file: DataFile) -> bool:
            is_of_snapshot = snapshot is not None and file.overlaps("time_ms", snapshot.time_ms, snapshot.time_ms)
            return is_of_snapshot or file.overlaps("commit_id", after + 1, until)

        return self._read(may_have, is_wanted & has_config)

    def _of_types(self, record_types: Collection[RecordType]) -> StoredRows:
        values = [kind.value for kind in record_types]
        return self._read(
            lambda file: any(file.overlaps("record_type", value, value) for value in values),
            pc.field("record_type").isin(values),
        )

    def _read(
        self, may_have: Callable[[DataFile], bool], condition: pc.Expression, until: int | None = None
    ) -> StoredRows:
        """Read the rows of some files that fulfil a condition.

        Args:
            may_have: tells by its statistics whether a file may have such rows.
            until: a version with this commit is new enough; None asks for the newest one.
        """
        for tries_left in reversed(range(_TRIES)):
            if until is None or tries_left < _TRIES - 1 or self._position().commit_id < until:
                self._table = newest(self._table, self._path)
            try:
                with translated(self._path, "read"):
                    files = [file for file in self._files() if may_have(file)]
                    return StoredRows(read_listed_files(self._path, files, condition))
            except StateTableError as error:
                # A file that was merged long ago may be deleted before it is read.
                if not tries_left or not isinstance(error.__cause__, FileNotFoundError):
                    raise
        raise AssertionError("unreachable")

    def _files(self) -> list[DataFile]:
        version = self._table.version()
        if self._listed is None or self._listed[0] != version:
            self._listed = version, listed_files(self._table, _CHOSEN_BY)
        return self._listed[1]


def _is_of_commits(after: int, until: int) -> pc.Expression:
    is_in_range = (pc.field("commit_id") > after) & (pc.field("commit_id") <= until)
    return is_in_range & ~pc.field("record_type").isin([kind.value for kind in _WITHOUT_COMMIT])
