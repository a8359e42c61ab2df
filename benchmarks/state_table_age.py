"""How the state table ages: commit times, files and bytes, and what a recovery reads, commit after commit.

    python benchmarks/state_table_age.py --commits 10000

Members of one group acquire and accept records of every share-partition in each batch; now and then one of them joins
or leaves. Rows are made by the engine, as a leader makes them. Their time goes on by `--batch-interval-ms` a batch; the
table's retention of its log and of deleted files is shortened by as much as the run is faster than that.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sharegroup.actor.led_partition import LedPartition
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.group_records import ShareGroupMemberMetadata, ShareGroupMemberRemoved, ShareGroupMetadata
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold
from sharegroup.state.maintenance import table_size
from sharegroup.state.pruning import prune
from sharegroup.state.reader import StateTableReader
from sharegroup.state.writer import COMPACT_EVERY_COMMITS, StateTableWriter

START_MS = 1_767_225_600_000
LIMITS = SharePartitionLimits(lock_duration_ms=30_000, delivery_count_limit=5, max_record_locks=100_000)
UPDATES_PER_SNAPSHOT = 500
METADATA_EVERY_BATCHES = 100
MESSAGES_PER_BATCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=10_000, help="batches to commit")
    parser.add_argument("--partitions", type=int, default=8, help="share-partitions, busy in each batch")
    parser.add_argument("--cold-partitions", type=int, default=8, help="share-partitions, busy in the first batch only")
    parser.add_argument("--members", type=int, default=4, help="members that acquire in each batch")
    parser.add_argument("--records", type=int, default=200, help="records that a member acquires of a share-partition")
    parser.add_argument("--compact-every", type=int, default=COMPACT_EVERY_COMMITS, help="commits between upkeeps")
    parser.add_argument("--batch-interval-ms", type=int, default=360, help="time between two batches, as rows have it")
    parser.add_argument("--commits-per-second", type=int, default=30, help="how fast this machine is at it, roughly")
    options = parser.parse_args()
    print(f"settings: {vars(options)}")
    with tempfile.TemporaryDirectory() as folder:
        run(options, f"{folder}/state")


def run(options: argparse.Namespace, path: str) -> None:
    writer = StateTableWriter.open(path, {}, compact_every_commits=options.compact_every)
    shorten_retentions(path, max(1.0, options.batch_interval_ms * options.commits_per_second / 1_000))
    load = Load(options)
    seconds: list[float] = []
    print(f"{'commits':>8}{'append p50':>12}{'p99':>8}{'max ms':>8}  what the table has, and what a recovery takes")
    for commit_id in range(options.commits):
        rows = load.batch(commit_id)
        started = time.perf_counter()
        writer.append(rows)
        seconds.append(time.perf_counter() - started)
        if (commit_id + 1) % (options.commits // 5 or 1) == 0:
            report(commit_id + 1, seconds, path)
            seconds = []
    started = time.perf_counter()
    last_ms = load.time_ms
    pruning = prune(path, last_ms - (last_ms - START_MS) // 10)
    print(f"pruned the older nine tenths in {time.perf_counter() - started:.1f} s: {dict(pruning.row_count_by_type)}")
    writer.maintain()
    report(options.commits, [0.0], path)


def shorten_retentions(path: str, factor: float) -> None:
    seconds = {"delta.logRetentionDuration": 600, "delta.deletedFileRetentionDuration": 3_600}
    shortened = {key: f"interval {max(1, round(value / factor))} seconds" for key, value in seconds.items()}
    print(f"retentions: {shortened}")
    try:
        DeltaTable(path).alter.set_table_properties(shortened)
    except CommitFailedError as error:
        raise SystemExit(f"another process writes {path}: {error}") from None


def report(commits: int, seconds: Sequence[float], path: str) -> None:
    size = table_size(path)
    started = time.perf_counter()
    recovery = StateTableReader(path).recovery()
    folded = fold(recovery.rows)
    recovery_s = time.perf_counter() - started
    partitions = sum(len(group.partitions) for group in folded.groups.values())
    print(
        f"{commits:>8,}{percentile(seconds, 50):>12.1f}{percentile(seconds, 99):>8.1f}{1_000 * max(seconds):>8.0f}  "
        f"live {size.live.files} files, {size.live.size_bytes / 1e6:.1f} MB; "
        f"with earlier versions {size.data.files:,}, {size.data.size_bytes / 1e6:.1f} MB; "
        f"log {size.log.files:,}, {size.log.size_bytes / 1e6:.1f} MB; "
        f"recovery {len(recovery.rows):,} rows, {len(recovery.files)} of {recovery.file_count} files, "
        f"{recovery_s:.2f} s, {partitions} share-partitions",
        flush=True,
    )


def percentile(seconds: Sequence[float], percent: int) -> float:
    """Milliseconds."""
    values = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else list(seconds) * 100
    return 1_000 * values[percent - 1]


@dataclass
class Load:
    """Share-partitions of one group, and the rows of batch after batch."""

    options: argparse.Namespace
    time_ms: int = START_MS
    request_offset: int = -1
    group_epoch: int = 0
    held: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.options.partitions + self.options.cold_partitions
        self.led = [LedPartition("orders", "topic-id", p, SharePartition(0), SnapshotEpochs()) for p in range(count)]

    def batch(self, commit_id: int) -> list[StateRow]:
        """The rows of the next batch, its marker first."""
        self.time_ms += self.options.batch_interval_ms
        self.request_offset += MESSAGES_PER_BATCH
        rows = list(self._metadata(commit_id)) if commit_id % METADATA_EVERY_BATCHES == 0 else []
        for led in self.led if commit_id == 0 else self.led[: self.options.partitions]:
            self._work(led)
            row = led.take_row(UPDATES_PER_SNAPSHOT)
            if row is not None:
                rows.append(
                    row.model_copy(update={"topic_id": "topic-id", "topic": "orders", "partition": led.partition})
                )
        payload = CommitMarkerPayload(row_count=len(rows) + 1, end_offsets={0: self.request_offset + 1})
        marker = StateRow(record_type=RecordType.COMMIT_MARKER, payload=payload.model_dump(mode="json"))
        group = {"group_id": "group", "request_partition": 0, "request_offset": self.request_offset}
        stamp = {"commit_id": commit_id, "time_ms": self.time_ms}
        return [marker.model_copy(update=stamp), *(row.model_copy(update={**group, **stamp}) for row in rows)]

    def _work(self, led: LedPartition) -> None:
        for number in range(self.options.members):
            member_id = f"member-{number}-0123456789"
            key = (led.partition, member_id)
            accepted = [AcknowledgementBatch(*held, (AcknowledgeType.ACCEPT,)) for held in self.held.pop(key, [])]
            if accepted:
                records = led.share_partition.acknowledge(member_id, accepted, LIMITS, self.time_ms)
                led.record(records, self.time_ms, self.request_offset)
            request = AcquireRequest(member_id, self.options.records, self.options.records, AcquireMode.RECORD_LIMIT)
            acquired, applied = led.share_partition.acquire(request, LIMITS, 2**62, self.time_ms)
            led.record(applied, self.time_ms, self.request_offset)
            self.held[key] = [(run.first_offset, run.last_offset) for run in acquired]

    def _metadata(self, commit_id: int) -> Iterator[StateRow]:
        self.group_epoch += 1
        member_id = f"member-{commit_id}"
        records = [
            ShareGroupMetadata(epoch=self.group_epoch),
            ShareGroupMemberMetadata(member_id=member_id, subscribed_topic_names=["orders"]),
            ShareGroupMemberRemoved(member_id=f"member-{commit_id - METADATA_EVERY_BATCHES}", reason="left"),
        ]
        payload = {"records": [record.model_dump(mode="json") for record in records]}
        yield StateRow(record_type=RecordType.GROUP_METADATA, payload=payload)


if __name__ == "__main__":
    main()
