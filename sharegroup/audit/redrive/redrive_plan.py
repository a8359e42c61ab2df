"""The plan of a redrive: which records become available in place, and of which new copies are appended. Pure.

A record that is archived at or above the start offset (SPSO) of its share-partition becomes available in place, with
delivery count 0. Below the SPSO no state is left: there a record that was given up is appended to its topic again. All
others are left out, with the reason: they were not given up, or wait for delivery already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sharegroup.audit.redrive.last_changes import LastChange, LastChanges
from sharegroup.core.cause_rules import WITHOUT_RECORD
from sharegroup.core.offset_ranges import OffsetRange, RangeMap
from sharegroup.core.record_state import RecordState
from sharegroup.core.records import PartitionKey
from sharegroup.core.share_partition import SharePartition
from sharegroup.logs.port import PartitionOffsets
from sharegroup.state.fold import FoldedGroup


@dataclass(frozen=True, slots=True)
class Candidate:
    """Records that are to be delivered again.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        dead_letters_since_ms: each has a dead-letter record, none of which is older; epoch ms. None where they were
            selected by offset.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    dead_letters_since_ms: int | None = None

    def cut(self, first_offset: int, last_offset: int) -> Candidate:
        """Return the same with other offsets."""
        return replace(self, first_offset=first_offset, last_offset=last_offset)

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class Copies:
    """Records of which new copies are appended.

    Attributes:
        delivery_count: deliveries before they were given up; of dead-letter records their own counts.
        reason: reason why they were given up; of dead-letter records why those without content are left out.
        since_ms: no copy of them is older; epoch ms.
        has_original: True if the topic's record of the offset is the one that was given up; else the dead-letter
            record is copied.
    """

    records: Candidate
    delivery_count: int
    reason: str
    since_ms: int
    has_original: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """Records that are left out, and why."""

    records: Candidate
    reason: str

    @property
    def first_offset(self) -> int:
        """First offset, inclusive."""
        return self.records.first_offset

    @property
    def last_offset(self) -> int:
        """Last offset, inclusive."""
        return self.records.last_offset

    def cut(self, first_offset: int, last_offset: int) -> Skipped:
        """Return the same with other offsets."""
        return replace(self, records=self.records.cut(first_offset, last_offset))

    def is_alike(self, other: Skipped) -> bool:
        """Return True if the two are of one partition and have one reason."""
        mine, others = self.records, other.records
        return (mine.topic, mine.partition, self.reason) == (others.topic, others.partition, other.reason)


