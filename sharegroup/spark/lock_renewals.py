"""Renews the locks of records: while a handler processes them, and from its `renew` until it receives them again.

Renewals and acknowledgements are sent under one lock: of two unsent acknowledgements of a record the later counts, so a
renewal after the handler's final acknowledgement would replace it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sharegroup.client.held_records import Acquisition, HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.core.offset_ranges import intersect
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.spark.held_ranges import without_refused
from sharegroup.spark.sink.sink_write import SinkWrite

RENEWED_DELAY_MS = 1_000
"""After this time the handler receives records again that it renewed."""


@dataclass(eq=False, slots=True)
class LockedRecords:
    """Records of one acquisition: a handler processes them, or they wait until it receives them again.

    Times are ms of the monotonic clock.

    Attributes:
        job_tag: tag of the handler's Spark jobs.
        ranges: the records, without those whose renewal was refused.
        lock_timeout_ms: duration of a lock from its renewal on.
        renew_at_ms: time of the next renewal, when half of the locks' duration is over.
        give_up_at_ms: time at which the handler has had `worker.renew.max.ms`.
        is_given_up: True if the records were returned because the handler took too long.
        has_failed: True if the handler failed with the records, and is called with parts of them.
        is_waiting: True if the handler renewed the records, and has not received them again.
        due_at_ms: time at which the handler receives waiting records again.
        write: the write for their results; None without a sink.
    """

    job_tag: str
    ranges: Sequence[HeldRange]
    lock_timeout_ms: int
    renew_at_ms: int
    give_up_at_ms: int
    is_given_up: bool = False
    has_failed: bool = False
    is_waiting: bool = False
    due_at_ms: int = 0
    write: SinkWrite | None = None

    @property
    def overdue_type(self) -> AcknowledgeType:
        """The type for records that are given up: after a failure the time may be that of an outage, so none counts."""
        return AcknowledgeType.UNREAD if self.has_failed and not self.is_waiting else AcknowledgeType.RELEASE

    def note_failure(self) -> None:
        """Note that the handler failed with the records."""
        self.has_failed = True

    def acknowledgements(self, acknowledge_type: AcknowledgeType, *, is_begun: bool = False) -> list[Acknowledgement]:
        """Return acknowledgements of all the records."""
        return [held.acknowledgement(acknowledge_type, is_begun=is_begun) for held in self.ranges]

    def given_up(self, acknowledge_type: AcknowledgeType) -> list[Acknowledgement]:
        """Return acknowledgements of all the records, whose write does not begin any more; begun, the sink decides."""
        is_begun = self.write is not None and self.write.give_up()
        return self.acknowledgements(acknowledge_type, is_begun=is_begun)


class LockRenewals:
    """The records whose locks are renewed, and the times of the renewals; any thread may use it.

    Times are ms of the monotonic clock, as an acquisition has them.

    Args:
        renew_max_ms: how long a handler may process an acquisition, with the time that records wait for it again.
    """

    def __init__(self, renew_max_ms: int, acknowledge: Callable[[Iterable[Acknowledgement]], None]) -> None:
        self._renew_max_ms = renew_max_ms
        self._acknowledge = acknowledge
        self._lock = threading.Lock()
        self._locked: list[LockedRecords] = []

    @property
    def has_waiting(self) -> bool:
        """True if renewed records wait for the handler."""
        with self._lock:
            return any(locked.is_waiting for locked in self._locked)

    def begin(
        self, acquisition: Acquisition, job_tag: str, now_ms: int, write: SinkWrite | None = None
    ) -> LockedRecords:
        """Add an acquisition that a handler begins to process."""
        locked = LockedRecords(
            job_tag,
            acquisition.ranges,
            acquisition.lock_timeout_ms,
            renew_at_ms=acquisition.stale_at_ms,
            give_up_at_ms=now_ms + self._renew_max_ms,
            write=write,
        )
        with self._lock:
            self._locked.append(locked)
        return locked

    def resume(self, now_ms: int) -> LockedRecords | None:
        """Return the renewed records that the handler should receive again now; None if there are none."""
        with self._lock:
            due = [locked for locked in self._locked if locked.is_waiting and now_ms >= locked.due_at_ms]
            first = min(due, key=lambda locked: locked.due_at_ms, default=None)
            if first is not None:
                first.is_waiting = first.has_failed = False
            return first

    def end(self, locked: LockedRecords, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> bool:
        """Send the acknowledgements of processed records, and keep those that the handler renewed.

        Returns:
            False if the records were given up: the acknowledgements no longer count.
        """
        with self._lock:
            if locked.is_given_up:
                return False
            locked.ranges = _renewed(locked.ranges, acknowledgements)
            if locked.ranges:
                locked.is_waiting, locked.due_at_ms = True, now_ms + RENEWED_DELAY_MS
                locked.renew_at_ms = now_ms + locked.lock_timeout_ms // 2
            else:
                self._locked.remove(locked)
            self._acknowledge(acknowledgements)
            return True

    def renew(self, now_ms: int) -> None:
        """Renew the locks whose duration is half over."""
        with self._lock:
            renewals: list[Acknowledgement] = []
            for locked in self._locked:
                if now_ms >= locked.renew_at_ms:
                    locked.renew_at_ms = now_ms + locked.lock_timeout_ms // 2
                    renewals += locked.acknowledgements(AcknowledgeType.RENEW)
            if renewals:
                self._acknowledge(renewals)

    def take_overdue(self, now_ms: int) -> list[LockedRecords]:
        """Give up the records with which the handler has taken too long, and return them."""
        with self._lock:
            overdue = [locked for locked in self._locked if now_ms >= locked.give_up_at_ms]
            for locked in overdue:
                locked.is_given_up = True
                self._locked.remove(locked)
            return overdue

    def take_written(self) -> list[LockedRecords]:
        """Give up the records of open writes, and return them."""
        with self._lock:
            written = [locked for locked in self._locked if locked.write is not None]
            for locked in written:
                locked.is_given_up = True
                self._locked.remove(locked)
            return written

    def settle(self, results: Sequence[Acknowledged]) -> None:
        """Handle the responses to acknowledgements: locks whose renewal was refused are not renewed any more.

        Waiting records without a lock are dropped: they will be delivered again.
        """
        with self._lock:
            for locked in self._locked:
                locked.ranges = without_refused(locked.ranges, results)
            self._locked = [locked for locked in self._locked if locked.ranges or not locked.is_waiting]


def _renewed(ranges: Iterable[HeldRange], acknowledgements: Iterable[Acknowledgement]) -> list[HeldRange]:
    """Return the parts of ranges that acknowledgements renew."""
    ranges = list(ranges)
    return [
        part
        for renewal in acknowledgements
        if renewal.acknowledge_type is AcknowledgeType.RENEW
        for part in intersect(ranges, renewal.first_offset, renewal.last_offset)
        if part.key == renewal.key
    ]
