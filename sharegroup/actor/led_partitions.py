"""The share-partitions of a leader, with an index for each query of a cut.

Every change that the engine of a share-partition applied goes through `record`, which keeps the indexes in step. So
the cost of a cut grows with the share-partitions that it touches, not with those of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sharegroup.actor.group_writes import GroupWrites
from sharegroup.actor.holders import Holders
from sharegroup.actor.led_partition import LedPartition
from sharegroup.core.due_times import DueTimes
from sharegroup.core.open_writes import WriteClosed, WriteOpened
from sharegroup.core.record_state import Cause
from sharegroup.core.records import PartitionKey, SharePartitionRecord, Transition
from sharegroup.errors import ApiError, UnknownTopicIdError, UnknownTopicOrPartitionError


class LedPartitions(Mapping[PartitionKey, LedPartition]):
    """Share-partitions that have their state, by topic id and partition.

    Args:
        holders: fresh ones; `record` keeps them in step.
        writes: fresh ones; so are they.

    Attributes:
        lock_deadlines: the end of the next lock of each.
        availability_times: the time at which the next delayed record of each becomes available.
        changed: share-partitions that changed in this cut, to be checked for waiting fetches.
    """

    def __init__(self, holders: Holders, writes: GroupWrites, partitions: Iterable[LedPartition] = ()) -> None:
        self._partitions: dict[PartitionKey, LedPartition] = {}
        self._topics: dict[str, set[PartitionKey]] = {}
        self._holders = holders
        self.writes = writes
        self._touched: set[PartitionKey] = set()
        self.lock_deadlines: DueTimes[PartitionKey] = DueTimes()
        self.availability_times: DueTimes[PartitionKey] = DueTimes()
        self.changed: set[PartitionKey] = set()
        for led in partitions:
            self.add(led)
        for write in list(writes):
            self.refresh_write(write.version)
        # They have no changes yet, and no record can be acquired before the log's offsets are known.
        self._touched.clear()
        self.changed.clear()

    def __getitem__(self, key: PartitionKey) -> LedPartition:
        return self._partitions[key]

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, led: LedPartition) -> None:
        """Add a share-partition; it replaces the one with the same key."""
        if led.key in self._partitions:
            self.remove(led.key)
        self._partitions[led.key] = led
        self._topics.setdefault(led.topic_id, set()).add(led.key)
        runs = led.share_partition.runs
        for member_id in runs.member_ids:
            self._holders.hold(member_id, led.key, are_suspects=runs.are_suspects_held_by(member_id))
        for opened in led.share_partition.open_writes.values():
            self.writes.opened(led.key, opened.write)
        self._mark(led)

    def remove(self, key: PartitionKey) -> None:
        """Remove a share-partition."""
        led = self._partitions.pop(key)
        self._topics[led.topic_id].discard(key)
        if not self._topics[led.topic_id]:
            del self._topics[led.topic_id]
        for member_id in led.share_partition.runs.member_ids:
            self._holders.release(member_id, key)
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
        """Collect records that the engine of a share-partition applied; see `LedPartition.record`."""
        records = list(records)
        if not records:
            return
        led.record(records, time_ms, request_offset, reason_at)
        runs = led.share_partition.runs
        for member_id in {record.member_id for record in records if isinstance(record, Transition)}:
            if member_id and runs.is_held_by(member_id):
                self._holders.hold(member_id, led.key, are_suspects=runs.are_suspects_held_by(member_id))
            else:
                self._holders.release(member_id, led.key)
        if self.writes or led.share_partition.open_writes:
            self._note_writes(led.key, records)
        self._mark(led)

    def refresh_write(self, version: int) -> None:
        """Update whether an open write needs a lookup, after a change of its records."""
        keys = self.writes.keys_of(version)
        self.writes.refresh(version, (self._partitions[key].share_partition.runs for key in keys))

    def _note_writes(self, key: PartitionKey, records: Iterable[SharePartitionRecord]) -> None:
        in_doubt: set[int] = set()
        for record in records:
            if isinstance(record, WriteOpened):
                self.writes.opened(key, record.write)
            elif isinstance(record, WriteClosed):
                self.writes.closed(key, record.version)
            elif isinstance(record, Transition) and record.cause is Cause.IN_DOUBT:
                in_doubt.add(record.write_version)
        for version in sorted(in_doubt):
            self.refresh_write(version)

    def of_topic(self, topic_id: str) -> list[LedPartition]:
        """Return the share-partitions of a topic, by partition."""
        return [self._partitions[key] for key in sorted(self._topics.get(topic_id, ()))]

    def not_led_error(self, key: PartitionKey) -> ApiError:
        """Return the error of a share-partition that is not led here: of the topic, where none of it is."""
        if self.has_topic(key[0]):
            return UnknownTopicOrPartitionError("The share-partitions are not led here.")
        return UnknownTopicIdError("No share-partition of the topic is led here.")

    def topic_ids_from(self, topic_id: str) -> list[str]:
        """Return the ids of topics with share-partitions, sorted, from this one on."""
        return sorted(known_id for known_id in self._topics if known_id >= topic_id)

    def has_topic(self, topic_id: str) -> bool:
        """Return True if a share-partition of the topic is led."""
        return topic_id in self._topics

    def held_by(self, member_id: str) -> list[LedPartition]:
        """Return the share-partitions in which a member holds records, in the order of their keys."""
        return [self._partitions[key] for key in self._holders.keys_of(member_id)]

    def take_due_locks(self, now_ms: int) -> list[LedPartition]:
        """Return the share-partitions with a lock that ends by now; the caller must record each of them."""
        return [self._partitions[key] for key in self.lock_deadlines.take_due(now_ms)]

    def take_touched(self) -> list[LedPartition]:
        """Return the share-partitions that changed since the last call, in the order of their keys."""
        touched, self._touched = self._touched, set()
        return [self._partitions[key] for key in sorted(touched)]

    def take_changed(self, now_ms: int) -> set[PartitionKey]:
        """Remove and return the keys in `changed`, and those where released records become available by now."""
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
