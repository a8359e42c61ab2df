"""A state table with a long history that `verify` accepts: the rows of the engine, repeated.

One period of a share-partition, from one snapshot to the next, is made by the engine and the leader's own row writer:
a member acquires ten records, of which one was released before, then accepts all but one, which it releases. Each later
period has the same rows with other offsets, times and epochs, so they are made as Arrow columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partition import LedPartition
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.commit_log import COMMIT_TRANSACTION, try_commit
from sharegroup.state.data_files import LargeDataFile, NewFile
from sharegroup.state.delta_table import create_or_open_table
from sharegroup.state.schema import STATE_TABLE_SCHEMA, rows_to_table, utc_date

UPDATES_PER_SNAPSHOT = 500
CYCLES_PER_PERIOD = UPDATES_PER_SNAPSHOT + 1
STEP_MS = 5
"""Time from one row of a share-partition to the next."""

_BEGIN_MS = 1_767_225_600_000
_RECORDS = 10
_TRANSITIONS_PER_CYCLE = 5
_ROWS_PER_PIECE = 100_000
_ROWS_PER_FILE = 1_000_000
_SHIFTED = ("first_offset", "last_offset")
_TIMES = ("time_ms", "deadline_ms")

_NO_CONTENT = CommitMarkerPayload(end_offsets={}).model_dump(mode="json")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class History:
    """The size of a history.

    Attributes:
        row_count: rows, markers included.
    """

    row_count: int
    transition_count: int
    commit_count: int


def write_history(path: str, transition_count: int, partition_count: int, rows_per_commit: int = 100) -> History:
    """Write a new table with a history.

    Args:
        transition_count: transitions, about.
        partition_count: share-partitions, which have the same number of rows.
        rows_per_commit: rows of a commit, about.
    """
    template = _Template()
    step_count = max(2, 2 * (transition_count // (_TRANSITIONS_PER_CYCLE * partition_count)))
    version = create_or_open_table(path).version()
    writer = _Files(path)
    fence = StateRow(
        record_type=RecordType.FENCE, leader_epoch=1, time_ms=_BEGIN_MS, payload={"request.topic.partitions": 1}
    )
    writer.write(rows_to_table([fence]))
    rows = commits = transitions = 0
    steps_at_once = max(1, _ROWS_PER_PIECE // partition_count)
    steps_per_commit = max(1, rows_per_commit // partition_count)
    steps_at_once -= steps_at_once % steps_per_commit
    for first in range(-1, step_count, max(1, steps_at_once)):
        # The states begin in commits of their own.
        end = 0 if first < 0 else min(first + steps_at_once, step_count)
        for begin, stop in ((first, end),) if first >= 0 else ((-1, 0), (0, min(steps_at_once - 1, step_count))):
            if begin >= stop:
                continue
            piece = template.rows(begin, stop, partition_count)
            markers, commit_ids = _markers(begin, stop, partition_count, steps_per_commit, commits)
            piece = piece.set_column(piece.column_names.index("commit_id"), "commit_id", pa.array(commit_ids))
            writer.write(piece.cast(STATE_TABLE_SCHEMA))
            writer.write(rows_to_table(markers, leader_epoch=1))
            rows += piece.num_rows + len(markers)
            commits += len(markers)
            transitions += len(piece["transitions"].combine_chunks().flatten())
    files = writer.close()
    assert try_commit(path, version, files, 1, {COMMIT_TRANSACTION: commits - 1})
    return History(rows + 1, transitions, commits)


def _markers(
    first: int, end: int, partition_count: int, steps_per_commit: int, commit_id: int
) -> tuple[list[StateRow], Numbers]:
    """Return the markers of some steps, and the commit id of each row of them."""
    markers: list[StateRow] = []
    ids: list[Numbers] = []
    bounds = [*range(first, end, steps_per_commit), end]
    for begin, stop in pairwise(bounds):
        row_count = (stop - begin) * partition_count
        time_ms = _time_ms(stop - 1)
        # Without the models: they would take most of the time.
        payload = {
            **_NO_CONTENT,
            "row_count": row_count + 1,
            "end_offsets": {"0": (stop + 1) * partition_count},
            "cuts": [
                {
                    "partition": 0,
                    "end_offset": (step + 2) * partition_count,
                    "time_ms": _BEGIN_MS + (step + 1) * STEP_MS,
                }
                for step in range(begin, stop)
            ],
            "message_times_ms": {"0": time_ms},
        }
        markers.append(
            constructed(
                StateRow,
                record_type=RecordType.COMMIT_MARKER,
                commit_id=commit_id,
                time_ms=time_ms,
                payload=payload,
            )
        )
        ids.append(np.full(row_count, commit_id, np.int64))
        commit_id += 1
    return markers, np.concatenate(ids)


def _time_ms(step: int) -> int:
    return _BEGIN_MS + (step + 1) * STEP_MS


class _Files:
    """Large files, one after the other for each date."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: dict[str, LargeDataFile] = {}
        self._files: list[NewFile] = []

    def write(self, rows: pa.Table) -> None:
        for date in rows["date"].unique().to_pylist():
            of_date = rows.filter(pa.compute.equal(rows["date"], date))
            file = self._open.get(date)
            if file is None:
                file = self._open[date] = LargeDataFile(self._path, date)
            file.write(of_date)
            if file.row_count >= _ROWS_PER_FILE:
                self._files.append(self._open.pop(date).close())

    def close(self) -> list[NewFile]:
        return self._files + [file.close() for file in self._open.values()]


