"""The records with open writes that polls returned, until a commit of the sink has them. No I/O, no clock.

A commit takes a part of each write of which the application has records: the whole of it where the application has the
whole acquisition, else one of several parts, of which the last one closes the write. A part names all of its records;
only the last part of a whole acquisition leaves those out that are accepted.

What is not in a commit is given up: as a whole write, without a commit, as long as none was begun. Once one was, or may
have been, the records are in doubt until somebody has looked the write up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client.held_records import HeldRange, ReadRange
from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.sink_commits import CLOSING_PART, WritePart, accepted_ranges, named_partitions
from sharegroup.core.offset_ranges import RangeMap
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey

_HIGHEST_OPEN_PART = CLOSING_PART - 1

_ByRecord = dict[PartitionKey, RangeMap[Acknowledgement]]
"""Share-partition → offsets → their acknowledgement."""


class PlannedPart(NamedTuple):
    """A part of a write for the next commit, and the acknowledgements of its records."""

    part: WritePart
    settles: tuple[Acknowledgement, ...]


class GivenUp(NamedTuple):
    """A write that is given up: acknowledgements of its records; `is_begun` if a commit of it may be in the sink."""

    write: HeldWrite
    acknowledgements: list[Acknowledgement]
    is_begun: bool


@dataclass(slots=True)
class _Handed:
    """The records of a write that the application has.

    Attributes:
        topics: share-partition → topic name.
        left: share-partition → offsets that no commit has.
        missing: acknowledgements for those of them that have no record.
        record_count: records that polls returned so far.
        committed_count: offsets that are in commits.
        after: number of the last part that is in the sink.
    """

    write: HeldWrite
    topics: dict[PartitionKey, str] = field(default_factory=dict)
    left: dict[PartitionKey, RangeMap[None]] = field(default_factory=dict)
    missing: list[Acknowledgement] = field(default_factory=list)
    record_count: int = 0
    committed_count: int = 0
    after: int | None = None

    @property
    def left_count(self) -> int:
        """The number of offsets that no commit has."""
        return sum(last - first + 1 for runs in self.left.values() for first, last, _ in runs)

    def add(self, part: ReadRange) -> None:
        """Add records that a poll returned, with the offsets around them that have none."""
        held = part.held
        self.topics[held.key] = held.topic
        self.left.setdefault(held.key, RangeMap()).assign(held.first_offset, held.last_offset, None)
        self.missing += part.missing
        self.record_count += len(part.records)

    def own(self, acknowledgements: _ByRecord) -> list[Acknowledgement]:
        """Return the parts of acknowledgements that are of records of this write, with its version."""
        return [
            ack._replace(first_offset=first, last_offset=last, write_version=self.write.version)
            for key, runs in self.left.items()
            if key in acknowledgements
            for run_first, run_last, _ in runs
            for first, last, ack in acknowledgements[key].overlapping(run_first, run_last)
        ]

    @property
    def own_missing(self) -> list[Acknowledgement]:
        """Acknowledgements for those of its offsets that no commit has, and that have no record."""
        return self.own(_by_record(self.missing)) if self.missing else []

    def remove(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Remove what a commit has, or what was lost."""
        for ack in acknowledgements:
            if ack.key in self.left:
                self.left[ack.key].remove(ack.first_offset, ack.last_offset)

    def given_up(self, *, is_begun: bool, is_unread: bool = False) -> list[Acknowledgement]:
        """Return acknowledgements that release its records, or return them unread; its gaps are none."""
        missing = [ack._replace(is_begun=is_begun) for ack in self.own_missing]
        self.remove(missing)
        released = (
            Acknowledgement(
                *key,
                first,
                last,
                AcknowledgeType.UNREAD if is_unread else AcknowledgeType.RELEASE,
                topic=self.topics[key],
                reason="the sink cannot be reached" if is_unread else "",
                write_version=self.write.version,
                is_begun=is_begun,
            )
            for key, runs in self.left.items()
            for first, last, _ in runs
        )
        return [*missing, *released]


