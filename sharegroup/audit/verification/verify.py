"""`verify`: replay every row of the state table and check every invariant of the engine on the way.

A history of any length is checked in pieces, in this order:

1. Commits, in chunks (`commits`): they follow each other and have all their rows.
2. The few rows that no share-partition has (`group_rows`). They leave what all others need of them.
3. Segments (`segments`): the rows of a share-partition from one snapshot to the next fold independently.
4. Chains (`state_chain`): the snapshots and tombstones of a share-partition, and rows whose segment has no snapshot.

Here the rows are in memory; `verify_table` and `sharegroup.spark.verify_by_spark` divide those of a table, and check
the pieces by the same functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sharegroup.audit.verification.commits import beginning, check_commits
from sharegroup.audit.verification.findings import Finding, Verification, finding_order
from sharegroup.audit.verification.group_rows import GroupRows
from sharegroup.audit.verification.segments import SegmentKey, check_segment, segment_keys
from sharegroup.audit.verification.state_chain import CHAIN_TYPES, check_chains, check_unknown
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import SHARE_PARTITION_TYPES, fold_order
from sharegroup.state.schema import partition_key


def verify(rows: Iterable[StateRow], broker: BrokerConfig) -> Verification:
    """Replay rows from the first on, and check each commit, each transition, each start offset and each snapshot.

    Args:
        rows: all rows of the table; without the oldest ones, as after a pruning, a share-partition is followed from
            its first snapshot on.
        broker: defaults and bounds that were in force.
    """
    ordered = sorted(rows, key=fold_order)
    verification = Verification(row_count=len(ordered))
    # 1. Commits.
    verification.add(check_commits(ordered))
    commit_ids = (row.commit_id for row in ordered if row.record_type is RecordType.COMMIT_MARKER)
    start = beginning(ordered, min(commit_ids, default=None))
    # 2. Groups.
    groups = GroupRows(broker, is_whole=start.is_whole)
    groups.check_all(row for row in ordered if is_few(row))
    context = groups.context()
    findings: list[Finding] = groups.findings
    # 3. Segments.
    segments: dict[SegmentKey, list[StateRow]] = defaultdict(list)
    for row in ordered:
        if is_of_share_partition(row):
            for key in segment_keys(row):
                segments[key].append(row)
    orphan_rows: list[StateRow] = []
    for key, of_segment in segments.items():
        checked = check_segment(key, of_segment, context)
        verification.segment_count += 1
        verification.transition_count += checked.transition_count
        findings += checked.findings
        if checked.orphan_row is not None:
            orphan_rows.append(checked.orphan_row)
    # 4. Chains.
    chained = [row for row in ordered if row.record_type in CHAIN_TYPES and is_of_share_partition(row)]
    chained.sort(key=partition_key)
    findings += check_chains(chained, orphan_rows, context)
    findings += check_unknown(orphan_rows, frozenset(map(partition_key, chained)), context)
    verification.add(sorted(findings, key=finding_order))
    verification.degraded = groups.degraded
    return verification


def is_of_share_partition(row: StateRow) -> bool:
    """Return True if a row has the state of a share-partition, or its change."""
    return row.record_type in SHARE_PARTITION_TYPES or (
        row.record_type is RecordType.TABLE_SNAPSHOT and row.partition >= 0
    )


def is_few(row: StateRow) -> bool:
    """Return True if a row is one of the few that neither a share-partition nor a commit as such has."""
    return row.record_type is not RecordType.COMMIT_MARKER and not is_of_share_partition(row)