class _Template:
    """The first snapshot of a share-partition, and the rows of its first two periods."""

    def __init__(self) -> None:
        rows = list(_engine_rows(2 * CYCLES_PER_PERIOD + 1))
        self._first = rows_to_table(rows[:1], 0, 1)
        # The released record of the cycle before makes the second period the one that repeats.
        size = 2 * CYCLES_PER_PERIOD
        self._beginning = rows_to_table(rows[1 : 1 + size], 0, 1)
        self._period = rows_to_table(rows[1 + size : 1 + 2 * size], 0, 1)
        self._offsets_per_period = rows[2 * size].start_offset - rows[size].start_offset

    def rows(self, first: int, end: int, partition_count: int) -> pa.Table:
        """Return rows of all share-partitions, step by step; step -1 is the first snapshot."""
        if first < 0:
            steps, source, periods = np.array([-1]), self._first, np.zeros(1, np.int64)
            indices = np.zeros(1, np.int64)
        else:
            size = self._period.num_rows
            steps = np.arange(first, end, dtype=np.int64)
            source = pa.concat_tables([self._beginning, self._period]).combine_chunks()
            # The rows of later periods are those of the second one, further on.
            periods = np.maximum(steps // size - 1, 0)
            indices = steps - periods * size
        repeats = np.repeat(np.arange(len(steps)), partition_count)
        steps, periods, indices = steps[repeats], periods[repeats], indices[repeats]
        partitions = np.tile(np.arange(partition_count, dtype=np.int64), len(steps) // partition_count)
        taken = source.take(pa.array(indices))
        offsets, times_ms = periods * self._offsets_per_period, periods * self._period.num_rows * STEP_MS
        request_offsets = (steps + 1) * partition_count + partitions
        columns = {name: taken[name].combine_chunks() for name in taken.column_names}
        for name, added in (("start_offset", offsets), ("snapshot_epoch", periods), ("time_ms", times_ms)):
            columns[name] = pa.array(columns[name].to_numpy() + added)
        columns["request_offset"] = pa.array(request_offsets)
        columns["partition"] = pa.array(partitions)
        columns["date"] = pa.array([_DATES[day] for day in (columns["time_ms"].to_numpy() // 86_400_000)])
        for name in ("state_batches", "transitions", "runs"):
            columns[name] = _shifted(columns[name], offsets, times_ms, request_offsets)
        return pa.table(columns).select(STATE_TABLE_SCHEMA.names)


class _Dates(dict[int, str]):
    """UTC date of each day since the epoch."""

    def __missing__(self, day: int) -> str:
        self[day] = utc_date(int(day) * 86_400_000)
        return self[day]


_DATES = _Dates()


def _shifted(entries: pa.ListArray, offsets: Numbers, times_ms: Numbers, request_offsets: Numbers) -> pa.ListArray:
    """Return the entries of rows with later offsets and times."""
    lengths = pa.compute.list_value_length(entries).to_numpy()
    flat = entries.flatten()
    fields = list(flat.type)
    columns = []
    for field in fields:
        column = flat.field(field.name)
        if field.name in _SHIFTED:
            column = pa.array(column.to_numpy() + np.repeat(offsets, lengths))
        elif field.name in _TIMES:
            values = column.to_numpy()
            column = pa.array(np.where(values > 0, values + np.repeat(times_ms, lengths), 0))
        elif field.name == "request_offset":
            column = pa.array(np.repeat(request_offsets, lengths))
        columns.append(column.cast(field.type))
    borders = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(borders), pa.StructArray.from_arrays(columns, fields=fields))


def _engine_rows(cycle_count: int) -> Iterator[StateRow]:
    """Yield the rows of one share-partition: its first snapshot, then two rows a cycle."""
    led = LedPartition("records", "AAAAAAAAAAAAAAAAAAAAAA", 0, SharePartition(0), SnapshotEpochs())
    limits = SharePartitionLimits()
    for step in range(-1, 2 * cycle_count):
        now_ms = _time_ms(step)
        records: list[SharePartitionRecord] = []
        state = led.share_partition
        if step >= 0 and step % 2 == 0:
            request = AcquireRequest("member", _RECORDS, mode=AcquireMode.RECORD_LIMIT)
            records += state.acquire(request, limits, 2**50, now_ms)[1]
        elif step >= 0:
            records += state.acknowledge("member", list(_acknowledgements(state)), limits, now_ms)
        led.record(records, now_ms, step + 1)
        row = led.take_row(UPDATES_PER_SNAPSHOT, _NO_REQUESTS)
        assert row is not None
        yield row.model_copy(
            update={"group_id": "benchmark", "request_partition": 0, "request_offset": step + 1, "time_ms": now_ms}
        )


def _acknowledgements(state: SharePartition) -> Iterator[AcknowledgementBatch]:
    """Accept all that is held but the last record, which is released."""
    runs = state.runs.held_by("member")
    for run in runs[:-1]:
        yield AcknowledgementBatch(run.first_offset, run.last_offset, (AcknowledgeType.ACCEPT,))
    last = runs[-1]
    if last.first_offset < last.last_offset:
        yield AcknowledgementBatch(last.first_offset, last.last_offset - 1, (AcknowledgeType.ACCEPT,))
    yield AcknowledgementBatch(last.last_offset, last.last_offset, (AcknowledgeType.RELEASE,))


_NO_REQUESTS = LastRequests({}, 1)
