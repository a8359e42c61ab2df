"""The history of share-partitions: the last state and the deliveries of every record that was ever in flight.

The live state drops records below the start offset; the history keeps them, as runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.run import Run
from sharegroup.core.runs import RunMap
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry


def last_run(entry: TransitionEntry) -> Run:
    """Return the state of records after a transition, without the time of its lock."""
    return entry.transition.run._replace(deadline_ms=0)


@dataclass
class PartitionCounts:
    """Counts of the changes of one share-partition.

    Attributes:
        start_offset: the SPSO after the last row.
        record_count_by_cause: cause → records that changed for it; a record counts each time.
        acquired_by_member: member id → records that it acquired, less those that it returned unread.
        accepted_by_member: member id → records that it accepted.
        last_ms_by_cause: cause → time of the last change for it; epoch ms.
        archived_at_limit_count: records archived because their deliveries were used up.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int = 0
    record_count_by_cause: Counter[Cause] = field(default_factory=Counter)
    last_ms_by_cause: dict[Cause, int] = field(default_factory=dict)
    acquired_by_member: Counter[str] = field(default_factory=Counter)
    accepted_by_member: Counter[str] = field(default_factory=Counter)
    archived_at_limit_count: int = 0

    def apply(self, row: StateRow) -> None:
        """Apply one row of the share-partition."""
        for entry in row.transitions:
            self._count(entry)
        if row.record_type is not RecordType.SHARE_TOMBSTONE:
            self.start_offset = row.start_offset

    def _count(self, entry: TransitionEntry) -> None:
        size = entry.last_offset - entry.first_offset + 1
        self.record_count_by_cause[entry.cause] += size
        self.last_ms_by_cause[entry.cause] = max(entry.time_ms, self.last_ms_by_cause.get(entry.cause, 0))
        match entry.cause:
            case Cause.ACQUIRE:
                self.acquired_by_member[entry.member_id] += size
            case Cause.UNREAD:
                self.acquired_by_member[entry.member_id] -= size
            case Cause.ACCEPT:
                self.accepted_by_member[entry.member_id] += size
            case _ if entry.is_archived_at_limit:
                self.archived_at_limit_count += size


@dataclass
class PartitionHistory(PartitionCounts):
    """The history of the records of one share-partition.

    Attributes:
        records: last state and delivery count of each record; `unread` takes its delivery back.
    """

    records: RunMap = field(default_factory=RunMap)

    def apply(self, row: StateRow) -> None:
        """Apply one row of the share-partition."""
        super().apply(row)
        for entry in row.transitions:
            self.records.assign(last_run(entry))

    def count(self, state: RecordState) -> int:
        """Count the records whose last state is this one."""
        return sum(run.size for run in self.records if run.state is state)

    @property
    def redelivered_count(self) -> int:
        """Records that were delivered more than once."""
        return sum(run.size for run in self.records if run.delivery_count > 1)

    @property
    def highest_delivery_count(self) -> int:
        """Deliveries of the record that had most of them."""
        return max((run.delivery_count for run in self.records), default=0)


@dataclass
class GroupHistory:
    """The histories of a group's share-partitions, and the names of its members.

    Attributes:
        partitions: (topic id, partition) → history.
        client_ids: member id → client id, of all members that ever joined.
    """

    group_id: str
    partitions: dict[tuple[str, int], PartitionHistory] = field(default_factory=dict)
    client_ids: dict[str, str] = field(default_factory=dict)

    def apply(self, row: StateRow) -> None:
        """Apply one row; rows of other groups are ignored."""
        if row.group_id != self.group_id:
            return
        for record in row.payload.get("records", ()):
            if record["type"] == "ShareGroupMemberMetadata":
                self.client_ids[record["member_id"]] = record.get("client_id", "")
        if row.partition >= 0:
            key = (row.topic_id, row.partition)
            if key not in self.partitions:
                self.partitions[key] = PartitionHistory(row.topic, row.topic_id, row.partition)
                if row.record_type is RecordType.TABLE_SNAPSHOT:
                    # Earlier rows are pruned; their state is in the snapshot.
                    self.partitions[key].records = RunMap(entry.run for entry in row.runs)
            self.partitions[key].apply(row)

    def record_count(self, cause: Cause) -> int:
        """Count the records that changed for a cause, over all share-partitions."""
        return sum(history.record_count_by_cause[cause] for history in self.partitions.values())

    def last_ms(self, cause: Cause) -> int | None:
        """Return the time of the last change for a cause, over all share-partitions, in epoch ms; None without one."""
        times_ms = [history.last_ms_by_cause.get(cause, 0) for history in self.partitions.values()]
        return max(times_ms, default=0) or None

    def count(self, state: RecordState) -> int:
        """Count the records whose last state is this one, over all share-partitions."""
        return sum(history.count(state) for history in self.partitions.values())

    @property
    def redelivered_count(self) -> int:
        """Records that were delivered more than once."""
        return sum(history.redelivered_count for history in self.partitions.values())

    @property
    def highest_delivery_count(self) -> int:
        """Deliveries of the record that had most of them."""
        return max((history.highest_delivery_count for history in self.partitions.values()), default=0)

    @property
    def acquired_by_member(self) -> Counter[str]:
        """Member id → records that it acquired, less those that it returned unread."""
        return sum((history.acquired_by_member for history in self.partitions.values()), Counter())

    @property
    def accepted_by_member(self) -> Counter[str]:
        """Member id → records that it accepted."""
        return sum((history.accepted_by_member for history in self.partitions.values()), Counter())


def group_history(group_id: str, rows: Iterable[StateRow]) -> GroupHistory:
    """Return the history of a group from all its rows, in fold order."""
    history = GroupHistory(group_id)
    for row in rows:
        history.apply(row)
    return history