@dataclass
class RedrivePlan:
    """The effect of a redrive.

    Attributes:
        redriven: (topic id, partition) → offsets of archived records, ascending.
        topics: topic id → name.
        copies: records of which copies are appended.
    """

    group_id: str
    redriven: dict[PartitionKey, list[OffsetRange]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    copies: list[Copies] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def redriven_count(self) -> int:
        """Number of records that become available in place."""
        return sum(last - first + 1 for ranges in self.redriven.values() for first, last in ranges)


@dataclass(frozen=True, slots=True)
class PresentTopic:
    """A topic as the log has it now: its id and the offsets of its partitions."""

    topic_id: str
    offsets: Mapping[int, PartitionOffsets]


def redrive_plan(
    group: FoldedGroup, changes: LastChanges, topics: Mapping[str, PresentTopic], candidates: Iterable[Candidate]
) -> RedrivePlan:
    """Return the plan for some records.

    Args:
        changes: last changes of all records of the group.
        topics: topic name → the topic of that name in the log now; missing ones do not exist.
        candidates: the records, each once.
    """
    plan = RedrivePlan(group.group_id)
    archived: dict[PartitionKey, RangeMap[None]] = {}
    for candidate in candidates:
        topic = topics.get(candidate.topic)
        if topic is None or candidate.partition not in topic.offsets:
            plan.skipped.append(Skipped(candidate, "the log has no such partition"))
            continue
        key = (topic.topic_id, candidate.partition)
        plan.topics[topic.topic_id] = candidate.topic
        known = changes.get(key, RangeMap())
        present = group.partitions.get(key)
        for part in _parts(candidate, present.share_partition if present is not None else None):
            if present is None or part.last_offset < present.share_partition.start_offset:
                _plan_below(plan, part, known)
            else:
                ranges = archived.setdefault(key, RangeMap())
                _plan_above(plan, part, known, present.share_partition, topic.offsets[candidate.partition], ranges)
    for key, ranges in archived.items():
        if len(ranges):
            plan.redriven[key] = [(first, last) for first, last, _ in ranges]
    return plan


def _parts(candidate: Candidate, share_partition: SharePartition | None) -> Iterator[Candidate]:
    """Cut a candidate at the start offset."""
    start_offset = share_partition.start_offset if share_partition is not None else 0
    if candidate.first_offset < start_offset <= candidate.last_offset:
        yield candidate.cut(candidate.first_offset, start_offset - 1)
        yield candidate.cut(start_offset, candidate.last_offset)
    else:
        yield candidate


def _plan_above(
    plan: RedrivePlan,
    part: Candidate,
    known: RangeMap[LastChange],
    share_partition: SharePartition,
    offsets: PartitionOffsets,
    archived: RangeMap[None],
) -> None:
    runs = share_partition.runs.overlapping(part.first_offset, part.last_offset)
    for run in runs:
        records = part.cut(run.first_offset, run.last_offset)
        if run.state is not RecordState.ARCHIVED:
            plan.skipped.append(Skipped(records, f"{run.state.name}, not ARCHIVED"))
        elif run.last_offset < offsets.start_offset:
            _plan_without_original(plan, records, "the log was deleted up to a later offset")
        else:
            for first, last, change in _filled(known, run.first_offset, run.last_offset):
                if change is not None and change.cause in WITHOUT_RECORD:
                    plan.skipped.append(Skipped(part.cut(first, last), f"there is no record ({change.cause})"))
                else:
                    archived.assign(first, last, None)
    if part.last_offset >= share_partition.next_offset:
        first = max(part.first_offset, share_partition.next_offset)
        plan.skipped.append(Skipped(part.cut(first, part.last_offset), "not delivered yet"))


def _plan_below(plan: RedrivePlan, part: Candidate, known: RangeMap[LastChange]) -> None:
    for first, last, change in _filled(known, part.first_offset, part.last_offset):
        records = part.cut(first, last)
        if change is None:
            _plan_without_original(plan, records, "the state table does not have its history")
        elif change.state is not RecordState.ARCHIVED:
            plan.skipped.append(Skipped(records, f"{change.state.name}, not ARCHIVED"))
        elif change.cause in WITHOUT_RECORD:
            plan.skipped.append(Skipped(records, f"there is no record ({change.cause})"))
        else:
            reason = change.dead_letter_reason.value
            plan.copies.append(Copies(records, change.delivery_count, reason, change.time_ms, has_original=True))


def _plan_without_original(plan: RedrivePlan, records: Candidate, reason: str) -> None:
    """Plan copies of the dead-letter records of records whose originals are not known to be there."""
    if records.dead_letters_since_ms is None:
        plan.skipped.append(Skipped(records, reason))
    else:
        plan.copies.append(Copies(records, 0, reason, records.dead_letters_since_ms, has_original=False))


def _filled(
    known: RangeMap[LastChange], first_offset: int, last_offset: int
) -> Iterator[tuple[int, int, LastChange | None]]:
    """Yield the ranges of a map within offsets, and those between them with None."""
    following = first_offset
    for first, last, change in known.overlapping(first_offset, last_offset):
        if following < first:
            yield following, first - 1, None
        yield first, last, change
        following = last + 1
    if following <= last_offset:
        yield following, last_offset, None
