"""Checks of the commits of the state table: they follow each other, apply each message once, and have all their rows.

Rows of one commit are its marker and what the groups persisted. A Fence, a table snapshot and a Pruned row belong to no
commit of a processor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from sharegroup.audit.finding import Finding
from sharegroup.core.invariants import Violation
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import PrunedPayload, TableSnapshotPayload

_WITHOUT_COMMIT = frozenset({RecordType.FENCE, RecordType.TABLE_SNAPSHOT, RecordType.PRUNED})


@dataclass(frozen=True, slots=True)
class _Position:
    """How far the commits are, by a marker, or by the table snapshot that a pruned table begins with."""

    commit_id: int
    leader_epoch: int
    end_offsets: Mapping[int, int]
    unapplied_groups: Mapping[str, int] = field(default_factory=dict)


_BEGINNING = _Position(-1, 0, {})


def check_commits(rows: Iterable[StateRow]) -> list[Finding]:
    """Return what does not hold of the commits; nothing when no row is a marker, as among the rows of one group.

    Args:
        rows: all rows of the table, or those of groups only, in any order. The first commit must be the table's first,
            or follow the end of a pruning.
    """
    rows = list(rows)
    markers: list[StateRow] = []
    commits: dict[int, list[StateRow]] = defaultdict(list)
    for row in rows:
        if row.record_type is RecordType.COMMIT_MARKER:
            markers.append(row)
        if row.record_type not in _WITHOUT_COMMIT:
            commits[row.commit_id].append(row)
    if not markers:
        return []
    markers.sort(key=lambda marker: marker.commit_id)
    before, missing = _beginning(rows, markers[0].commit_id)
    findings = [*_unmarked(commits, markers), *missing]
    for marker in markers:
        try:
            payload = CommitMarkerPayload.model_validate(marker.payload)
        except ValidationError as error:
            findings.append(Finding(_name(marker), Violation("payload_can_be_read", str(error))))
            continue
        violations = [
            *_sequence(marker, payload, before),
            *_cuts(payload, before or _BEGINNING),
            *_content(marker, payload, before or _BEGINNING, commits[marker.commit_id]),
        ]
        findings += [Finding(_name(marker), violation) for violation in violations]
        before = _Position(marker.commit_id, marker.leader_epoch, payload.end_offsets, payload.unapplied_groups)
    return findings


def _beginning(rows: Iterable[StateRow], first: int) -> tuple[_Position | None, list[Finding]]:
    """Return what the first commit must follow, None when that is not known; and the finding that rows are missing."""
    ends = [PrunedPayload.model_validate(row.payload).commit_id for row in rows if row.record_type is RecordType.PRUNED]
    if not ends:
        return _BEGINNING, list(_missing_beginning(rows, first))
    end = max(ends)
    if first <= end:
        # The pruning was announced and then cut short.
        return None, []
    for row in rows:
        if row.record_type is RecordType.TABLE_SNAPSHOT and not row.group_id:
            payload = TableSnapshotPayload.model_validate(row.payload)
            if payload.commit_id == end:
                marker = payload.marker
                return _Position(end, payload.leader_epoch, marker.end_offsets, marker.unapplied_groups), []
    detail = "the rows up to it were pruned, but the table snapshot that has their state is missing"
    return None, [Finding(f"commit {end}", Violation("pruned_rows_have_a_snapshot", detail))]


def _missing_beginning(rows: Iterable[StateRow], first: int) -> Iterator[Finding]:
    """Yield the finding that a table does not begin with its first processor, although nothing was pruned."""
    fences = [row.leader_epoch for row in rows if row.record_type is RecordType.FENCE]
    if min(fences, default=1) > 1:
        detail = f"the table begins with leader epoch {min(fences)} and this commit, but nothing was pruned"
        yield Finding(f"commit {first}", Violation("rows_are_missing_only_when_pruned", detail))


def _unmarked(commits: Mapping[int, list[StateRow]], markers: list[StateRow]) -> Iterator[Finding]:
    known = {marker.commit_id for marker in markers}
    for commit_id in sorted(commits.keys() - known):
        if commit_id > markers[0].commit_id:
            detail = f"{len(commits[commit_id])} rows, but no marker"
            yield Finding(_name(commits[commit_id][0]), Violation("each_commit_has_its_marker", detail))


def _sequence(marker: StateRow, payload: CommitMarkerPayload, before: _Position | None) -> Iterator[Violation]:
    if before is None:
        return
    if marker.commit_id != before.commit_id + 1:
        detail = f"commit {marker.commit_id} where commit {before.commit_id + 1} should follow"
        yield Violation("commits_follow_each_other", detail)
    if marker.leader_epoch < before.leader_epoch:
        detail = f"leader epoch {marker.leader_epoch} follows {before.leader_epoch}"
        yield Violation("leader_epochs_never_fall", detail)
    for partition, end in before.end_offsets.items():
        if payload.end_offsets.get(partition, 0) < end:
            detail = f"ends at {payload.end_offsets.get(partition)} of request partition {partition}, after {end}"
            yield Violation("messages_are_applied_once", detail)


def _cuts(payload: CommitMarkerPayload, before: _Position) -> Iterator[Violation]:
    """Check that the cuts lead, ascending, from the end offsets before to those of the marker."""
    ends = dict(before.end_offsets)
    for cut in payload.cuts:
        # Where a first commit begins is written nowhere.
        if cut.end_offset <= ends.get(cut.partition, -1):
            detail = f"a cut of request partition {cut.partition} ends at {cut.end_offset}, after {ends[cut.partition]}"
            yield Violation("cuts_are_ascending", detail)
        ends[cut.partition] = cut.end_offset
    for partition in sorted({cut.partition for cut in payload.cuts}):
        if payload.end_offsets.get(partition) != ends[partition]:
            detail = (
                f"the last cut of request partition {partition} ends at {ends[partition]}, the marker at "
                f"{payload.end_offsets.get(partition)}"
            )
            yield Violation("cuts_end_at_the_marker", detail)


def _content(
    marker: StateRow, payload: CommitMarkerPayload, before: _Position, rows: list[StateRow]
) -> Iterator[Violation]:
    if payload.row_count not in (-1, len(rows)):
        yield Violation("each_commit_has_all_its_rows", f"{len(rows)} rows; it was committed with {payload.row_count}")
    for row in rows:
        if row.leader_epoch != marker.leader_epoch:
            detail = f"a {row.record_type.value} row has leader epoch {row.leader_epoch}"
            yield Violation("a_commit_has_one_leader_epoch", detail)
        if row.record_type is RecordType.COMMIT_MARKER:
            continue
        # A group that was being rebuilt is behind the others of its partition.
        start = before.unapplied_groups.get(row.group_id, before.end_offsets.get(row.request_partition, 0))
        end = payload.end_offsets.get(row.request_partition, 0)
        if not start <= row.request_offset < end:
            detail = (
                f"a row of group {row.group_id} reflects message {row.request_offset} of request partition "
                f"{row.request_partition}, of which the commit has {start} to {end - 1}"
            )
            yield Violation("messages_are_applied_once", detail)


def _name(row: StateRow) -> str:
    return f"commit {row.commit_id} of leader epoch {row.leader_epoch}"
