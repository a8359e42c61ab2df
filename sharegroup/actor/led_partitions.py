"""The share-partitions of a leader, with an index for each question that is asked in every cut.

Everything that the engine of a share-partition applied goes through `record`, which keeps the indexes in step. So a
cut costs with the share-partitions that it touches, however many the group has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sharegroup.actor.due_times import DueTimes
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.share_session import PartitionKey
from sharegroup.core.records import SharePartitionRecord, Transition


class LedPartitions(Mapping[PartitionKey, LedPartition]):
    """Share-partitions that have their state, by topic id and partition.

    Args:
        partitions: those that are there from the beginning.

    Attributes:
        lock_deadlines: when the next lock of each ends.
        availability_times: when the next record of each becomes available that was released with a delay.
        changed: share-partitions to be looked at for the fetches that wait there: something happened in this cut.
    """

    def __init__(self, partitions: Iterable[LedPartition] = ()) -> None:
        self._partitions: dict[PartitionKey, LedPartition] = {}
        self._topics: dict[str, set[PartitionKey]] = {}
        self._held: dict[str, set[PartitionKey]] = {}
        self._touched: set[PartitionKey] = set()
        self.lock_deadlines: DueTimes[PartitionKey] = DueTimes()
        self.availability_times: DueTimes[PartitionKey] = DueTimes()
        self.changed: set[PartitionKey] = set()
        for led in partitions:
            self.add(led)
        # Nothing happened to them yet, and nothing can be acquired before the log's offsets are known.
        self._touched.clear()
        self.changed.clear()

    def __getitem__(self, key: PartitionKey) -> LedPartition:
        return self._partitions[key]

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, led: LedPartition) -> None:
        """Lead a share-partition, in place of the one with the same key."""
        if led.key in self._partitions:
            self.remove(led.key)
        self._partitions[led.key] = led
        self._topics.setdefault(led.topic_id, set()).add(led.key)
        for member_id in led.share_partition.runs.member_ids:
            self._held.setdefault(member_id, set()).add(led.key)
        self._mark(led)

    def remove(self, key: PartitionKey) -> None:
        """Lead a share-partition no more."""
        led = self._partitions.pop(key)
        self._topics[led.topic_id].discard(key)
        if not self._topics[led.topic_id]:
            del self._topics[led.topic_id]
        for member_id in led.share_partition.runs.member_ids:
            self._release(member_id, key)
        self.lock_deadlines.set(key, None)
        self.availability_times.set(key, None)
        self._touched.discard(key)
        self.changed.add(key)

    def record(
        self,
        led: LedPartition,
        records: Iterable[SharePartitionRecord],
        time_ms: int,
        request_offset: int,
        reason_at: Callable[[int], str] = lambda _: "",
    ) -> None:
        """Note what the engine of a share-partition applied; see `LedPartition.record`."""
        records = list(records)
        if not records:
            return
        led.record(records, time_ms, request_offset, reason_at)
        for member_id in {record.member_id for record in records if isinstance(record, Transition)}:
            if member_id and led.share_partition.runs.is_held_by(member_id):
                self._held.setdefault(member_id, set()).add(led.key)
            else:
                self._release(member_id, led.key)
        self._mark(led)

    def of_topic(self, topic_id: str) -> list[LedPartition]:
        """The share-partitions of a topic, by partition."""
        return [self._partitions[key] for key in sorted(self._topics.get(topic_id, ()))]

    def has_topic(self, topic_id: str) -> bool:
        """Return True if a share-partition of the topic is led."""
        return topic_id in self._topics

    def held_by(self, member_id: str) -> list[LedPartition]:
        """The share-partitions in which a member holds records, in the order of their keys."""
        return [self._partitions[key] for key in sorted(self._held.get(member_id, ()))]

    def take_due_locks(self, now_ms: int) -> list[LedPartition]:
        """The share-partitions with a lock that ends by now; each is to be recorded."""
        return [self._partitions[key] for key in self.lock_deadlines.take_due(now_ms)]

    def take_touched(self) -> list[LedPartition]:
        """The share-partitions to which something happened since the last call, in the order of their keys."""
        touched, self._touched = self._touched, set()
        return [self._partitions[key] for key in sorted(touched)]

    def take_changed(self, now_ms: int) -> set[PartitionKey]:
        """The keys in `changed`, and those where released records become available by now; none is left."""
        for key in self.availability_times.take_due(now_ms):
            self.changed.add(key)
            share_partition = self._partitions[key].share_partition
            share_partition.make_available(now_ms)
            self.availability_times.set(key, share_partition.next_available_ms)
        changed, self.changed = self.changed, set()
        return changed

    def _mark(self, led: LedPartition) -> None:
        key = led.key
        self._touched.add(key)
        self.changed.add(key)
        self.lock_deadlines.set(key, led.share_partition.next_deadline_ms)
        self.availability_times.set(key, led.share_partition.next_available_ms)

    def _release(self, member_id: str, key: PartitionKey) -> None:
        keys = self._held.get(member_id)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._held[member_id]
