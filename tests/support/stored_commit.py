"""A commit of rows to a state table, as a processor would have made it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from sharegroup.protocol.marker import CommitMarkerPayload, Cut
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import StateTableWriter


def store(path: str, rows: Sequence[StateRow], skipped_commits: int = 0) -> None:
    """Take the table over and commit rows; the marker says that the messages up to theirs are applied.

    Args:
        path: the table's folder.
        skipped_commits: commits that are missing before it.
    """
    reader = StateTableReader(path)
    last = reader.last_marker() if reader.exists() else None
    ends = dict(last.end_offsets) if last else {}
    cuts: list[Cut] = []
    for row in sorted(rows, key=attrgetter("request_partition", "request_offset")):
        partition, end = row.request_partition, row.request_offset + 1
        # The rows of one time are those of one cut; one that is applied already has none.
        if cuts and (cuts[-1].partition, cuts[-1].time_ms) == (partition, row.time_ms):
            cuts.pop()
        if end > ends.get(partition, 0):
            cuts.append(Cut(partition=partition, end_offset=end, time_ms=row.time_ms))
    end_offsets = {**ends, **{cut.partition: cut.end_offset for cut in cuts}}
    time_ms = max(row.time_ms for row in rows)
    payload = CommitMarkerPayload(row_count=len(rows) + 1, end_offsets=end_offsets, cuts=cuts)
    marker = StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=time_ms, payload=payload.model_dump(mode="json"))
    StateTableWriter.open(path, {}).append([marker, *rows], (last.commit_id + 1 if last else 0) + skipped_commits)
