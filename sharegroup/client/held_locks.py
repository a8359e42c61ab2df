"""The locks of a member on the records that it holds, delivered or not. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.held_records import Acquisition
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.offset_ranges import RangeMap, gaps
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey

_UNKNOWN_ACQUISITION = 0
"""Number for records that an earlier process of the member acquired, or that it no longer holds."""


class HeldLocks:
    """The records that are locked to the member: it needs signs of life while there are some."""

    def __init__(self) -> None:
        self._held: dict[PartitionKey, RangeMap[int]] = {}
        """Offsets → number of their acquisition."""
        self._until_ms = 0
        self._lock_timeout_ms = 0
        self._seen_ms = 0
        """The latest time that the caller passed."""

    def acquired(self, acquisition: Acquisition) -> None:
        """Add an acquisition."""
        for held in acquisition.ranges:
            self._held.setdefault(held.key, RangeMap()).assign(held.first_offset, held.last_offset, acquisition.number)
        self._lock_timeout_ms = acquisition.lock_timeout_ms
        self._until_ms = max(self._until_ms, acquisition.lock_deadline_ms)

    def acknowledged(self, acknowledgements: Iterable[Acknowledgement], is_refused: bool) -> None:
        """Handle the response to acknowledgements.

        A renewed record stays locked, and one whose renewal was refused until its lock ends; any other one does not.
        """
        for acknowledgement in acknowledgements:
            if acknowledgement.acknowledge_type is not AcknowledgeType.RENEW:
                self._release(acknowledgement)
            elif not is_refused:
                self._until_ms = max(self._until_ms, self._seen_ms + self._lock_timeout_ms)

    def by_acquisition(self, acknowledgements: Iterable[Acknowledgement]) -> list[list[Acknowledgement]]:
        """Group the parts of acknowledgements of one partition by the acquisition of their records."""
        groups: dict[int, list[Acknowledgement]] = {}
        for ack in acknowledgements:
            held = self._held.get(ack.key)
            parts = held.overlapping(ack.first_offset, ack.last_offset) if held is not None else []
            known = [(first, last) for first, last, _ in parts]
            unknown = gaps(ack.first_offset, ack.last_offset, known)
            parts += [(first, last, _UNKNOWN_ACQUISITION) for first, last in unknown]
            for first, last, number in parts:
                groups.setdefault(number, []).append(ack._replace(first_offset=first, last_offset=last))
        return list(groups.values())

    def expire(self, now_ms: int) -> None:
        """Forget records whose locks have ended without an acknowledgement."""
        self._seen_ms = now_ms
        if now_ms >= self._until_ms:
            self._held.clear()

    def are_held(self, now_ms: int) -> bool:
        """Return True while a record is locked to the member."""
        self.expire(now_ms)
        return bool(self._held)

    def _release(self, acknowledgement: Acknowledgement) -> None:
        held = self._held.get(acknowledgement.key)
        if held is not None:
            held.remove(acknowledgement.first_offset, acknowledgement.last_offset)
            if not held:
                del self._held[acknowledgement.key]
