"""`verify` of a state table by Spark: the same checks as without a JVM, in as many tasks as there are cores.

Spark divides the rows into tasks whose rows fit into memory; the checks are those of `sharegroup.audit`, which get them
as Arrow batches. The driver holds the few rows of groups, and the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sharegroup.audit.verification.commits import CHUNK, Beginning, beginning, check_chunk
from sharegroup.audit.verification.findings import MOST_FINDINGS, Finding, Verification, commit_order, finding_order
from sharegroup.audit.verification.group_rows import GroupRows, TableContext
from sharegroup.audit.verification.quick_segments import check_segments
from sharegroup.audit.verification.row_columns import SEGMENT, SEGMENT_COLUMNS
from sharegroup.audit.verification.row_counts import ALIKE_COLUMNS, DAY_MS, WITHOUT_COMMIT, WRONG_DATE, RowCounts
from sharegroup.audit.verification.state_chain import CHAIN_COLUMNS, CHAIN_TYPES, check_chains, check_unknown
from sharegroup.audit.verification.verify_table import CHAIN_KEY, damage_findings, last_commit_findings
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.invariants import Violation
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.active_session import activated
from sharegroup.spark.audit_rows import fold_order_columns
from sharegroup.spark.cluster import check_audit_tasks
from sharegroup.spark.features import repartitioned_by_id
from sharegroup.spark.internal_session import internal_session
from sharegroup.spark.stored_table import spark_address
from sharegroup.state.data_file import DataFile
from sharegroup.state.fold import SHARE_PARTITION_TYPES
from sharegroup.state.schema import PARTITION_COLUMN, STATE_TABLE_SCHEMA, StoredRows, decoded
from sharegroup.state.table_scan import DamagedFile, TableScan, damage_of

ROWS_PER_TASK = 50_000
"""Rows that a task checks, more or less: they are in its memory together, some 3 KB each."""

_FILES_PER_TASK = 64
_READ_WHAT_IS_LEFT = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
"""Leave out data files that Spark cannot read."""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_RESULT_SCHEMA = pa.schema(
    {
        "location": pa.string(),
        "request_offset": pa.int64(),
        "invariant": pa.string(),
        "detail": pa.string(),
        "orphan_row": pa.string(),
        "finding_count": pa.int64(),
        "transition_count": pa.int64(),
        "segment_count": pa.int64(),
    }
)
_RESULT_DDL = (
    "location string, request_offset bigint, invariant string, detail string, orphan_row string, finding_count bigint, "
    "transition_count bigint, segment_count bigint"
)

_Batches = Iterator[pa.RecordBatch]
_MARKER_COLUMNS = ("record_type", "commit_id", "leader_epoch", "payload")


def verify_by_spark(
    spark: SparkSession,
    path: str,
    broker: BrokerConfig,
    group_id: str | None = None,
    rows_per_task: int = ROWS_PER_TASK,
) -> Verification:
    """Check the data files, commits, groups and share-partitions of a state table.

    Args:
        spark: a session with Delta.
        path: the table's folder; the driver reads its log, too.
        broker: defaults and bounds that were in force.
        group_id: only the rows of this group, and not the commits.
        rows_per_task: rows that a task checks, more or less.

    Raises:
        EnvironmentNotReadyError: executors lack this package, or do not see the table's folder.
        StateTableError: there is no table, or its log cannot be read.
        UnsupportedFormatVersionError: another release wrote the table.
    """
    scan = TableScan(check_audit_tasks(spark, path, "state table"))
    session = internal_session(spark)
    damaged = _damaged_files(session, scan)
    if damaged:
        for key, value in _READ_WHAT_IS_LEFT.items():
            session.conf.set(key, value)
    # One version for all jobs, whatever a processor commits meanwhile.
    address = spark_address(path)
    table = address.reader(session.read).format("delta").option("versionAsOf", scan.version)
    verification = _verified(table.load(address.path), broker, group_id, scan.last_commit_id, rows_per_task)
    verification.findings[:0] = damage_findings(damaged)
    verification.finding_count += len(damaged)
    return verification


def _verified(
    rows: DataFrame, broker: BrokerConfig, group_id: str | None, last_commit_id: int | None, rows_per_task: int
) -> Verification:
    if group_id is not None:
        # Fences belong to no group, and have the bounds that were in force.
        rows = rows.where((F.col("group_id") == group_id) | _is(RecordType.FENCE))
    markers = rows.where(_is(RecordType.COMMIT_MARKER))
    first, last = markers.agg(F.min("commit_id"), F.max("commit_id")).collect()[0]
    row_count = (rows if group_id is None else rows.where(F.col("group_id") == group_id)).count()
    task_count = max(2, -(-row_count // rows_per_task))
    verification = Verification(row_count=row_count)
    few = list(StoredRows(rows.where(_is_few()).toArrow().cast(STATE_TABLE_SCHEMA)))
    # 1. Commits.
    start = beginning([row for row in few if group_id in (None, row.group_id)], first)
    if group_id is None:
        verification.add(last_commit_findings(last_commit_id, last))
        verification.add(start.findings)
        # In the few tasks of a session for small batches, the counts of a long history would not fit into the heap.
        rows.sparkSession.conf.set(_SHUFFLE_PARTITIONS, str(task_count))
        of_commits = _results(_by_chunk(rows, markers, task_count), partial(_check_chunks, start))
        verification.add(sorted(_findings(of_commits), key=commit_order))
        _count(verification, of_commits)
    # 2. Groups.
    groups = GroupRows(broker, is_whole=start.is_whole)
    groups.check_all(few)
    context = groups.context()
    verification.degraded = groups.degraded
    # 3. Segments.
    of_segments = _results(_by_segment(rows, task_count), partial(_check_segments, context))
    _count(verification, of_segments)
    orphan_rows = [StateRow.model_validate_json(row["orphan_row"]) for row in of_segments if row["orphan_row"]]
    # 4. Chains.
    of_chains = _results(_by_share_partition(rows, task_count), partial(_check_chains, context, orphan_rows))
    _count(verification, of_chains)
    unknown = _without_chain(rows, orphan_rows, context)
    findings = [*groups.findings, *_findings(of_segments), *_findings(of_chains), *unknown]
    verification.add(sorted(findings, key=finding_order))
    return verification


def _damaged_files(spark: SparkSession, scan: TableScan) -> list[DamagedFile]:
    """Compare all data files with the Delta log, in tasks."""
    files = [(file.path, file.date, file.size_bytes, file.row_count) for file in scan.files]
    if not files:
        return []
    schema = "path string, date string, size_bytes bigint, row_count bigint"
    # It makes its session the active one, and would leave this one to the application.
    with activated(spark):
        frame = spark.createDataFrame(files, schema)
    listed = frame.repartition(-(-len(files) // _FILES_PER_TASK) + 1)
    damaged = listed.mapInArrow(partial(_check_files, scan.path), "path string, reason string").collect()
    reasons = {row["path"]: row["reason"] for row in damaged}
    return [DamagedFile(file.path, reasons[file.path]) for file in scan.files if file.path in reasons]


def _by_chunk(rows: DataFrame, markers: DataFrame, task_count: int) -> DataFrame:
    """Return counts of rows and markers, those of a chunk together."""
    offset = F.col("request_offset")
    date = F.date_from_unix_date(F.floor(F.col("time_ms") / DAY_MS).cast("int")).cast("string")
    counted = (
        rows.where(~F.col("record_type").isin([kind.value for kind in WITHOUT_COMMIT]))
        .withColumn(WRONG_DATE, F.when(F.col(PARTITION_COLUMN) == date, "").otherwise(F.col(PARTITION_COLUMN)))
        .groupBy(*ALIKE_COLUMNS, WRONG_DATE)
        .agg(
            F.count(F.lit(1)).alias("row_count"),
            F.min(offset).alias("first_offset"),
            F.max(offset).alias("last_offset"),
        )
        .withColumn("chunk", F.floor(F.col("commit_id") / CHUNK))
        .withColumn("payload", F.lit(None).cast("string"))
    )
    seams = F.array_distinct(F.array(F.floor(F.col("commit_id") / CHUNK), F.floor((F.col("commit_id") + 1) / CHUNK)))
    marked = markers.select(
        *ALIKE_COLUMNS,
        F.lit("").alias(WRONG_DATE),
        *(F.lit(0).cast("bigint").alias(name) for name in ("row_count", "first_offset", "last_offset")),
        F.explode(seams).alias("chunk"),
        "payload",
    )
    # Tasks of equal size: hashes of few keys would give some of them twice as many rows as others.
    return repartitioned_by_id(counted.unionByName(marked), task_count, _task("chunk", task_count))


def _by_segment(rows: DataFrame, task_count: int) -> DataFrame:
    """Return the rows of share-partitions with their segment, those of a segment together; the check orders them."""
    epoch = F.col("snapshot_epoch")
    is_closing = _is(RecordType.SHARE_SNAPSHOT) & (epoch > 0)
    segments = F.when(is_closing, F.array(epoch - 1, epoch)).otherwise(F.array(epoch))
    of_partitions = rows.where(
        _is(*SHARE_PARTITION_TYPES) | (_is(RecordType.TABLE_SNAPSHOT) & (F.col("partition") >= 0))
    )
    divided = of_partitions.drop(PARTITION_COLUMN).withColumn(SEGMENT, F.explode(segments))
    # The segments of a share-partition follow each other, so tasks get equally many.
    number = F.hash(*(name for name in SEGMENT_COLUMNS if name != SEGMENT)).cast("bigint") + F.col(SEGMENT)
    return repartitioned_by_id(divided, task_count, _task(number, task_count))


def _by_share_partition(rows: DataFrame, task_count: int) -> DataFrame:
    """Return the rows of chains, those of a share-partition together and in fold order."""
    chained = rows.where(_is(*CHAIN_TYPES) & (F.col("partition") >= 0)).select(*CHAIN_COLUMNS)
    return chained.repartition(task_count, *CHAIN_KEY).sortWithinPartitions(*CHAIN_KEY, *fold_order_columns())


def _task(number: Column | str, task_count: int) -> Column:
    """Return the task of rows with a number: rows with the next one are in the next task."""
    return F.pmod(number, F.lit(task_count)).cast("int")


def _is(*kinds: RecordType) -> Column:
    return F.col("record_type").isin([kind.value for kind in kinds])


def _is_few() -> Column:
    return ~_is(RecordType.COMMIT_MARKER, *SHARE_PARTITION_TYPES) & ~(
        _is(RecordType.TABLE_SNAPSHOT) & (F.col("partition") >= 0)
    )


def _results(rows: DataFrame, check: Callable[[_Batches], _Batches]) -> list[Any]:
    return rows.mapInArrow(check, _RESULT_DDL).collect()


def _findings(results: Iterable[Any]) -> list[Finding]:
    return [
        Finding(row["location"], Violation(row["invariant"], row["detail"]), row["request_offset"])
        for row in results
        if row["location"]
    ]


def _count(verification: Verification, results: Iterable[Any]) -> None:
    """Add what tasks counted; `Verification.add` counts the findings that they return."""
    for row in results:
        verification.transition_count += row["transition_count"]
        verification.segment_count += row["segment_count"]
        verification.finding_count += row["finding_count"]


def _without_chain(rows: DataFrame, orphan_rows: list[StateRow], context: TableContext) -> list[Finding]:
    if not orphan_rows:
        return []
    keys = {(orphan_row.group_id, orphan_row.topic_id, orphan_row.partition) for orphan_row in orphan_rows}
    chained = rows.where(_is(*CHAIN_TYPES) & F.col("group_id").isin(sorted({key[0] for key in keys})))
    known = {tuple(row) for row in chained.select(*CHAIN_KEY).distinct().collect()}
    return check_unknown(orphan_rows, frozenset(keys & known), context)


# In the tasks.


def _check_files(path: str, batches: _Batches) -> _Batches:
    for batch in batches:
        files = (DataFile(**values, bounds={}) for values in batch.to_pylist())
        damaged = [{"path": file.path, "reason": reason} for file in files if (reason := damage_of(path, file))]
        schema = pa.schema({"path": pa.string(), "reason": pa.string()})
        yield pa.RecordBatch.from_pylist(damaged, schema=schema)


class _Kept:
    """The first findings of a task, and the number of the others."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._count = 0

    def add(self, findings: Iterable[Finding]) -> None:
        before = len(self._findings)
        self._findings += findings
        self._count += len(self._findings) - before
        if len(self._findings) > 4 * MOST_FINDINGS:
            self._findings = sorted(self._findings, key=finding_order)[:MOST_FINDINGS]

    def batch(
        self, orphan_rows: Iterable[StateRow] = (), transition_count: int = 0, segment_count: int = 0
    ) -> pa.RecordBatch:
        """Return the result of the task."""
        kept = self._findings[:MOST_FINDINGS]
        counts = {"finding_count": 0, "transition_count": 0, "segment_count": 0}
        no_finding = {"location": "", "request_offset": -1, "invariant": "", "detail": "", "orphan_row": ""}
        rows: list[dict[str, Any]] = [
            {
                **counts,
                "location": finding.location,
                "request_offset": finding.request_offset,
                "invariant": finding.violation.invariant,
                "detail": finding.violation.detail,
                "orphan_row": "",
            }
            for finding in kept
        ]
        rows += [{**counts, **no_finding, "orphan_row": orphan_row.model_dump_json()} for orphan_row in orphan_rows]
        totals = {
            "finding_count": self._count - len(kept),
            "transition_count": transition_count,
            "segment_count": segment_count,
        }
        rows.append({**no_finding, **totals})
        return pa.RecordBatch.from_pylist(rows, schema=_RESULT_SCHEMA)