class HandedOutWrites:
    """The writes of which the application has records."""

    def __init__(self) -> None:
        self._handed: dict[int, _Handed] = {}
        """Version → what the application has of the write."""

    def add(self, ranges: Iterable[ReadRange]) -> None:
        """Add records that a poll returned."""
        for part in ranges:
            write = part.held.write
            if write is not None:
                self._handed.setdefault(write.version, _Handed(write)).add(part)

    def take_without_records(self, waits: Callable[[int], bool]) -> list[Acknowledgement]:
        """Remove whole writes without a record, and return the acknowledgements of their offsets: no commit has them.

        Args:
            waits: returns True if records of a write wait for the application.
        """
        taken: list[Acknowledgement] = []
        for version, handed in list(self._handed.items()):
            if not handed.record_count and handed.after is None and not waits(version):
                taken += handed.given_up(is_begun=False)
                del self._handed[version]
        return taken

    @property
    def missing(self) -> list[Acknowledgement]:
        """Acknowledgements for the offsets without a record that no commit has."""
        return [ack for handed in self._handed.values() for ack in handed.own_missing]

    def of_writes(self, acknowledgements: Iterable[Acknowledgement]) -> list[Acknowledgement]:
        """Return acknowledgements of handed out records, with the versions of their latest writes."""
        by_record = _by_record(acknowledgements)
        latest: dict[PartitionKey, RangeMap[Acknowledgement]] = {}
        for handed in self._handed.values():
            for ack in handed.own(by_record):
                latest.setdefault(ack.key, RangeMap()).assign(ack.first_offset, ack.last_offset, ack)
        return [
            ack._replace(first_offset=first, last_offset=last) for runs in latest.values() for first, last, ack in runs
        ]

    def plan(self, acknowledgements: Sequence[Acknowledgement], waits: Callable[[int], bool]) -> list[PlannedPart]:
        """Return the parts of a commit with these acknowledgements; change nothing.

        Args:
            acknowledgements: of the application, and `missing`.
            waits: returns True if records of a write wait for the application, so that it cannot be closed.
        """
        by_record = _by_record(acknowledgements)
        return [
            planned
            for version, handed in self._handed.items()
            if (planned := _planned(handed, by_record, is_last=not waits(version))) is not None
        ]

    def committed(self, planned: Iterable[PlannedPart]) -> None:
        """Remove what a commit has; a write that it closes is done."""
        for part, settles in planned:
            handed = self._handed[part.write.version]
            handed.after = part.part
            handed.remove(settles)
            handed.committed_count += _offset_count(settles)
            handed.missing = handed.own_missing
            if part.part == CLOSING_PART:
                del self._handed[part.write.version]

    def fenced(self, planned: Iterable[PlannedPart]) -> None:
        """Remove the writes of a commit that the sink refused: it has nothing more of them, and never will."""
        for part, _ in planned:
            del self._handed[part.write.version]

    def lost(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Remove records whose renewal was refused."""
        acknowledgements = list(acknowledgements)
        for handed in self._handed.values():
            handed.remove(ack for ack in acknowledgements if ack.write_version == handed.write.version)

    def give_up(
        self, withdraw: Callable[[int], list[HeldRange]], *, is_begun: bool, is_unread: bool = False
    ) -> Iterator[GivenUp]:
        """Remove all writes, and yield the acknowledgements that release their records and return the rest unread.

        Args:
            withdraw: removes and returns the records of a write that wait for the application.
            is_begun: True if a commit of them may be in the sink, or may get there.
            is_unread: return the records unread instead of releasing them.
        """
        handed_out, self._handed = self._handed, {}
        for version, handed in handed_out.items():
            begun = is_begun or handed.after is not None
            rest = [
                held.acknowledgement(AcknowledgeType.UNREAD, "others of its write are given up", is_begun=begun)
                for held in withdraw(version)
            ]
            yield GivenUp(handed.write, [*handed.given_up(is_begun=begun, is_unread=is_unread), *rest], begun)


def _by_record(acknowledgements: Iterable[Acknowledgement]) -> _ByRecord:
    """Return acknowledgements by share-partition and offset; of several for one record the last one counts."""
    by_record: _ByRecord = {}
    for ack in acknowledgements:
        by_record.setdefault(ack.key, RangeMap()).assign(ack.first_offset, ack.last_offset, ack)
    return by_record


def _planned(handed: _Handed, acknowledgements: _ByRecord, *, is_last: bool) -> PlannedPart | None:
    settles = handed.own(acknowledgements)
    if not settles:
        return None
    count = _offset_count(settles)
    is_last = is_last and count == handed.left_count
    part = 0 if handed.after is None else handed.after + 1
    is_closing = is_last or part >= _HIGHEST_OPEN_PART
    is_whole = is_last and handed.committed_count + count == handed.write.record_count
    named = [ack for ack in settles if ack.acknowledge_type is not AcknowledgeType.ACCEPT] if is_whole else settles
    planned = WritePart(
        handed.write.unresolved,
        named_partitions(named),
        names_all=not is_whole,
        part=CLOSING_PART if is_closing else part,
        after=handed.after,
        accepted=accepted_ranges(settles) if is_whole else (),
    )
    return PlannedPart(planned, tuple(settles))


def _offset_count(acknowledgements: Iterable[Acknowledgement]) -> int:
    return sum(ack.last_offset - ack.first_offset + 1 for ack in acknowledgements)
