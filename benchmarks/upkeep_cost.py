"""The CPU that the upkeep of a state table uses beside a steady load of commits.

    python -m benchmarks.upkeep_cost --rate 50 --duration 120

Each commit has a marker with responses, and rows of share-partitions that are acquired and accepted in turns. The
upkeep runs in this process between two commits, so that its CPU, that of the libraries' threads included, can be
distinguished from that of the appends; no processor runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import Figure, check_load, print_figures, print_head
from sharegroup.coordinator.share_coordinator import SnapshotEpochs, row_type, share_partition_row
from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord, Transition
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.marker import CommitMarkerPayload, OutboxResponse
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry
from sharegroup.state.maintenance import table_size
from sharegroup.state.upkeep import SNAPSHOT_INTERVAL_MS, Upkeep, UpkeepReport
from sharegroup.state.writer import StateTableWriter

TARGET_PERCENT = 10.0
MOST_LOG_FILES = 3_000
_GROUPS, _PARTITIONS = 20, 5
_ROWS_PER_COMMIT = 5
_RECORDS_PER_FETCH = 10
_UPDATES_PER_SNAPSHOT = 500
_RESPONSE = "x" * 300


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50, help="commits/s")
    parser.add_argument("--duration", type=float, default=120, help="seconds")
    parser.add_argument("--folder", type=Path, help="folder for a new folder with all data (default: the system's)")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")
    options = parser.parse_args(arguments)
    check_load(options.any_load)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=options.folder) as folder:
        print_head(options, Path(folder))
        print_figures(run(str(Path(folder, "state")), options.rate, options.duration))


def run(path: str, rate: float, duration_s: float) -> list[Figure]:
    """Commit at the rate, and give the upkeep its turn after each commit."""
    writer = StateTableWriter.open(path, {})
    upkeep = Upkeep(path, SNAPSHOT_INTERVAL_MS)
    upkeep_s = 0.0
    most_log_files = 0
    began_s = time.monotonic()
    for commit_id, rows in enumerate(commits()):
        due_s = began_s + commit_id / rate
        if due_s - began_s > duration_s:
            break
        time.sleep(max(0.0, due_s - time.monotonic()))
        writer.append(rows, commit_id)
        started_s = time.process_time()
        report = upkeep.run_if_due()
        used_s = time.process_time() - started_s
        upkeep_s += used_s
        if report is not None:
            size = table_size(path)
            most_log_files = max(most_log_files, size.log.files)
            print(_round_text(commit_id + 1, report, used_s), f"{size.live.files} live files", flush=True)
    # The commits may have come later than they were due.
    percent = 100 * upkeep_s * rate / (commit_id + 1)
    return [
        Figure("upkeep_cost.table.cpu", percent, "%", TARGET_PERCENT),
        Figure("upkeep_cost.table.log_files", most_log_files, "files", MOST_LOG_FILES),
    ]


@dataclass
class _Led:
    """One share-partition of the load."""

    group: int
    partition: int
    share_partition: SharePartition = field(default_factory=lambda: SharePartition(0))
    epochs: SnapshotEpochs = field(default_factory=SnapshotEpochs)


def commits() -> Iterator[list[StateRow]]:
    """Yield the rows of one commit after the other, without end."""
    led = [_Led(group, partition) for group in range(_GROUPS) for partition in range(_PARTITIONS)]
    turn = 0
    commit_id = 0
    while True:
        now_ms = time.time_ns() // 1_000_000
        rows = []
        for _ in range(_ROWS_PER_COMMIT):
            rows.append(_row(led[turn % len(led)], turn, now_ms))
            turn += 1
        responses = [OutboxResponse(partition=0, member_id="member", value=_RESPONSE) for _ in rows]
        marker = CommitMarkerPayload(end_offsets={0: turn}, responses=responses)
        yield [
            StateRow(record_type=RecordType.COMMIT_MARKER, time_ms=now_ms, payload=marker.model_dump(mode="json")),
            *rows,
        ]
        commit_id += 1


def _row(led: _Led, offset: int, now_ms: int) -> StateRow:
    """Let a member accept what it holds, or acquire records when it holds none."""
    limits = SharePartitionLimits()
    held = led.share_partition.runs.held_by("member")
    if held:
        batches = [AcknowledgementBatch(r.first_offset, r.last_offset, (AcknowledgeType.ACCEPT,)) for r in held]
        records: Sequence[SharePartitionRecord] = led.share_partition.acknowledge("member", batches, limits, now_ms)
    else:
        request = AcquireRequest("member", _RECORDS_PER_FETCH)
        _, records = led.share_partition.acquire(request, limits, 2**40, now_ms)
    entries = [
        TransitionEntry(
            first_offset=record.first_offset,
            last_offset=record.last_offset,
            from_state=record.from_state,
            to_state=record.to_state,
            delivery_count=record.delivery_count,
            member_id=record.member_id,
            deadline_ms=record.deadline_ms,
            cause=record.cause,
            time_ms=now_ms,
            request_offset=offset,
        )
        for record in records
        if isinstance(record, Transition)
    ]
    kind = row_type(led.epochs, entries, _UPDATES_PER_SNAPSHOT)
    led.epochs = led.epochs.after(kind)
    address = {
        "group_id": f"group-{led.group}",
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "topic": "records",
        "partition": led.partition,
        "request_partition": 0,
        "request_offset": offset,
        "time_ms": now_ms,
    }
    return share_partition_row(kind, led.epochs.snapshot_epoch, led.share_partition, entries).model_copy(update=address)


def _round_text(commits: int, report: UpkeepReport, used_s: float) -> str:
    return (
        f"commit {commits}: round of {report.duration_ms} ms, {1_000 * used_s:.0f} ms of CPU: merged "
        f"{report.merged_files} files, snapshot of {report.snapshot_rows} rows, deleted {report.deleted_files};"
    )


if __name__ == "__main__":
    main()
