"""The history of a share-partition: the last state and the deliveries of every record it ever had in flight.

The live state forgets what lies below the start offset; the history keeps it, as runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.runs import Run, RunMap
from sharegroup.protocol.rows import RecordType, StateRow, TransitionEntry


@dataclass
class PartitionHistory:
    """Everything that happened to the records of one share-partition.

    Attributes:
        topic: topic name.
        topic_id: topic id.
        partition: partition.
        start_offset: the SPSO after the last row.
        records: last state and delivery count of each record; `unread` takes its delivery back.
        record_count_by_cause: how many records changed for which cause; a record counts each time.
        acquired_by_member: member id → records handed to it, less those it gave back unread.
        accepted_by_member: member id → records it accepted.
        archived_at_limit_count: records archived because their deliveries were used up.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int = 0
    records: RunMap = field(default_factory=RunMap)
    record_count_by_cause: Counter[Cause] = field(default_factory=Counter)
    acquired_by_member: Counter[str] = field(default_factory=Counter)
    accepted_by_member: Counter[str] = field(default_factory=Counter)
    archived_at_limit_count: int = 0

    def apply(self, row: StateRow) -> None:
        """Take in one row of the share-partition."""
        for entry in row.transitions:
            self._apply_entry(entry)
        self.start_offset = row.start_offset

    def count(self, state: RecordState) -> int:
        """Records whose last state is this one."""
        return sum(run.size for run in self.records if run.state is state)

    @property
    def redelivered_count(self) -> int:
        """Records that were delivered more than once."""
        return sum(run.size for run in self.records if run.delivery_count > 1)

    @property
    def highest_delivery_count(self) -> int:
        """Deliveries of the record that had most of them."""
        return max((run.delivery_count for run in self.records), default=0)

    def _apply_entry(self, entry: TransitionEntry) -> None:
        transition = entry.transition
        self.records.assign(
            Run(entry.first_offset, entry.last_offset, entry.to_state, entry.delivery_count, entry.member_id)
            if entry.to_state is RecordState.ACQUIRED
            else Run(entry.first_offset, entry.last_offset, entry.to_state, entry.delivery_count)
        )
        self.record_count_by_cause[entry.cause] += transition.size
        match entry.cause:
            case Cause.ACQUIRE:
                self.acquired_by_member[entry.member_id] += transition.size
            case Cause.UNREAD:
                self.acquired_by_member[entry.member_id] -= transition.size
            case Cause.ACCEPT:
                self.accepted_by_member[entry.member_id] += transition.size
            case Cause.RELEASE | Cause.LOCK_TIMEOUT | Cause.SESSION_CLOSE:
                if entry.to_state is not RecordState.AVAILABLE:
                    self.archived_at_limit_count += transition.size


@dataclass
class GroupHistory:
    """The histories of a group's share-partitions, and the names of its members.

    Attributes:
        group_id: the group.
        partitions: (topic id, partition) → history.
        client_ids: member id → client id, of everyone who ever joined.
    """

    group_id: str
    partitions: dict[tuple[str, int], PartitionHistory] = field(default_factory=dict)
    client_ids: dict[str, str] = field(default_factory=dict)

    def apply(self, row: StateRow) -> None:
        """Take in one row; rows of other groups are passed over."""
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
                    # What came before it was pruned, but not the state that it led to.
                    self.partitions[key].records = RunMap(entry.run for entry in row.runs)
            self.partitions[key].apply(row)

    def record_count(self, cause: Cause) -> int:
        """Records that changed for a cause, over all share-partitions."""
        return sum(history.record_count_by_cause[cause] for history in self.partitions.values())

    def count(self, state: RecordState) -> int:
        """Records whose last state is this one, over all share-partitions."""
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
        """Member id → records handed to it, less those it gave back unread."""
        return sum((history.acquired_by_member for history in self.partitions.values()), Counter())

    @property
    def accepted_by_member(self) -> Counter[str]:
        """Member id → records it accepted."""
        return sum((history.accepted_by_member for history in self.partitions.values()), Counter())


def group_history(group_id: str, rows: Iterable[StateRow]) -> GroupHistory:
    """The history of a group from all its rows, in fold order."""
    history = GroupHistory(group_id)
    for row in rows:
        history.apply(row)
    return history
