"""What one operation of a share-partition costs with few and with many runs in flight.

    python benchmarks/runs_benchmark.py

Prints operations per second of acquire, acknowledge, lock expiry and session close at 100 and at 100,000 runs, and how
many times slower they are with many. Every operation touches one run, so the ratio should stay near that of the
logarithms (2.5).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.runs import Run
from sharegroup.core.share_partition import SharePartition

FEW, MANY = 100, 100_000
OPERATIONS = 40
LIMITS = SharePartitionLimits(max_record_locks=10_000_000)

Operation = Callable[[SharePartition, int], object]


def built(run_count: int) -> SharePartition:
    """A share-partition with two records a run: AVAILABLE, or acquired by a member of its own with its own deadline.

    The first record is held throughout, so that the start offset stays.
    """
    runs = [Run(0, 0, RecordState.ACQUIRED, 1, "first", 10**9)]
    for index in range(run_count - 1):
        first = 1 + 2 * index
        if index % 2:
            runs.append(Run(first, first + 1, RecordState.AVAILABLE, 1))
        else:
            runs.append(Run(first, first + 1, RecordState.ACQUIRED, 1, f"member-{index}", 1_000 + index))
    return SharePartition(0, runs)


def acquire(share_partition: SharePartition, index: int) -> None:
    """Take the lowest two available records."""
    request = AcquireRequest(f"acquirer-{index}", max_records=2, mode=AcquireMode.RECORD_LIMIT)
    share_partition.acquire(request, LIMITS, log_end_offset=0, now_ms=0)


def acknowledge(share_partition: SharePartition, index: int) -> None:
    """Accept one run in the middle."""
    held = share_partition.runs.held_by(f"member-{index}")[0]
    batch = AcknowledgementBatch(held.first_offset, held.last_offset, (AcknowledgeType.ACCEPT,))
    share_partition.acknowledge(held.member_id, [batch], LIMITS, now_ms=0)


def expire(share_partition: SharePartition, index: int) -> None:
    """End the one lock that is due."""
    share_partition.expire_locks(LIMITS, now_ms=share_partition.next_deadline_ms or 0)


def close_session(share_partition: SharePartition, index: int) -> None:
    """Take back what one member holds."""
    share_partition.release_member(f"member-{index}", LIMITS, now_ms=0)


def operations_per_second(operation: Operation, run_count: int) -> float:
    """The best of some repetitions, each on a share-partition of its own."""
    best = 0.0
    held = range(0, run_count - 1, 2)
    indexes = held[:: len(held) // OPERATIONS]
    for _ in range(200 if run_count == FEW else 5):
        share_partition = built(run_count)
        started = time.perf_counter()
        for index in indexes:
            operation(share_partition, index)
        best = max(best, len(indexes) / (time.perf_counter() - started))
    return best


def main() -> None:
    """Print the table."""
    print(f"{'operation':<16}{f'{FEW:,} runs':>16}{f'{MANY:,} runs':>16}{'slower':>10}")
    for name, operation in {
        "acquire": acquire,
        "acknowledge": acknowledge,
        "lock expiry": expire,
        "session close": close_session,
    }.items():
        few, many = operations_per_second(operation, FEW), operations_per_second(operation, MANY)
        print(f"{name:<16}{few:>14,.0f}/s{many:>14,.0f}/s{few / many:>9.2f}x")
    started = time.perf_counter()
    built(MANY)
    print(f"building {MANY:,} runs took {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
