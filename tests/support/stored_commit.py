"""A commit of rows to a state table, as a processor would have made it."""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter


def store(path: str, rows: Sequence[StateRow]) -> None:
    """Take the table over and commit rows; the marker says that the messages up to theirs are applied."""
    reader = StateTableReader(path)
    last = reader.last_marker() if reader.exists() else None
    end_offsets = dict(last.end_offsets) if last else {}
    for row in rows:
        end_offsets[row.request_partition] = max(end_offsets.get(row.request_partition, 0), row.request_offset + 1)
    time_ms = max(row.time_ms for row in rows)
    cuts = [Cut(partition=partition, end_offset=end, time_ms=time_ms) for partition, end in end_offsets.items()]
    payload = CommitMarkerPayload(row_count=len(rows) + 1, end_offsets=end_offsets, cuts=cuts)
    marker = StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=time_ms, payload=payload.model_dump(mode="json"))
    StateTableWriter.open(path, {}).append([marker, *rows], last.commit_id + 1 if last else 0)
