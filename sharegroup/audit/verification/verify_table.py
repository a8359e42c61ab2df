"""`verify` of a state table of any length, without a JVM: file by file, then segment by segment.

The rows are read once, divided into buckets on the disk, and each bucket is checked alone. So the memory that it
takes is that of a bucket, however long the history is; the disk needs some 100 bytes for each row, which is up to ten
times as much as the table, whose files are compressed more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sharegroup.audit.verification.commits import CHUNK, Beginning, beginning, check_chunk
from sharegroup.audit.verification.findings import Finding, Verification, commit_order, finding_order
from sharegroup.audit.verification.group_rows import GroupRows, TableContext
from sharegroup.audit.verification.quick_segments import check_segments
from sharegroup.audit.verification.row_columns import SEGMENT, SEGMENT_COLUMNS
from sharegroup.audit.verification.row_counts import RowCounts, counted_rows
from sharegroup.audit.verification.segments import CheckedSegment
from sharegroup.audit.verification.state_chain import CHAIN_COLUMNS, CHAIN_TYPES, check_chains, check_unknown
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.invariants import Violation
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import NO_COMMIT
from sharegroup.state.fold import SHARE_PARTITION_TYPES, without_collections
from sharegroup.state.schema import PARTITION_COLUMN, StoredRows, decoded
from sharegroup.state.spilled_rows import SpilledRows, by_key, by_number
from sharegroup.state.table_scan import DamagedFile, TableScan

_BUCKET_ROWS = 60_000
"""Rows of the table for each bucket; while they are checked they take some 3 KB each."""
_ROW_BYTES = 100
"""Bytes of a row in files whose number of rows is not known."""
_MOST_BUCKETS = 8_192
_BUCKETS_OF_COMMITS = 4
"""Buckets whose commits are checked together: a count takes a twentieth of the memory of a row."""
_FEW_BYTES = 2 * 1024 * 1024
"""Rows in memory of each kind that a history has few of."""
CHAIN_KEY = ("group_id", "topic_id", "partition")
"""Columns that name a share-partition."""

Progress = Callable[[float], None]
"""Takes the share of the work that is done, from 0 to 1."""


def verify_table(
    path: str, broker: BrokerConfig, group_id: str | None = None, progress: Progress = lambda _: None
) -> Verification:
    """Check the data files, commits, groups and share-partitions of a state table.

    Args:
        broker: defaults and bounds that were in force.
        group_id: only the rows of this group, and not the commits.

    Raises:
        StateTableError: there is no table, or its log cannot be read.
        UnsupportedFormatVersionError: another release wrote the table.
    """
    scan = TableScan(path)
    with tempfile.TemporaryDirectory(prefix="sharegroup-verify-") as folder, without_collections():
        return _TableVerification(scan, broker, group_id, Path(folder), progress).result()


def damage_findings(damaged: Iterable[DamagedFile]) -> Iterator[Finding]:
    """Yield the findings of data files that are not as they were written."""
    for file in damaged:
        yield Finding(f"data file {file.path}", Violation("data_files_are_as_they_were_written", file.reason))


def last_commit_findings(expected: int | None, last: int | None) -> Iterator[Finding]:
    """Yield the finding of a table without the last commit that its Delta log names.

    Args:
        expected: the commit of the log's last application transaction; None when there is none.
        last: the last commit that has a marker; None without markers.
    """
    if expected is not None and expected > (NO_COMMIT if last is None else last):
        detail = "the Delta log names it as the last one, but it has no marker"
        yield Finding(f"commit {expected}", Violation("commits_follow_each_other", detail))


@dataclass
class _Divided:
    """The rows of a table by what checks them."""

    few: list[pa.Table]
    segments: SpilledRows
    chains: SpilledRows
    commits: SpilledRows
    counts: SpilledRows
    first_commit_id: int | None = None
    last_commit_id: int | None = None
    row_count: int = 0


class _TableVerification:
    def __init__(
        self, scan: TableScan, broker: BrokerConfig, group_id: str | None, folder: Path, progress: Progress
    ) -> None:
        self._scan = scan
        self._broker = broker
        self._group_id = group_id
        self._progress = progress
        row_count = sum(
            file.size_bytes // _ROW_BYTES if file.row_count is None else file.row_count for file in scan.files
        )
        self._bucket_count = buckets = min(max(1, -(-row_count // _BUCKET_ROWS)), _MOST_BUCKETS)
        self._commit_bucket_count = of_commits = -(-buckets // _BUCKETS_OF_COMMITS)
        self._rows = _Divided(
            few=[],
            segments=SpilledRows(folder, "segments", buckets, by_key(SEGMENT_COLUMNS, buckets)),
            chains=SpilledRows(folder, "chains", buckets, by_key(CHAIN_KEY, buckets), _FEW_BYTES),
            commits=SpilledRows(folder, "markers", of_commits, by_number("chunk", of_commits), _FEW_BYTES),
            counts=SpilledRows(folder, "counts", of_commits, by_number("commit_id", of_commits, CHUNK), _FEW_BYTES),
        )

    def result(self) -> Verification:
        """Check everything."""
        rows = self._rows
        self._divide()
        verification = Verification(row_count=rows.row_count)
        verification.add(damage_findings(self._scan.damaged))
        few = list(StoredRows(pa.concat_tables(rows.few))) if rows.few else []
        # 1. Commits.
        of_group = [row for row in few if self._group_id in (None, row.group_id)]
        start = beginning(of_group, rows.first_commit_id)
        if self._group_id is None:
            verification.add(last_commit_findings(self._scan.last_commit_id, rows.last_commit_id))
            verification.add(start.findings)
            verification.add(self._commit_findings(start))
        rows.commits.close()
        rows.counts.close()
        # 2. Groups.
        groups = GroupRows(self._broker, is_whole=start.is_whole)
        groups.check_all(few)
        context = groups.context()
        findings = groups.findings
        verification.degraded = groups.degraded
        # 3. Segments.
        orphan_rows: list[StateRow] = []
        for bucket in range(self._bucket_count):
            for checked in self._checked_segments(bucket, context):
                verification.segment_count += 1
                verification.transition_count += checked.transition_count
                findings += checked.findings
                orphan_rows += [checked.orphan_row] if checked.orphan_row is not None else []
            self._progress(0.4 + 0.55 * (bucket + 1) / self._bucket_count)
        rows.segments.close()
        # 4. Chains.
        findings += self._chain_findings(orphan_rows, context)
        verification.add(sorted(findings, key=finding_order))
        self._progress(1.0)
        return verification

    def _divide(self) -> None:
        wanted = None if self._group_id is None else _rows_of(self._group_id)
        done_bytes = 0

        def passed(size_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += size_bytes
            self._progress(0.4 * done_bytes / max(self._scan.size_bytes, 1))

        rows = self._rows
        for piece in self._scan.pieces(condition=wanted, passed=lambda file: passed(file.size_bytes)):
            # Fences belong to no group.
            own = piece if self._group_id is None else piece.filter(pc.field("group_id") == self._group_id)
            rows.row_count += own.num_rows
            # No check of a segment needs the date; `counted_rows` has it.
            rows.segments.add(in_segments(piece.drop_columns([PARTITION_COLUMN])))
            is_marker = pc.equal(piece["record_type"], RecordType.COMMIT_MARKER.value)
            few = few_rows(piece)
            rows.few += [few] if few.num_rows else []
            rows.chains.add(chain_rows(piece))
            rows.counts.add(counted_rows(piece))
            markers = piece.filter(is_marker).select(["record_type", "commit_id", "leader_epoch", "payload"])
            if markers.num_rows:
                bounds = pc.min_max(markers["commit_id"]).as_py()
                ids = [identity for identity in (rows.first_commit_id, bounds["min"]) if identity is not None]
                rows.first_commit_id = min(ids)
                rows.last_commit_id = max(bounds["max"], rows.last_commit_id or 0)
                rows.commits.add(_with_chunk(markers))
                rows.commits.add(_with_chunk(_seams(markers), offset=1))

    def _commit_findings(self, start: Beginning) -> list[Finding]:
        findings: list[Finding] = []
        for bucket in range(self._commit_bucket_count):
            findings += self._findings_of_chunks(bucket, start)
        return sorted(findings, key=commit_order)

    # The rows of a bucket are in memory until the method that has taken them returns.

    def _findings_of_chunks(self, bucket: int, start: Beginning) -> Iterator[Finding]:
        counts = self._rows.counts.take(bucket)
        if counts is not None:
            markers = self._rows.commits.take(bucket)
            for chunk, of_chunk in RowCounts(counts).by_chunk(CHUNK):
                yield from check_chunk(chunk, _markers_of(markers, chunk), of_chunk, start)

    def _checked_segments(self, bucket: int, context: TableContext) -> Iterator[CheckedSegment]:
        of_bucket = self._rows.segments.take(bucket)
        if of_bucket is not None:
            yield from check_segments(of_bucket, context)

    def _chain_findings(self, orphan_rows: list[StateRow], context: TableContext) -> Iterator[Finding]:
        known: set[tuple[str, str, int]] = set()
        with_orphan_rows = {
            (orphan_row.group_id, orphan_row.topic_id, orphan_row.partition) for orphan_row in orphan_rows
        }
        for bucket in range(self._bucket_count):
            of_bucket = self._rows.chains.take(bucket)
            if of_bucket is None:
                continue
            ordered = StoredRows(of_bucket).table
            # The sort is stable: the rows of a share-partition stay in fold order.
            ordered = ordered.take(pc.sort_indices(ordered, sort_keys=[(name, "ascending") for name in CHAIN_KEY]))
            known |= with_orphan_rows & set(zip(*(ordered[name].to_pylist() for name in CHAIN_KEY), strict=True))
            yield from check_chains(decoded(ordered), orphan_rows, context)
        yield from check_unknown(orphan_rows, frozenset(known), context)


def _rows_of(group_id: str) -> pc.Expression:
    """Return the condition of a group's rows, and of the Fences: they have the bounds that were in force."""
    return (pc.field("group_id") == group_id) | (pc.field("record_type") == RecordType.FENCE.value)


