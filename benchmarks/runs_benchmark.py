"""Operations of a share-partition with few and with many runs in flight.

    python -m benchmarks.runs_benchmark

Operations a second of acquire, acknowledge, lock expiry and session close at 100 and at 100,000 runs, and how many
times slower they are with many. Every operation touches one run, so the ratio should stay near that of the logarithms
(2.5). `acknowledge_one` is the acknowledgement of a single record, as consumers make it one by one: in the order of the
offsets, and `acknowledge_one_random` anywhere, where most of the time goes to memory that is in no cache.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Figure, check_load, print_figures, print_head
from sharegroup.core.acquisition import AcquireMode, AcquireRequest
from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition

FEW, MANY = 100, 100_000
TARGET_PER_S = 100_000
OPERATIONS = 40
"""Operations on few runs; on many, a tenth of the runs."""
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
    share_partition.acquire(request, LIMITS, log_end_offset=share_partition.next_offset, now_ms=0)


def acknowledge(share_partition: SharePartition, index: int) -> None:
    """Accept one run in the middle."""
    held = share_partition.runs.held_by(f"member-{index}")[0]
    batch = AcknowledgementBatch(held.first_offset, held.last_offset, (AcknowledgeType.ACCEPT,))
    share_partition.acknowledge(held.member_id, [batch], LIMITS, now_ms=0)


def acknowledge_one(share_partition: SharePartition, index: int) -> None:
    """Accept the first record of a run in the middle."""
    first_offset = 1 + 2 * index
    batch = AcknowledgementBatch(first_offset, first_offset, (AcknowledgeType.ACCEPT,))
    share_partition.acknowledge(f"member-{index}", [batch], LIMITS, now_ms=0)


def expire(share_partition: SharePartition, index: int) -> None:
    """End the one lock that is due."""
    share_partition.expire_locks(LIMITS, now_ms=share_partition.next_deadline_ms or 0)


def close_session(share_partition: SharePartition, index: int) -> None:
    """Take back what one member holds."""
    share_partition.release_member(f"member-{index}", LIMITS, now_ms=0)


OPERATIONS_BY_NAME: dict[str, Operation] = {
    "acknowledge_one": acknowledge_one,
    "acknowledge_one_random": acknowledge_one,
    "acquire": acquire,
    "acknowledge": acknowledge,
    "lock_expiry": expire,
    "session_close": close_session,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=MANY, help="runs of the large share-partition")
    parser.add_argument("--repetitions", type=int, default=200, help="of operations on few runs; a 40th on many")
    parser.add_argument("--any-load", action="store_true", help="measure on a busy machine, too")
    options = parser.parse_args(arguments)
    check_load(options.any_load)
    with TemporaryDirectory(prefix="benchmark-") as folder:
        print_head(options, Path(folder))
    print_figures(run(options.runs, options.repetitions))


def run(run_count: int, repetitions: int) -> list[Figure]:
    """Measure all operations."""
    growth = math.log(run_count) / math.log(FEW)
    figures: list[Figure] = []
    for name, operation in OPERATIONS_BY_NAME.items():
        is_random = name.endswith("_random")
        few = operations_per_second(operation, FEW, repetitions, is_random)
        many = operations_per_second(operation, run_count, max(1, repetitions // 40), is_random)
        is_target = name == "acknowledge_one"
        figures += [
            Figure(f"runs.{name}.runs_{run_count}", many, "1/s", TARGET_PER_S if is_target else None, False),
            Figure(f"runs.{name}.runs_{FEW}", few, "1/s"),
            Figure(f"runs.{name}.slower", few / many, "x", growth if is_target else None),
        ]
    started = time.perf_counter()
    built(run_count)
    return [*figures, Figure(f"runs.building.runs_{run_count}", time.perf_counter() - started, "s")]


def operations_per_second(operation: Operation, run_count: int, repetitions: int, is_random: bool) -> float:
    """The best of some repetitions, each on a share-partition of its own."""
    best = 0.0
    held = range(0, run_count - 1, 2)
    count = max(OPERATIONS, run_count // 10)
    indexes = random.Random(1).sample(held, count) if is_random else held[-count:]
    for _ in range(repetitions):
        share_partition = built(run_count)
        started = time.perf_counter()
        for index in indexes:
            operation(share_partition, index)
        best = max(best, len(indexes) / (time.perf_counter() - started))
    return best


if __name__ == "__main__":
    main()
