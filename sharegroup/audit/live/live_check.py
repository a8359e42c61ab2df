"""One share-partition's next rows, checked by the code of `verify`: state before, rows, state after.

The state before is a row of a table snapshot, from which `verify` follows a share-partition whose older rows it does
not have. The state after is the fold of the same rows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sharegroup.audit.live.row_fields import row_of
from sharegroup.audit.verification.findings import Finding, finding_order
from sharegroup.audit.verification.group_rows import GroupRows, TableContext
from sharegroup.audit.verification.segments import SegmentKey, check_segment, segment_keys
from sharegroup.audit.verification.state_chain import CHAIN_TYPES, check_chains
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.share_coordinator import share_partition_row
from sharegroup.errors import StateTableError
from sharegroup.protocol.messages import changed
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedGroup, FoldedPartition, advance_group
from sharegroup.state.table_snapshot import partition_payload

_CHAINED = CHAIN_TYPES - {RecordType.TABLE_SNAPSHOT}
_CONTEXTS = 2_000
"""Configurations of groups that a process keeps ready."""


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """A finding of the live auditor.

    Attributes:
        location: group and share-partition, commit, or version of the Delta log.
        invariant: name of what does not hold.
        detail: the values that contradict each other.
        request_offset: the row's message in the request log; -1 when it has none.
    """

    location: str
    invariant: str
    detail: str
    request_offset: int = -1


@lru_cache(_CONTEXTS)
def context_of(configurations: str, broker: str) -> TableContext:
    """Return the context in which a group's share-partitions are checked.

    It takes as long as the check of several rows, and the configurations of a group seldom change.

    Args:
        configurations: those of the group that may be in force: a JSON list of rows, each as `row_fields` has it.
        broker: defaults and bounds that are in force, as JSON.
    """
    groups = GroupRows(BrokerConfig.model_validate_json(broker), is_whole=False)
    groups.check_all(map(row_of, json.loads(configurations)))
    return groups.context()


def checked(
    before: StateRow | None, rows: Sequence[StateRow], context: TableContext
) -> tuple[StateRow | None, list[LiveFinding]]:
    """Check the next rows of a share-partition.

    Args:
        before: its state before them; None when it has none.
        rows: its rows, in fold order.

    Returns:
        Its state after them, None when it has none, or the rows do not fold; and the findings.
    """
    findings: list[LiveFinding] = []
    following = list(rows)
    while before is None and following and following[0].record_type is not RecordType.SHARE_SNAPSHOT:
        row = following.pop(0)
        detail = f"a {row.record_type.value} comes without a snapshot before it"
        findings.append(_finding(row, "rows_follow_a_snapshot", detail))
    if not following:
        return before, findings
    known = following if before is None else [before, *following]
    findings += [
        LiveFinding(f.location, f.violation.invariant, f.violation.detail, f.request_offset)
        for f in sorted(_verified(known, context), key=finding_order)
    ]
    last = following[-1]
    group = FoldedGroup(last.group_id)
    try:
        for row in known:
            advance_group(group, row)
    except StateTableError as error:
        return None, [*findings, _finding(last, "rows_fold_to_a_state", error.message)]
    folded = group.partitions.get((last.topic_id, last.partition))
    return (None if folded is None else snapshot_row(folded, last)), findings


def _verified(rows: Sequence[StateRow], context: TableContext) -> list[Finding]:
    """Return the findings of a share-partition's rows: of its segments, then of its chain of states."""
    segments: dict[SegmentKey, list[StateRow]] = defaultdict(list)
    for row in rows:
        for key in segment_keys(row):
            segments[key].append(row)
    findings: list[Finding] = []
    orphan_rows: list[StateRow] = []
    for key, of_segment in segments.items():
        segment = check_segment(key, of_segment, context)
        findings += segment.findings
        if segment.orphan_row is not None:
            orphan_rows.append(segment.orphan_row)
    if orphan_rows or any(row.record_type in _CHAINED for row in rows):
        findings += check_chains((row for row in rows if row.record_type in CHAIN_TYPES), orphan_rows, context)
    return findings


def snapshot_row(folded: FoldedPartition, last: StateRow) -> StateRow:
    """Return the state of a share-partition after its last row, as a row of a table snapshot."""
    row = share_partition_row(
        RecordType.SHARE_SNAPSHOT,
        folded.epochs.snapshot_epoch,
        folded.share_partition,
        [],
        commit_id=last.commit_id,
        leader_epoch=last.leader_epoch,
        group_id=last.group_id,
        topic_id=last.topic_id,
        topic=last.topic,
        partition=last.partition,
        request_partition=last.request_partition,
        request_offset=last.request_offset,
        time_ms=last.time_ms,
        payload=partition_payload(folded),
    )
    return changed(row, record_type=RecordType.TABLE_SNAPSHOT, state_batches=[])


def _finding(row: StateRow, invariant: str, detail: str) -> LiveFinding:
    return LiveFinding(f"group {row.group_id} {row.topic}-{row.partition}", invariant, detail, row.request_offset)
