"""Share-partitions, a line a run: `0..4 ACQUIRED 1 m1 @30000`, `5..9 AVAILABLE 0`, `9..9 AVAILABLE 1! @90`.

An exclamation mark after the delivery count marks suspects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sharegroup.core.open_writes import WriteClosed, WriteOpened
from sharegroup.core.record_state import RecordState
from sharegroup.core.records import SharePartitionRecord, StartOffsetMoved
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition

_RUN = re.compile(r"(\d+)\.\.(\d+) ([A-Z]+) (\d+)(!)?(?: (\w+))?(?: @(\d+))?")


def run(text: str) -> Run:
    match = _RUN.fullmatch(text)
    assert match, f"{text!r} is not a run"
    first, last, state, count, mark, member, deadline = match.groups()
    return Run(int(first), int(last), RecordState[state], int(count), member or "", int(deadline or 0), bool(mark))


def partition(*runs: str, start_offset: int | None = None) -> SharePartition:
    """A share-partition with these runs; it starts at the first of them unless another start offset is passed."""
    parsed = [run(text) for text in runs]
    return SharePartition(parsed[0].first_offset if start_offset is None else start_offset, parsed)


def shown(share_partition: SharePartition) -> list[str]:
    """The start offset, then the runs."""
    return [f"start {share_partition.start_offset}", *(_shown_run(run) for run in share_partition.runs)]


def shown_ranges(ranges: list[Run]) -> list[str]:
    return [f"{r.first_offset}..{r.last_offset} #{r.delivery_count}" for r in ranges]


def shown_records(records: Iterable[SharePartitionRecord]) -> list[str]:
    return [_shown_record(record) for record in records]


def _shown_run(run: Run) -> str:
    text = f"{run.first_offset}..{run.last_offset} {run.state.name} {run.delivery_count}{'!' * run.is_suspect}"
    return f"{text}{run.member_id and ' '}{run.member_id}{f' @{run.deadline_ms}' if run.deadline_ms else ''}"


def _shown_record(record: SharePartitionRecord) -> str:
    if isinstance(record, StartOffsetMoved):
        return f"start {record.start_offset}" + (f" by {record.cause.value}" if record.cause else "")
    if isinstance(record, WriteOpened):
        return f"write {record.write.version} opens"
    if isinstance(record, WriteClosed):
        return f"write {record.version} closes"
    from_state = record.from_state.name if record.from_state is not None else "NEW"
    change = f"{from_state}->{record.to_state.name} {record.delivery_count}{'!' * record.is_suspect}"
    return f"{record.first_offset}..{record.last_offset} {change} by {record.cause.value}"
