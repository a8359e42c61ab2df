"""What can happen to a share-partition, as data. State changes only by applying these, live and in recovery alike."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState


@dataclass(frozen=True, slots=True)
class Transition:
    """A range of records changed its state.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        from_state: the state before; None when the records were not in flight.
        to_state: the state after.
        delivery_count: the count after.
        member_id: who holds, or held, the records; "" when nobody did.
        deadline_ms: "locked until" when ACQUIRED, "not before" when AVAILABLE, else 0.
        cause: why.
    """

    first_offset: int
    last_offset: int
    from_state: RecordState | None
    to_state: RecordState
    delivery_count: int
    member_id: str
    deadline_ms: int
    cause: Cause

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    @property
    def is_persisted_by_kafka(self) -> bool:
        """Whether Kafka's share coordinator would store it.

        Not an acquisition, a renewal, or `unread`; nor what the log start passes, of which Kafka writes nothing: the
        new start offset goes out with the next write (recorded of 4.3.1).
        """
        return self.to_state is not RecordState.ACQUIRED and self.cause not in (Cause.UNREAD, Cause.LOG_START)


@dataclass(frozen=True, slots=True)
class StartOffsetMoved:
    """The share-partition start offset (SPSO) moved; what lies below it is forgotten.

    Attributes:
        start_offset: the new SPSO.
        cause: None when it passed finished records; LOG_START or OFFSET_RESET when it was made to move.
    """

    start_offset: int
    cause: Cause | None = None


SharePartitionRecord = Transition | StartOffsetMoved


@dataclass(frozen=True, slots=True)
class AcquiredRange:
    """Records handed to a member: inclusive offsets and the delivery count of each (KIP-932 AcquiredRecords)."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class AcknowledgementBatch:
    """One range of a request's acknowledgements (KIP-932 AcknowledgementBatch).

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        types: one type for the whole range, or one for each offset.
        redelivery_delay_ms: how long what is released stays away from everybody; None = as the group's back-off says.
    """

    first_offset: int
    last_offset: int
    types: tuple[AcknowledgeType, ...]
    redelivery_delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SharePartitionLimits:
    """The group configuration that the engine needs, in force at the moment of a call.

    Attributes:
        lock_duration_ms: `share.record.lock.duration.ms`.
        delivery_count_limit: `share.delivery.count.limit`.
        max_record_locks: `share.partition.max.record.locks`: offsets from the SPSO to the last one in flight.
        is_renew_enabled: `share.renew.acknowledge.enable`.
        has_dead_letter_queue: whether archived records go by ARCHIVING.
        redelivery_backoff_ms: `share.redelivery.backoff.ms`; 0 = what goes back is available at once.
        redelivery_backoff_max_ms: `share.redelivery.backoff.max.ms`.
    """

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    is_renew_enabled: bool = True
    has_dead_letter_queue: bool = False
    redelivery_backoff_ms: int = 0
    redelivery_backoff_max_ms: int = 60_000