def few_rows(rows: pa.Table) -> pa.Table:
    """Return the rows that neither a share-partition nor a commit as such has, without what they do not hold."""
    kinds = [RecordType.GROUP_METADATA, RecordType.GROUP_STATUS, RecordType.FENCE, RecordType.PRUNED]
    is_few = pc.is_in(rows["record_type"], pa.array([kind.value for kind in kinds]))
    is_table_snapshot = pc.equal(rows["record_type"], RecordType.TABLE_SNAPSHOT.value)
    return rows.filter(pc.or_(is_few, pc.and_(is_table_snapshot, pc.less(rows["partition"], 0)))).combine_chunks()


def chain_rows(rows: pa.Table) -> pa.Table:
    """Return the rows of the chains of states."""
    is_chained = pc.is_in(rows["record_type"], pa.array([kind.value for kind in sorted(CHAIN_TYPES)]))
    return rows.filter(pc.and_(is_chained, pc.greater_equal(rows["partition"], 0))).select(list(CHAIN_COLUMNS))


def in_segments(rows: pa.Table) -> pa.Table:
    """Return the rows of share-partitions, each with its segment; a snapshot is there twice."""
    kind = rows["record_type"]
    is_table_snapshot = pc.and_(pc.equal(kind, RecordType.TABLE_SNAPSHOT.value), pc.greater_equal(rows["partition"], 0))
    of_partitions = pc.is_in(kind, pa.array([member.value for member in sorted(SHARE_PARTITION_TYPES)]))
    rows = rows.filter(pc.or_(of_partitions, is_table_snapshot))
    own = rows.append_column(SEGMENT, rows["snapshot_epoch"])
    is_closing = pc.and_(
        pc.equal(rows["record_type"], RecordType.SHARE_SNAPSHOT.value), pc.greater(rows["snapshot_epoch"], 0)
    )
    closing = rows.filter(is_closing)
    before = pc.cast(pc.subtract(closing["snapshot_epoch"], 1), pa.int32())
    return pa.concat_tables([own, closing.append_column(SEGMENT, before)])


def _seams(markers: pa.Table) -> pa.Table:
    """Return the markers that are the last of their chunk."""
    after = pc.add(markers["commit_id"], 1)
    return markers.filter(pc.not_equal(pc.divide(markers["commit_id"], CHUNK), pc.divide(after, CHUNK)))


def _with_chunk(rows: pa.Table, offset: int = 0) -> pa.Table:
    chunk = pc.divide(pc.add(rows["commit_id"], offset), CHUNK)
    return rows.append_column("chunk", chunk)


def _markers_of(markers: pa.Table | None, chunk: int) -> Iterator[StateRow]:
    if markers is not None:
        of_chunk = markers.filter(pc.equal(markers["chunk"], chunk)).drop_columns(["chunk"])
        yield from decoded(of_chunk.sort_by("commit_id"))