def _check_segments(context: TableContext, batches: _Batches) -> _Batches:
    kept, orphan_rows, transition_count, segment_count = _Kept(), list[StateRow](), 0, 0
    rows = list(batches)
    for checked in check_segments(pa.Table.from_batches(rows), context) if rows else ():
        kept.add(checked.findings)
        transition_count += checked.transition_count
        segment_count += 1
        orphan_rows += [checked.orphan_row] if checked.orphan_row is not None else []
    yield kept.batch(orphan_rows, transition_count, segment_count)


def _check_chains(context: TableContext, orphan_rows: list[StateRow], batches: _Batches) -> _Batches:
    kept = _Kept()
    rows = (row for batch in batches for row in decoded(pa.Table.from_batches([batch])))
    for finding in check_chains(rows, orphan_rows, context):
        kept.add([finding])
    yield kept.batch()


def _check_chunks(start: Beginning, batches: _Batches) -> _Batches:
    kept = _Kept()
    pieces = list(batches)
    if pieces:
        rows = pa.Table.from_batches(pieces)
        is_count = pc.is_null(rows["payload"])
        markers = rows.filter(pc.invert(is_count)).sort_by("commit_id")
        for chunk, counts in RowCounts(rows.filter(is_count)).by_chunk(CHUNK):
            of_chunk = markers.filter(pc.equal(markers["chunk"], chunk)).select(list(_MARKER_COLUMNS))
            kept.add(check_chunk(chunk, decoded(of_chunk), counts, start))
    yield kept.batch()
