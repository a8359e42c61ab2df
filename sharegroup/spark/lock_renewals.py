"""Renews the locks of records while a handler processes them, for a limited time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharegroup.client.held_records import Acquisition, HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.core.record_state import AcknowledgeType


@dataclass(eq=False, slots=True)
class ActiveAcquisition:
    """An acquisition that a handler processes.

    Attributes:
        job_tag: tag of the handler's Spark jobs.
        ranges: its records.
        lock_timeout_ms: duration of a lock from its renewal on.
        renew_at_ms: time of the next renewal, when half of the locks' duration is over; epoch ms.
        give_up_at_ms: time at which the handler has had `worker.renew.max.ms`; epoch ms.
        is_given_up: True if its records were released because the handler took too long.
        is_refused: True if a renewal was refused: the locks have ended.
    """

    job_tag: str
    ranges: Sequence[HeldRange]
    lock_timeout_ms: int
    renew_at_ms: int
    give_up_at_ms: int
    is_given_up: bool = False
    is_refused: bool = False

    def acknowledgements(self, acknowledge_type: AcknowledgeType, reason: str = "") -> list[Acknowledgement]:
        """Return acknowledgements of all its records."""
        return [held.acknowledgement(acknowledge_type, reason) for held in self.ranges]


class LockRenewals:
    """The active acquisitions, and the times of their renewals; any thread may use it.

    Args:
        renew_max_ms: how long a handler may process an acquisition.
    """

    def __init__(self, renew_max_ms: int) -> None:
        self._renew_max_ms = renew_max_ms
        self._lock = threading.Lock()
        self._active: list[ActiveAcquisition] = []

    def begin(
        self, acquisition: Acquisition, job_tag: str, now_ms: int, give_up_at_ms: int | None = None
    ) -> ActiveAcquisition:
        """Add an acquisition that a handler begins to process; times are epoch ms."""
        active = ActiveAcquisition(
            job_tag,
            acquisition.ranges,
            acquisition.lock_timeout_ms,
            renew_at_ms=acquisition.stale_at_ms,
            give_up_at_ms=now_ms + self._renew_max_ms if give_up_at_ms is None else give_up_at_ms,
        )
        with self._lock:
            self._active.append(active)
        return active

    def end(self, active: ActiveAcquisition) -> bool:
        """Remove an acquisition; return False if it was given up, and its acknowledgements no longer count."""
        with self._lock:
            if active in self._active:
                self._active.remove(active)
            return not active.is_given_up

    def take_due(self, now_ms: int) -> list[Acknowledgement]:
        """Return renewals of the locks whose duration is half over; epoch ms."""
        renewals: list[Acknowledgement] = []
        with self._lock:
            for active in self._active:
                if now_ms >= active.renew_at_ms and not (active.is_refused or active.is_given_up):
                    active.renew_at_ms = now_ms + active.lock_timeout_ms // 2
                    renewals += active.acknowledgements(AcknowledgeType.RENEW)
        return renewals

    def take_overdue(self, now_ms: int) -> list[ActiveAcquisition]:
        """Give up the acquisitions whose handler has taken too long, and return each once; epoch ms."""
        with self._lock:
            overdue = [a for a in self._active if now_ms >= a.give_up_at_ms and not a.is_given_up]
            for active in overdue:
                active.is_given_up = True
            return overdue

    def settle(self, results: Iterable[Acknowledged]) -> None:
        """Handle the answers to acknowledgements: locks whose renewal was refused have ended."""
        refused = [
            (renewal.key, renewal.first_offset)
            for result in results
            if result.error is not None
            for renewal in result.acknowledgements
            if renewal.acknowledge_type is AcknowledgeType.RENEW
        ]
        with self._lock:
            for active in self._active:
                active.is_refused |= any(
                    held.key == key and held.first_offset <= offset <= held.last_offset
                    for key, offset in refused
                    for held in active.ranges
                )
