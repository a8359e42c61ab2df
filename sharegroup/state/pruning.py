"""Pruning: deletion of rows that a table snapshot has superseded and that are older than the audit retention.

The table then begins with a table snapshot, from which recoveries and audits can follow everything after it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sharegroup.errors import StateTableError
from sharegroup.protocol.row_payloads import PrunedPayload, TableSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import LogCommit, try_commit, try_commit_merge
from sharegroup.state.data_file import DataFile
from sharegroup.state.data_files import (
    LargeDataFile,
    NewFile,
    concatenated,
    read_data_file,
    write_data_files,
)
from sharegroup.state.delta_table import (
    allow_deletion,
    highest_leader_epoch,
    open_table,
    protect_from_deletion,
    translated,
)
from sharegroup.state.file_merge import PATIENCE_S, LiveFiles, reorganizing
from sharegroup.state.reader import StateTableReader
from sharegroup.state.schema import rows_to_table, utc_date

_TRIES = 20
_ANNOUNCEMENT_S = 60.0
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pruning:
    """The pruned rows.

    Attributes:
        row_count_by_type: record type → rows; empty when there was nothing to prune.
        first_date: earliest UTC date of them; "" when there were none.
        last_date: latest UTC date of them.
    """

    row_count_by_type: Mapping[str, int] = field(default_factory=dict)
    first_date: str = ""
    last_date: str = ""


def prune(path: str, before_ms: int, *, patience_s: float = PATIENCE_S, is_dry_run: bool = False) -> Pruning:
    """Delete the rows older than a time that a table snapshot has superseded.

    Whole commits are deleted, up to the last commit of a table snapshot which is wholly older than the time. That
    snapshot and all rows after it stay, and the fences of the processor that wrote it. A Pruned row is appended first.

    Args:
        before_ms: end of the audit retention; younger rows stay. Epoch ms.
        patience_s: how long to wait for another process that rewrites files.
        is_dry_run: only return the rows that would be pruned.

    Raises:
        StateTableError: there is no table, or it cannot be read or written.
    """
    if is_dry_run:
        return _prunable(path, before_ms)[1]
    open_table(path)
    with translated(path, "pruned"), reorganizing(path, patience_s) as is_mine:
        if not is_mine:
            raise StateTableError(
                f"State table {path} was being reorganized by another process for {patience_s:g} s.",
                "Wait for the other maintenance to end, or stop it.",
            )
        # An earlier pruning may have been killed halfway.
        _repeated(path, protect_from_deletion)
        first_kept, pruning = _prunable(path, before_ms)
        if first_kept is not None and pruning.row_count_by_type:
            _announce(path, first_kept.last_commit, before_ms, pruning)
            _delete(path, first_kept, before_ms)
        return pruning


@dataclass(frozen=True, slots=True)
class _FirstKept:
    """The first table snapshot that the pruned table keeps."""

    time_ms: int
    last_commit: TableSnapshotPayload

    def superseded(self, before_ms: int) -> str:
        """Return the condition of the rows that the snapshot supersedes and that are older than a time."""
        last = self.last_commit
        # Rows that belong to no commit are deleted by their leader epoch: the fence of the snapshot's epoch stays.
        without_commit = f"commit_id < 0 AND leader_epoch < {last.leader_epoch}"
        with_commit = f"commit_id >= 0 AND commit_id <= {last.commit_id}"
        own = f"record_type = '{RecordType.TABLE_SNAPSHOT.value}' AND time_ms = {self.time_ms}"
        return f"time_ms < {before_ms} AND (({without_commit}) OR ({with_commit})) AND NOT ({own})"

    def keeps(self, before_ms: int) -> pc.Expression:
        """Return the opposite of `superseded`, for Arrow."""
        last, commit_id = self.last_commit, pc.field("commit_id")
        without_commit = (commit_id < 0) & (pc.field("leader_epoch") < last.leader_epoch)
        with_commit = (commit_id >= 0) & (commit_id <= last.commit_id)
        own = (pc.field("record_type") == RecordType.TABLE_SNAPSHOT.value) & (pc.field("time_ms") == self.time_ms)
        return ~((pc.field("time_ms") < before_ms) & (without_commit | with_commit) & ~own)


def _prunable(path: str, before_ms: int) -> tuple[_FirstKept | None, Pruning]:
    first_kept = _first_kept_snapshot(path, before_ms)
    if first_kept is None:
        return None, Pruning()
    return first_kept, _matching(path, first_kept.superseded(before_ms))


def _first_kept_snapshot(path: str, before_ms: int) -> _FirstKept | None:
    """Return the youngest table snapshot whose commits are all older than a time."""
    youngest_ms = StateTableReader(path).last_snapshot_ms()
    if youngest_ms is None:
        return None
    first_young = _first_young_commit(path, before_ms)
    snapshots = StateTableReader(path).rows([RecordType.TABLE_SNAPSHOT], group_id="")
    kept = (_FirstKept(row.time_ms, TableSnapshotPayload.model_validate(row.payload)) for row in snapshots)
    old = [
        snapshot
        for snapshot in kept
        if snapshot.time_ms <= youngest_ms and (first_young is None or snapshot.last_commit.commit_id < first_young)
    ]
    return max(old, key=lambda snapshot: snapshot.time_ms, default=None)


def _first_young_commit(path: str, before_ms: int) -> int | None:
    """Return the id of the first commit with a row that is not older than a time; None without any."""
    of_commit = f"commit_id >= 0 AND record_type <> '{RecordType.TABLE_SNAPSHOT.value}'"
    predicate = f"time_ms >= {before_ms} AND date >= '{utc_date(before_ms)}' AND {of_commit}"
    ids = [batch.column(0).to_pylist() for batch in _scanned(path, ["commit_id"], predicate)]
    return min((min(of_batch) for of_batch in ids if of_batch), default=None)


def _matching(path: str, predicate: str) -> Pruning:
    types: Counter[str] = Counter()
    dates: set[str] = set()
    for batch in _scanned(path, ["record_type", "date"], predicate):
        types.update(batch.column(0).to_pylist())
        dates.update(batch.column(1).to_pylist())
    return Pruning(dict(sorted(types.items())), min(dates, default=""), max(dates, default=""))


def _scanned(path: str, columns: list[str], predicate: str) -> Iterator[pa.RecordBatch]:
    table = open_table(path)
    with translated(path, "read"):
        yield from pa.RecordBatchReader.from_stream(table.scan(columns=columns, predicate=predicate))


def _announce(path: str, last: TableSnapshotPayload, before_ms: int, pruning: Pruning) -> None:
    """Append the Pruned row: if the deletion is cut short, no row is missing without a record of it."""
    payload = PrunedPayload(
        leader_epoch=last.leader_epoch,
        commit_id=last.commit_id,
        before_ms=before_ms,
        row_count_by_type=dict(pruning.row_count_by_type),
    )
    row = StateRow(
        record_type=RecordType.PRUNED,
        time_ms=time.time_ns() // 1_000_000,
        payload=payload.model_dump(mode="json"),
    )

    def announce(table: DeltaTable) -> None:
        leader_epoch = highest_leader_epoch(table)
        files = write_data_files(path, rows_to_table([row], leader_epoch=leader_epoch))

        def is_prevented_by(commit: LogCommit) -> bool:
            return commit.may_follow(leader_epoch + 1)

        if try_commit(path, table.version(), files, leader_epoch, is_prevented_by=is_prevented_by) is None:
            raise CommitFailedError("another processor has taken over, or changes the table")

    started = time.monotonic()
    _repeated(path, announce)
    if time.monotonic() - started > _ANNOUNCEMENT_S:
        # A commit that paused until the log of its version was cleaned up only seems to have succeeded.
        raise StateTableError(
            f"The announcement of a pruning took longer than {_ANNOUNCEMENT_S:g} s; nothing was pruned.",
            "Look for a slow disk; then run the maintenance again.",
        )


def _delete(path: str, first_kept: _FirstKept, before_ms: int) -> None:
    """Rewrite the files with superseded rows in one commit, which fails if another process rewrote one of them."""

    def delete(table: DeltaTable) -> None:
        allow_deletion(table)
        live = LiveFiles(path)
        live.follow()
        rewritten: list[DataFile] = []
        rests: list[NewFile] = []
        for file in live:
            if file.lowest_commit_id > first_kept.last_commit.commit_id:
                continue
            rows = concatenated([read_data_file(path, file.path)])
            rest = rows.filter(first_kept.keeps(before_ms))
            if rest.num_rows == rows.num_rows:
                continue
            rewritten.append(file)
            if rest.num_rows:
                with LargeDataFile(path, file.date) as written:
                    written.write(rest.combine_chunks())
                    rests.append(written.close())
        if not rewritten:
            return
        # A clean-up of the log passes the version of the begin while the files are rewritten.
        live.follow()
        if not (live.have(rewritten) and try_commit_merge(path, live.version, rewritten, rests, deletes_rows=True)):
            raise CommitFailedError("another process has rewritten the same files")

    try:
        _repeated(path, delete)
    finally:
        _repeated(path, protect_from_deletion)


def _repeated(path: str, action: Callable[[DeltaTable], None]) -> None:
    """Apply an action to the newest version of the table; retry when another process commits meanwhile."""
    for _ in range(_TRIES):
        with translated(path, "pruned"):
            try:
                action(open_table(path))
                return
            except CommitFailedError as error:
                _logger.debug("State table %s is written by another process, too: %s", path, error)
    raise StateTableError(
        f"State table {path} was written by others during each of {_TRIES} tries to prune it.",
        "Run the maintenance again when the processor has less to do.",
    )
