"""Whether the batches of the state table follow each other, each message is applied once, and no row is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from sharegroup.audit.finding import Finding
from sharegroup.core.invariants import Violation
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.table_snapshot import PrunedPayload, TableSnapshotPayload

_BatchKey = tuple[int, int]
"""Leader epoch and batch id."""

_WITHOUT_BATCH = frozenset({RecordType.FENCE, RecordType.TABLE_SNAPSHOT, RecordType.PRUNED})


@dataclass(frozen=True, slots=True)
class _Position:
    """How far the batches are, by the words of a marker, or of the table snapshot that a pruned table begins with."""

    leader_epoch: int
    commit_id: int
    marker: CommitMarkerPayload


def check_batches(rows: Iterable[StateRow]) -> list[Finding]:
    """What does not hold of the batches; nothing when no row is a marker, as among the rows of one group.

    Args:
        rows: all rows of the table, or those of groups only, in any order. The first batch must be the table's first,
            or go on where a pruning ended.
    """
    rows = list(rows)
    markers: list[StateRow] = []
    batches: dict[_BatchKey, list[StateRow]] = defaultdict(list)
    for row in rows:
        if row.record_type is RecordType.COMMIT_MARKER:
            markers.append(row)
        if row.record_type not in _WITHOUT_BATCH:
            batches[_key(row)].append(row)
    if not markers:
        return []
    markers.sort(key=_key)
    findings = list(_unmarked(batches, markers))
    before, missing = _beginning(rows, _key(markers[0]))
    findings += missing
    for marker in markers:
        try:
            payload = CommitMarkerPayload.model_validate(marker.payload)
        except ValidationError as error:
            findings.append(Finding(_place(marker), Violation("payload_can_be_read", str(error))))
            continue
        violations = [*_sequence(marker, payload, before), *_content(payload, before, batches[_key(marker)])]
        findings += [Finding(_place(marker), violation) for violation in violations]
        before = _Position(marker.leader_epoch, marker.commit_id, payload)
    return findings


def _beginning(rows: Iterable[StateRow], first: _BatchKey) -> tuple[_Position | None, list[Finding]]:
    """Where the first batch must go on, None when nothing was pruned; and the finding that nothing tells it."""
    pruned = [PrunedPayload.model_validate(row.payload) for row in rows if row.record_type is RecordType.PRUNED]
    end = max(((payload.leader_epoch, payload.commit_id) for payload in pruned), default=None)
    if end is None:
        return None, list(_missing_beginning(rows, first))
    if first <= end:
        return None, []
    for row in rows:
        if row.record_type is RecordType.TABLE_SNAPSHOT and not row.group_id:
            payload = TableSnapshotPayload.model_validate(row.payload)
            if (payload.leader_epoch, payload.commit_id) == end:
                return _Position(*end, payload.marker), []
    place = f"batch {end[1]} of leader epoch {end[0]}"
    detail = "the rows up to it were pruned, but the table snapshot that has their place is missing"
    return None, [Finding(place, Violation("pruned_rows_have_a_snapshot", detail))]


def _missing_beginning(rows: Iterable[StateRow], first: _BatchKey) -> Iterator[Finding]:
    """The finding that a table does not begin with its first processor and batch, although nothing was pruned."""
    leader_epoch, commit_id = first
    first_fence = min((row.leader_epoch for row in rows if row.record_type is RecordType.FENCE), default=leader_epoch)
    if commit_id > 0 or first_fence > 1:
        detail = f"the table begins with leader epoch {first_fence} and this batch, but no row says that others went"
        place = f"batch {commit_id} of leader epoch {leader_epoch}"
        yield Finding(place, Violation("rows_are_missing_only_when_pruned", detail))


def _unmarked(batches: Mapping[_BatchKey, list[StateRow]], markers: list[StateRow]) -> Iterator[Finding]:
    known = {_key(marker) for marker in markers}
    for key in sorted(batches.keys() - known):
        if key > _key(markers[0]):
            detail = f"{len(batches[key])} rows, but no marker"
            yield Finding(_place(batches[key][0]), Violation("each_batch_has_its_marker", detail))


def _sequence(marker: StateRow, payload: CommitMarkerPayload, before: _Position | None) -> Iterator[Violation]:
    if before is None:
        return
    follows = before.commit_id + 1
    if marker.commit_id != follows:
        detail = f"batch {marker.commit_id} where batch {follows} should follow"
        yield Violation("batches_follow_each_other", detail)
    for partition, end in before.marker.end_offsets.items():
        if payload.end_offsets.get(partition, 0) < end:
            detail = f"ends at {payload.end_offsets.get(partition)} of request partition {partition}, after {end}"
            yield Violation("messages_are_applied_once", detail)


def _content(payload: CommitMarkerPayload, before: _Position | None, rows: list[StateRow]) -> Iterator[Violation]:
    if payload.row_count not in (-1, len(rows)):
        yield Violation("each_batch_has_all_its_rows", f"{len(rows)} rows; it was committed with {payload.row_count}")
    for row in rows:
        if row.record_type is RecordType.COMMIT_MARKER:
            continue
        start = before.marker.end_offsets.get(row.request_partition, 0) if before is not None else 0
        end = payload.end_offsets.get(row.request_partition, 0)
        if not start <= row.request_offset < end:
            detail = (
                f"a row of group {row.group_id} reflects message {row.request_offset} of request partition "
                f"{row.request_partition}, of which the batch has {start} to {end - 1}"
            )
            yield Violation("messages_are_applied_once", detail)


def _key(row: StateRow) -> _BatchKey:
    return row.leader_epoch, row.commit_id


def _place(row: StateRow) -> str:
    return f"batch {row.commit_id} of leader epoch {row.leader_epoch}"
