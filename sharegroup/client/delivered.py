"""The records that polls returned, until their acknowledgements are taken to be sent.

Renewed records are delivered once more: the next poll after the leader's response returns them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sharegroup.client.held_records import ReadRange
from sharegroup.client.pending_acknowledgements import (
    Acknowledged,
    Acknowledgement,
    OffsetKey,
    RecordAcknowledgement,
    run_acknowledgement,
)
from sharegroup.core.offset_ranges import RangeMap, subtract
from sharegroup.core.record_state import AcknowledgeType

_ACCEPTED = RecordAcknowledgement(AcknowledgeType.ACCEPT)


class Renewals:
    """Renewals of records (KIP-1222); if a renewal fails, this consumer has lost the record."""

    def __init__(self) -> None:
        self._asked: list[ReadRange] = []
        self._renewed: list[ReadRange] = []

    @property
    def are_awaited(self) -> bool:
        """True while a renewal waits for its response."""
        return bool(self._asked)

    def ask(self, renewal: Acknowledgement, delivered: Iterable[ReadRange]) -> None:
        """Add a renewal of some of the delivered records that is sent."""
        renewed = (_common(read_range, renewal) for read_range in delivered)
        self._asked += [read_range for read_range in renewed if read_range is not None]

    def settle(self, results: Iterable[Acknowledged]) -> None:
        """Handle the leader's responses."""
        for result in results:
            for acknowledgement in result.acknowledgements:
                if acknowledgement.acknowledge_type is AcknowledgeType.RENEW:
                    self._settle(acknowledgement, result.error is None)

    def take_renewed(self) -> list[ReadRange]:
        """Remove the records whose renewal took effect."""
        renewed, self._renewed = self._renewed, []
        return renewed

    def _settle(self, renewal: Acknowledgement, took_effect: bool) -> None:
        asked, self._asked = self._asked, []
        for read_range in asked:
            common = _common(read_range, renewal)
            if common is None:
                self._asked.append(read_range)
                continue
            if took_effect:
                self._renewed.append(common)
            settled = [(common.held.first_offset, common.held.last_offset)]
            rest = (read_range.between(h.first_offset, h.last_offset) for h in subtract(read_range.held, settled))
            self._asked += [waiting for waiting in rest if waiting.records]


def _common(read_range: ReadRange, renewal: Acknowledgement) -> ReadRange | None:
    """Return the records of a range that a renewal names."""
    if read_range.held.key != renewal.key:
        return None
    first = max(read_range.held.first_offset, renewal.first_offset)
    last = min(read_range.held.last_offset, renewal.last_offset)
    common = read_range.between(first, last) if first <= last else None
    return common if common is not None and common.records else None


def _is_renewal(acknowledgement: RecordAcknowledgement | None) -> bool:
    return acknowledgement is not None and acknowledgement.acknowledge_type is AcknowledgeType.RENEW


@dataclass(slots=True)
class _DeliveredPartition:
    topic_id: str
    records: RangeMap[RecordAcknowledgement | None] = field(default_factory=RangeMap)
    """Offsets → their acknowledgement; None while unacknowledged."""


class DeliveredRecords:
    """Ranges of delivered records, with the acknowledgements of the application.

    Attributes:
        renewals: those of its records.
    """

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], _DeliveredPartition] = {}
        self._last: list[ReadRange] = []
        """The latest delivery: only its records can be renewed."""
        self.renewals = Renewals()

    @property
    def unacknowledged_count(self) -> int:
        """The number of unacknowledged records."""
        return sum(
            last - first + 1
            for partition in self._partitions.values()
            for first, last, acknowledgement in partition.records
            if acknowledgement is None
        )

    def add(self, ranges: list[ReadRange]) -> None:
        """Add records that are delivered to the application."""
        self._last = ranges
        for read_range in ranges:
            held = read_range.held
            partition = self._partitions.get((held.topic, held.partition))
            if partition is None or partition.topic_id != held.topic_id:
                # The topic was created again: earlier records cannot be acknowledged any more.
                partition = self._partitions[held.topic, held.partition] = _DeliveredPartition(held.topic_id)
            for first, last in read_range.runs():
                partition.records.assign(first, last, None)

    def acknowledge(self, key: OffsetKey, acknowledgement: RecordAcknowledgement) -> bool:
        """Set the acknowledgement of a record; the last one counts. Return False if the record is not delivered."""
        topic, number, offset = key
        partition = self._partitions.get((topic, number))
        if partition is None or not partition.records.holds(offset):
            return False
        partition.records.assign(offset, offset, acknowledgement)
        return True

    def take_acknowledged(self, accepts_rest: bool = False) -> list[Acknowledgement]:
        """Remove the acknowledged records, and return their acknowledgements as runs.

        Records to be renewed cannot be acknowledged until `take_renewed` has returned them.

        Args:
            accepts_rest: accept unacknowledged records.
        """
        return self._take(lambda ack: ack is not None or accepts_rest)

    def take_renewals(self) -> list[Acknowledgement]:
        """Remove the records to be renewed, as `take_acknowledged` does, and no others."""
        return self._take(_is_renewal)

    def take_ended(self, accepts_rest: bool = False) -> list[Acknowledgement]:
        """Remove the acknowledged records that are not to be renewed, and return their acknowledgements as runs.

        Args:
            accepts_rest: accept unacknowledged records.
        """
        return self._take(lambda ack: not _is_renewal(ack) and (ack is not None or accepts_rest))

    def clear(self) -> None:
        """Remove all records."""
        self._partitions.clear()
        self._last = []
        self.renewals = Renewals()

    def _take(self, is_taken: Callable[[RecordAcknowledgement | None], bool]) -> list[Acknowledgement]:
        taken: list[Acknowledgement] = []
        for (topic, number), partition in list(self._partitions.items()):
            left: RangeMap[RecordAcknowledgement | None] = RangeMap()
            for first, last, acknowledgement in partition.records:
                if not is_taken(acknowledgement):
                    left.assign(first, last, acknowledgement)
                    continue
                key = partition.topic_id, number
                run = run_acknowledgement(key, topic, first, last, acknowledgement or _ACCEPTED)
                if run.acknowledge_type is AcknowledgeType.RENEW:
                    self.renewals.ask(run, self._last)
                taken.append(run)
            if left:
                partition.records = left
            else:
                del self._partitions[topic, number]
        return taken

    def take_renewed(self) -> list[ReadRange]:
        """Return the records whose locks were renewed since the last call; they can be acknowledged again."""
        if renewed := self.renewals.take_renewed():
            self.add(renewed)
        return renewed
