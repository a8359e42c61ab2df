"""Checks of the commits of the state table: they follow each other, apply each message once, and have all their rows.

Rows of one commit are its marker and the rows of the groups. A Fence, a table snapshot and a Pruned row belong to no
commit of a processor.

Commits are checked in chunks of `CHUNK` ids, independently: the last marker of a chunk is in the next one, too, where
it only says where that chunk begins. Of all rows but markers, only their number and bounds are needed (`row_counts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic import ValidationError

from sharegroup.audit.verification.findings import Finding, commit_order
from sharegroup.audit.verification.row_counts import (
    BEGINNING,
    WITHOUT_COMMIT,
    Commit,
    Position,
    RowCount,
    RowCounts,
    has_time_of_cut,
    is_of_commit,
)
from sharegroup.core.invariants import Violation
from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.row_payloads import PrunedPayload, TableSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow

CHUNK = 256
"""Commits that are checked together: enough for columns to pay, few enough for the memory of their cuts."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the commits of a table begin.

    Attributes:
        first: id of the first commit that has a marker; None without markers.
        before: the position before it; None when it is not known.
        is_whole: True if no row is missing before the first commit, or a table snapshot replaces them.
        findings: rows that are missing.
        leader_epochs: those of the Fence rows.
    """

    first: int | None
    before: Position | None
    is_whole: bool
    findings: tuple[Finding, ...] = ()
    leader_epochs: tuple[int, ...] = ()


def check_commits(rows: Iterable[StateRow]) -> list[Finding]:
    """Return the findings about the commits; none when no row is a marker, as among the rows of one group.

    Args:
        rows: all rows of the table, or those of groups only, in any order. The first commit must be the table's first,
            or follow the end of a pruning.
    """
    rows = list(rows)
    markers = sorted((row for row in rows if row.record_type is RecordType.COMMIT_MARKER), key=_commit_id)
    start = beginning(rows, markers[0].commit_id if markers else None)
    counts = RowCounts.of_rows(rows)
    findings: list[Finding] = []
    for chunk, of_chunk_counts in counts.by_chunk(CHUNK):
        of_chunk = [marker for marker in markers if chunk in chunks_of(marker.commit_id)]
        findings += check_chunk(chunk, of_chunk, of_chunk_counts, start)
    return [*start.findings, *sorted(findings, key=commit_order)]


def chunks_of(commit_id: int) -> list[int]:
    """Return the chunks that need a commit's marker: its own, and the one that begins after it."""
    return sorted({commit_id // CHUNK, (commit_id + 1) // CHUNK})


def beginning(rows: Iterable[StateRow], first: int | None) -> Beginning:
    """Return where the commits of a table begin.

    Args:
        rows: its rows that are of no commit; others are ignored.
        first: id of the first commit that has a marker; None without markers.
    """
    if first is None:
        return Beginning(None, None, is_whole=False)
    rows = [row for row in rows if row.record_type in WITHOUT_COMMIT and not row.group_id]
    fences = sorted(row.leader_epoch for row in rows if row.record_type is RecordType.FENCE)
    findings = list(_fence_gaps(fences))
    try:
        ends = [PrunedPayload.model_validate(r.payload).commit_id for r in rows if r.record_type is RecordType.PRUNED]
        snapshots = [
            TableSnapshotPayload.model_validate(r.payload) for r in rows if r.record_type is RecordType.TABLE_SNAPSHOT
        ]
    except ValidationError as error:
        findings.append(Finding(f"commit {first}", Violation("payload_can_be_read", repr(error))))
        return Beginning(first, None, is_whole=False, findings=tuple(findings), leader_epochs=tuple(fences))
    if not ends:
        if min(fences, default=1) > 1:
            detail = f"the table begins with leader epoch {min(fences)} and this commit, but nothing was pruned"
            findings.append(Finding(f"commit {first}", Violation("rows_are_missing_only_when_pruned", detail)))
        return Beginning(first, BEGINNING, is_whole=first == 0, findings=tuple(findings), leader_epochs=tuple(fences))
    end = max(ends)
    if first <= end:
        # The pruning was announced and then cut short.
        return Beginning(first, None, is_whole=False, findings=tuple(findings), leader_epochs=tuple(fences))
    for payload in snapshots:
        if payload.commit_id == end:
            marker = payload.marker
            before = Position(end, payload.leader_epoch, marker.end_offsets, marker.unapplied_groups)
            return Beginning(
                first, before, is_whole=first == end + 1, findings=tuple(findings), leader_epochs=tuple(fences)
            )
    detail = "the rows up to it were pruned, but the table snapshot that has their state is missing"
    findings.append(Finding(f"commit {end}", Violation("pruned_rows_have_a_snapshot", detail)))
    return Beginning(first, None, is_whole=False, findings=tuple(findings), leader_epochs=tuple(fences))


def _fence_gaps(epochs: Sequence[int]) -> Iterator[Finding]:
    """Yield the finding of each takeover that does not have the leader epoch after the one before."""
    for before, epoch in pairwise(epochs):
        if epoch != before + 1:
            detail = f"the Fence of leader epoch {epoch} follows that of {before}"
            yield Finding(f"leader epoch {epoch}", Violation("each_takeover_has_the_next_leader_epoch", detail))


def check_chunk(chunk: int, markers: Iterable[StateRow], counts: RowCounts, start: Beginning) -> Iterator[Finding]:
    """Check the commits of a chunk.

    Args:
        markers: its markers, after the last one of the chunk before if there is one, in the order of commit ids.
        counts: the rows of its commits, in any order.
    """
    if start.first is None:
        return
    before = start.before
    if chunk > start.first // CHUNK:
        # Until the last marker of the chunk before has come.
        before = Position(chunk * CHUNK - 2, 0, {})
    known: set[int] = set()
    commits: list[Commit] = []
    for marker in markers:
        known.add(marker.commit_id)
        try:
            payload = CommitMarkerPayload.model_validate(marker.payload)
        except ValidationError as error:
            yield Finding(_name(marker), Violation("payload_can_be_read", str(error)))
            continue
        if marker.commit_id // CHUNK == chunk:
            commits.append(Commit(marker, payload, before))
        before = Position(marker.commit_id, marker.leader_epoch, payload.end_offsets, payload.unapplied_groups)
    totals, doubtful = counts.totals(), counts.doubtful(commits)
    for commit in commits:
        marker, payload, before = commit
        for violation in (
            *_fenced(marker, start.leader_epochs),
            *_sequence(marker, payload, before),
            *_cuts(payload, before or BEGINNING),
            *_content(marker, payload, before or BEGINNING, totals[marker.commit_id], doubtful[marker.commit_id]),
        ):
            yield Finding(_name(marker), violation)
    for commit_id, leader_epoch in sorted(counts.leader_epochs().items()):
        if commit_id > start.first and commit_id not in known:
            detail = f"{totals[commit_id]} rows, but no marker"
            location = f"commit {commit_id} of leader epoch {leader_epoch}"
            yield Finding(location, Violation("each_commit_has_its_marker", detail))


def _fenced(marker: StateRow, leader_epochs: Sequence[int]) -> Iterator[Violation]:
    """Check that the takeover of a commit's processor has its Fence, unless it may have been pruned."""
    if leader_epochs and marker.leader_epoch > leader_epochs[0] and marker.leader_epoch not in leader_epochs:
        detail = f"there is no Fence of leader epoch {marker.leader_epoch}"
        yield Violation("each_takeover_has_the_next_leader_epoch", detail)


def _sequence(marker: StateRow, payload: CommitMarkerPayload, before: Position | None) -> Iterator[Violation]:
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


def _cuts(payload: CommitMarkerPayload, before: Position) -> Iterator[Violation]:
    """Check that the cuts lead, ascending, from the end offsets before to those of the marker."""
    ends = dict(before.end_offsets)
    times_ms: dict[int, int] = {}
    for cut in payload.cuts:
        # Where a first commit begins is written nowhere.
        if cut.end_offset <= ends.get(cut.partition, -1):
            detail = f"a cut of request partition {cut.partition} ends at {cut.end_offset}, after {ends[cut.partition]}"
            yield Violation("cuts_are_ascending", detail)
        if cut.time_ms < times_ms.get(cut.partition, 0):
            detail = f"a cut of request partition {cut.partition} is of {cut.time_ms}, after {times_ms[cut.partition]}"
            yield Violation("cuts_are_ascending", detail)
        ends[cut.partition], times_ms[cut.partition] = cut.end_offset, cut.time_ms
    for group_cut in payload.group_cuts:
        end = payload.end_offsets.get(group_cut.partition, 0)
        if group_cut.end_offset > end:
            detail = f"a cut of group {group_cut.group_id} ends at {group_cut.end_offset}, the marker at {end}"
            yield Violation("cuts_end_at_the_marker", detail)
    for partition in sorted({cut.partition for cut in payload.cuts}):
        if payload.end_offsets.get(partition) != ends[partition]:
            detail = (
                f"the last cut of request partition {partition} ends at {ends[partition]}, the marker at "
                f"{payload.end_offsets.get(partition)}"
            )
            yield Violation("cuts_end_at_the_marker", detail)


def _content(
    marker: StateRow, payload: CommitMarkerPayload, before: Position, row_count: int, counts: Sequence[RowCount]
) -> Iterator[Violation]:
    if payload.row_count not in (-1, row_count):
        yield Violation("each_commit_has_all_its_rows", f"{row_count} rows; it was committed with {payload.row_count}")
    rebuilt = {*before.unapplied_groups, *(cut.group_id for cut in payload.group_cuts)}
    cuts: dict[int, list[Cut]] = defaultdict(list)
    for cut in payload.cuts if counts else ():
        cuts[cut.partition].append(cut)
    for count in counts:
        if count.leader_epoch != marker.leader_epoch:
            detail = f"a {count.record_type.value} row has leader epoch {count.leader_epoch}"
            yield Violation("a_commit_has_one_leader_epoch", detail)
        if count.wrong_date:
            detail = f"a {count.record_type.value} row of {count.time_ms} is in the partition of {count.wrong_date}"
            yield Violation("rows_are_in_the_partition_of_their_date", detail)
        if count.record_type is RecordType.COMMIT_MARKER:
            continue
        # A group that was being rebuilt is behind the others of its partition.
        start = before.unapplied_groups.get(count.group_id, before.end_offsets.get(count.request_partition, 0))
        end = payload.end_offsets.get(count.request_partition, 0)
        for offset in sorted({count.first_offset, count.last_offset}):
            if not is_of_commit(offset, start, end):
                detail = (
                    f"a row of group {count.group_id} reflects message {offset} of request partition "
                    f"{count.request_partition}, of which the commit has {start} to {end - 1}"
                )
                yield Violation("messages_are_applied_once", detail)
        if count.group_id not in rebuilt:
            yield from _time(count, cuts.get(count.request_partition, []), payload)


def _time(count: RowCount, cuts: Sequence[Cut], payload: CommitMarkerPayload) -> Iterator[Violation]:
    """Check that rows have the time of their cut; a status has that of its message."""
    index = bisect_right(cuts, count.last_offset, key=_end_offset)
    if index == len(cuts):
        return
    cut = cuts[index]
    # Locks run from the last message where that is later than the cut.
    latest_ms = max(cut.time_ms, payload.message_times_ms.get(count.request_partition, cut.time_ms))
    earliest_ms = 0 if count.record_type is RecordType.GROUP_STATUS else cut.time_ms
    if not has_time_of_cut(count.time_ms, earliest_ms, latest_ms):
        detail = (
            f"a {count.record_type.value} row of group {count.group_id} is of {count.time_ms}, the cut with message "
            f"{count.last_offset} of request partition {count.request_partition} of {cut.time_ms}"
        )
        yield Violation("rows_have_the_time_of_their_cut", detail)


def _end_offset(cut: Cut) -> int:
    return cut.end_offset


def _name(row: StateRow) -> str:
    return f"commit {row.commit_id} of leader epoch {row.leader_epoch}"


def _commit_id(row: StateRow) -> int:
    return row.commit_id
