"""What a member holds: acquired ranges of offsets under one lock deadline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.core.record_state import AcknowledgeType


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Records of one partition that the member holds.

    Attributes:
        topic_id: topic id; to be compared before records are used, since a topic can be created again.
        topic: topic name.
        partition: partition.
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        delivery_count: deliveries of each record, this one included.
        isolation_level: how they are to be read: under read_committed, offsets of aborted records have no record.
    """

    topic_id: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    @property
    def key(self) -> PartitionKey:
        """The partition."""
        return self.topic_id, self.partition

    @property
    def record_count(self) -> int:
        """How many offsets it has."""
        return self.last_offset - self.first_offset + 1

    def acknowledgement(self, acknowledge_type: AcknowledgeType, reason: str = "") -> Acknowledgement:
        """The same type for the whole range."""
        return Acknowledgement(
            self.topic_id, self.partition, self.first_offset, self.last_offset, acknowledge_type, reason, self.topic
        )


@dataclass(frozen=True, slots=True)
class Acquisition:
    """What one fetch brought.

    Attributes:
        ranges: the ranges, in the leader's order.
        lock_deadline_ms: when the locks end, epoch ms.
        lock_timeout_ms: how long they last from the acquisition on.
        excess_count: records at the end, beyond the number that was asked for.
        following: ranges of the same fetch that are to be taken next.
    """

    ranges: tuple[HeldRange, ...]
    lock_deadline_ms: int
    lock_timeout_ms: int
    excess_count: int = 0
    following: tuple[HeldRange, ...] = ()

    @property
    def record_count(self) -> int:
        """How many records it has."""
        return sum(held.record_count for held in self.ranges)

    def divided(self, max_records: int | None) -> tuple[Acquisition, Acquisition | None]:
        """The first ranges that have so many records together (None: all ranges), and the rest.

        What is beyond the number that was asked for came along with other records, and stays with them.
        """
        if max_records is None:
            return self, None
        sizes = accumulate(held.record_count for held in self.ranges)
        count = 1 + sum(1 for size in sizes if size < max_records)
        rest = replace(self, ranges=self.ranges[count:])
        if rest.record_count <= self.excess_count:
            return self, None
        return replace(self, ranges=self.ranges[:count], following=rest.ranges), rest

    def is_over(self, epoch_ms: int) -> bool:
        """Whether the locks have ended, so that other members may have the records."""
        return epoch_ms >= self.lock_deadline_ms

    @property
    def stale_at_ms(self) -> int:
        """When half of the locks' time has passed, epoch ms; what is left after that may be too short to process."""
        return self.lock_deadline_ms - self.lock_timeout_ms // 2


def unread(ranges: Iterable[HeldRange], reason: str) -> list[Acknowledgement]:
    """Acknowledgements that take the delivery of records back that no application has seen."""
    return [held.acknowledgement(AcknowledgeType.UNREAD, reason) for held in ranges]
