"""Changes of a share-partition, as data. State changes only by applying these, both live and in recovery.

Values that each request creates are named tuples, here and in `runs`: a frozen dataclass takes twice as long to create.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from sharegroup.core.cause_rules import is_persisted_by_kafka
from sharegroup.core.open_writes import WriteClosed, WriteOpened
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.core.run import NO_WRITE, Run

# A lookup in an enumeration takes as long as one in a dictionary, and one in a tuple of its members longer.
_ACQUIRED, _RESOLVING = RecordState.ACQUIRED, RecordState.RESOLVING

MAX_SPAN_OFFSETS = 1_000_000
"""Offsets from the SPSO to the last one in flight; a larger window may be in flight as a whole."""

MAX_RUNS = 10_000
"""Runs in flight; memory, snapshots and metrics of a share-partition cost with them."""

PartitionKey = tuple[str, int]
"""A share-partition of a group: topic id and partition."""


class Transition(NamedTuple):
    """A state change of a range of records.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        from_state: the state before; None when the records were not in flight.
        delivery_count: the count after.
        member_id: the member that holds or held the records; "" when none did.
        deadline_ms: the deadline after; see `Run`.
        is_suspect: the suspicion after; see `Run`.
        write_version: the open write after; see `Run`.
        intended: the end of the delivery that is in doubt; see `Run`.
    """

    first_offset: int
    last_offset: int
    from_state: RecordState | None
    to_state: RecordState
    delivery_count: int
    member_id: str
    deadline_ms: int
    cause: Cause
    is_suspect: bool = False
    write_version: int = NO_WRITE
    intended: Cause | None = None

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    @property
    def run(self) -> Run:
        """The records after the change."""
        is_undecided = self.to_state is _ACQUIRED or self.to_state is _RESOLVING
        holder = self.member_id if is_undecided else ""
        return Run(
            self.first_offset,
            self.last_offset,
            self.to_state,
            self.delivery_count,
            holder,
            self.deadline_ms,
            self.is_suspect,
            self.write_version,
            self.intended,
        )

    @property
    def is_persisted_by_kafka(self) -> bool:
        """True if Kafka's share coordinator would store it."""
        return is_persisted_by_kafka(self.to_state, self.cause)


@dataclass(frozen=True, slots=True)
class StartOffsetMoved:
    """A move of the share-partition start offset (SPSO); state below it is dropped.

    Attributes:
        cause: None when it passed finished records; otherwise LOG_START or OFFSET_RESET.
    """

    start_offset: int
    cause: Cause | None = None


SharePartitionRecord = Transition | StartOffsetMoved | WriteOpened | WriteClosed


class AcknowledgementBatch(NamedTuple):
    """One range of a request's acknowledgements (KIP-932 AcknowledgementBatch).

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        types: one type for the whole range, or one for each offset.
        redelivery_delay_ms: delay before records that are released or unread are available again; None = the group's
            back-off for released ones, none for unread ones.
        write_version: the write that the records were acquired with; NO_WRITE without one.
        is_begun: True if a run of the write has begun to write, or still may: whether it is in the sink is not known.
    """

    first_offset: int
    last_offset: int
    types: tuple[AcknowledgeType, ...]
    redelivery_delay_ms: int | None = None
    write_version: int = NO_WRITE
    is_begun: bool = False

    def runs(self) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """Yield the parts of one type: first offset, last offset and type."""
        if len(self.types) == 1:
            yield self.first_offset, self.last_offset, self.types[0]
            return
        first_offset = self.first_offset
        for acknowledge_type, group in groupby(self.types):
            size = sum(1 for _ in group)
            yield first_offset, first_offset + size - 1, acknowledge_type
            first_offset += size


@dataclass(frozen=True, slots=True)
class SharePartitionLimits:
    """The group configuration that the engine needs, in force at the moment of a call.

    Attributes:
        lock_duration_ms: `share.record.lock.duration.ms`.
        delivery_count_limit: `share.delivery.count.limit`.
        max_record_locks: `share.partition.max.record.locks`, the window: records that are acquired, or available and
            not delayed. Fresh records are acquired while there are fewer.
        is_renew_enabled: `share.renew.acknowledge.enable`.
        has_dead_letter_queue: True if archived records pass through ARCHIVING.
        redelivery_backoff_ms: `share.redelivery.backoff.ms`; 0 = released records are available at once.
        redelivery_backoff_max_ms: `share.redelivery.backoff.max.ms`.
        is_draining: `share.drain.enable`: only records that were in flight before are acquired.
        max_span_offsets: offsets from the SPSO to the last one in flight, unless the window is larger.
        max_runs: runs in flight; no fresh records are acquired while there are so many.
    """

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 1_000_000
    is_renew_enabled: bool = True
    has_dead_letter_queue: bool = False
    redelivery_backoff_ms: int = 0
    redelivery_backoff_max_ms: int = 60_000
    is_draining: bool = False
    max_span_offsets: int = MAX_SPAN_OFFSETS
    max_runs: int = MAX_RUNS

    @property
    def span_limit(self) -> int:
        """Offsets from the SPSO within which fresh records are acquired."""
        return max(self.max_span_offsets, self.max_record_locks)
