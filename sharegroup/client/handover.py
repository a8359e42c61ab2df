"""A group's move to Kafka's own share groups: what they continue with, and how nothing is delivered again.

A broker's share group can be given a start offset for each share-partition, and nothing else (KIP-932,
AlterShareGroupOffsets). Records that are finished above the start offset would be delivered again, and delivery counts
begin at 0. So the group is drained first:

1. `share.drain.enable` is set: members finish what is in flight, and get nothing new.
2. Once nothing is finished above any start offset, nothing is locked, and no record waits for its dead letter, the
   group is paused: no record is acquired any more.
3. The state is read again. If a member has acquired records before the pause, the group is resumed, and waits again.

A crash between the steps leaves the group draining or paused; the same call continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sharegroup.client.admin import AdminClient
from sharegroup.client.write_decisions import open_writes
from sharegroup.core.record_state import UNDECIDED_STATES, RecordState
from sharegroup.errors import GroupNotDrainedError
from sharegroup.state.fold import FoldedGroup, FoldedPartition

DRAIN_KEY = "share.drain.enable"
PAUSE_REASON = "moves to Kafka's share groups"

_POLL_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class PartitionHandover:
    """A share-partition that moves.

    Attributes:
        start_offset: where Kafka's share group begins.
        redelivered_count: finished records above it, which are delivered again.
        locked_count: records that members hold, which are delivered to others, too.
        waiting_dead_letter_count: records whose dead-letter record is not written yet.
        lost_delivery_counts: deliveries so far → records that were delivered so often, are not finished, and begin at
            0 again.
        open_write_count: writes into sinks whose outcome is not known yet.
    """

    topic: str
    partition: int
    start_offset: int
    redelivered_count: int = 0
    locked_count: int = 0
    waiting_dead_letter_count: int = 0
    lost_delivery_counts: Mapping[int, int] = field(default_factory=dict)
    open_write_count: int = 0

    @property
    def is_drained(self) -> bool:
        """True if a share group that begins at the start offset delivers nothing twice that is finished or held."""
        in_flight = self.redelivered_count or self.locked_count or self.waiting_dead_letter_count
        return not (in_flight or self.open_write_count)


def handover(group: FoldedGroup) -> list[PartitionHandover]:
    """Return what a group's share-partitions would begin with in Kafka, by topic and partition."""
    moved = (_partition(partition) for partition in group.partitions.values())
    return sorted(moved, key=lambda each: (each.topic, each.partition))


def drain(
    admin: AdminClient,
    group_id: str,
    read: Callable[[], FoldedGroup],
    timeout_s: float,
    report: Callable[[list[PartitionHandover]], None] = lambda _: None,
) -> list[PartitionHandover]:
    """Let the members finish what is in flight, then pause the group; return what Kafka begins with.

    Args:
        report: called with the state after each poll.

    Raises:
        GroupNotDrainedError: something is still in flight after the time, or the group has no members to finish it.
        GroupIdNotFoundError: the group does not exist.
    """
    deadline_s = time.monotonic() + timeout_s
    admin.alter_group_config(group_id, {DRAIN_KEY: "true"})
    while True:
        group = read()
        report(handover(group))
        if _is_drained(group):
            moved = pause(admin, group_id, read)
            if all(each.is_drained for each in moved):
                return moved
            admin.resume_group(group_id)
        elif group.metadata.pause is not None:
            if group.metadata.pause.reason != PAUSE_REASON:
                raise _not_drained(group, "since it is paused", "Resume it first.")
            admin.resume_group(group_id)
        elif not group.metadata.members:
            remedy = "Start members, which finish it, or move without draining."
            raise _not_drained(group, "since it has no members", remedy)
        if time.monotonic() > deadline_s:
            remedy = f"Try again: it drains on. To stop that, delete its key {DRAIN_KEY}."
            raise _not_drained(group, f"after {timeout_s:g} s", remedy)
        time.sleep(_POLL_INTERVAL_S)


def pause(admin: AdminClient, group_id: str, read: Callable[[], FoldedGroup]) -> list[PartitionHandover]:
    """Pause the group, and return what Kafka begins with: nothing is acquired any more.

    Raises:
        GroupNotDrainedError: a share-partition has no start offset yet, so that Kafka would choose one; or a write into
            a sink is open: Kafka would deliver its records again, and their results may be there.
        GroupIdNotFoundError: the group does not exist.
    """
    _check_no_open_writes(read())
    admin.pause_group(group_id, PAUSE_REASON)
    group = read()
    _check_no_open_writes(group)
    starting = [topic.topic for topic in group.metadata.topics.values() if topic.initializing]
    if starting:
        raise GroupNotDrainedError(
            f"Group {group_id} has share-partitions of {', '.join(starting)} that have no start offset yet.",
            "Resume it, and try again.",
        )
    return handover(group)


def _check_no_open_writes(group: FoldedGroup) -> None:
    if count := len(open_writes(group)):
        raise GroupNotDrainedError(
            f"Group {group.group_id} has {count} open writes: whether the results of their records are in the sink is "
            "not known yet.",
            f"Run `sharegroup groups resolve --group {group.group_id}`, and try again.",
        )


def _is_drained(group: FoldedGroup) -> bool:
    return all(each.is_drained for each in handover(group))


def _not_drained(group: FoldedGroup, when: str, remedy: str) -> GroupNotDrainedError:
    left = [each for each in handover(group) if not each.is_drained]
    redelivered, locked, waiting = (
        sum(getattr(each, name) for each in left)
        for name in ("redelivered_count", "locked_count", "waiting_dead_letter_count")
    )
    return GroupNotDrainedError(
        f"Group {group.group_id} is not drained {when}: above the start offsets of {len(left)} share-partitions "
        f"{redelivered} records are finished, {locked} locked, and {waiting} wait for their dead-letter records."
        f"{_writes_text(group)}",
        remedy,
    )


def _writes_text(group: FoldedGroup) -> str:
    count = len(open_writes(group))
    command = f"`sharegroup groups resolve --group {group.group_id}` looks up those in doubt."
    return f" {count} writes into sinks are open; {command}" if count else ""


def _partition(folded: FoldedPartition) -> PartitionHandover:
    engine = folded.share_partition
    states: Counter[RecordState] = Counter()
    counts: Counter[int] = Counter()
    for run in engine.runs:
        states[run.state] += run.size
        if run.state in (RecordState.AVAILABLE, *UNDECIDED_STATES) and run.delivery_count:
            counts[run.delivery_count] += run.size
    return PartitionHandover(
        folded.topic,
        folded.partition,
        engine.start_offset,
        engine.delivery_complete_count,
        states[RecordState.ACQUIRED],
        states[RecordState.ARCHIVING],
        dict(sorted(counts.items())),
        len(engine.open_writes),
    )
