"""The calls of one worker's handler, and their proofs that a record is at fault, and not an outage.

A failed call alone proves nothing: its sink may be away, or its code wrong. A record is at fault if the handler failed
with it alone, then accepted another record, then failed with it alone again. No outage is the cause of both failures,
since the handler worked between them, however long the outage was and whenever it began. Each delivery that counts
needs a proof of its own, so an outage that comes and goes costs no more than it is proved.

Until the handler accepts a record, it is failing: what it failed with is returned with a delay that doubles.

Events have ascending numbers; a call has those of its begin and its end, as several threads call one handler.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sharegroup.client.held_records import HeldRange
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.offset_ranges import subtract
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.core.records import PartitionKey

FIRST_DELAY_MS = 1_000
LONGEST_DELAY_MS = 60_000
MAX_SUSPECTS = 10_000
"""Records of which a lone failure is remembered; the oldest is forgotten first, which only asks for another proof."""

_HIGHEST_DOUBLING = 6


class BegunCall(NamedTuple):
    """A call of the handler that has begun.

    Attributes:
        number: number of its begin.
        proven_until: begin of the latest call by then in which the handler accepted a record.
    """

    number: int
    proven_until: int


class CallHistory:
    """The calls of one worker's handler; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._accepted_until = 0
        """Begin of the latest call in which the handler accepted a record."""
        self._suspects: dict[tuple[PartitionKey, int], int] = {}
        """Partition and offset → end of the call that failed with this record alone, for the first time or the last
        time that it counted."""
        self._failing_since = 0
        self._fruitless_count = 0
        """Acquisitions in a row of which all were returned."""

    @property
    def is_failing(self) -> bool:
        """True if the handler has accepted nothing since an acquisition was returned with a delay."""
        with self._lock:
            return self._fruitless_count > 0

    def begin(self) -> BegunCall:
        """Record that the handler is called now."""
        with self._lock:
            return BegunCall(next(self._numbers), self._accepted_until)

    def succeeded(self, call: BegunCall, acknowledgements: Iterable[Acknowledgement]) -> bool:
        """Record that a call returned; only accepted records prove that the handler works."""
        accepted = [ack for ack in acknowledgements if ack.acknowledge_type is AcknowledgeType.ACCEPT]
        if not accepted:
            return False
        with self._lock:
            self._accepted_until = max(self._accepted_until, call.number)
            if call.number > self._failing_since:
                self._fruitless_count = 0
            if self._suspects:
                self._forget(accepted)
        return True

    def failed(self) -> int:
        """Record that a call failed, and return the number of its end."""
        with self._lock:
            return next(self._numbers)

    def failed_alone(self, call: BegunCall, ended: int, ranges: Iterable[HeldRange]) -> bool:
        """Record that the smallest part that is tried failed; return True if it is proven to be at fault.

        Args:
            ended: the number that `failed` returned.
        """
        keys = [(held.key, offset) for held in ranges for offset in _offsets(held)]
        with self._lock:
            is_at_fault = all(self._suspects.get(key, ended) < call.proven_until for key in keys)
            for key in keys:
                if is_at_fault:
                    self._suspects[key] = ended
                else:
                    self._suspects.setdefault(key, ended)
            while len(self._suspects) > MAX_SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
        return is_at_fault

    def accepted_since(self, ended: int) -> bool:
        """Return True if a call that began after the end of another one has accepted a record."""
        with self._lock:
            return self._accepted_until > ended

    def untried(self, ranges: Iterable[HeldRange]) -> list[HeldRange]:
        """Return the records with which the handler has not failed alone."""
        with self._lock:
            return [
                part
                for held in ranges
                for part in subtract(held, [(o, o) for o in _offsets(held) if (held.key, o) in self._suspects])
            ]

    def return_delay_ms(self, failing_since: int) -> int | None:
        """Return for how long an acquisition stays unavailable with which the handler failed: 1 s, doubling to 60 s.

        Args:
            failing_since: end of the first call that failed.

        Returns:
            None if the handler has accepted a record since: the acquisition is returned at once.
        """
        with self._lock:
            if self._accepted_until > failing_since:
                return None
            self._failing_since = max(self._failing_since, failing_since)
            doublings = min(self._fruitless_count, _HIGHEST_DOUBLING)
            self._fruitless_count += 1
        return min(FIRST_DELAY_MS << doublings, LONGEST_DELAY_MS)

    def _forget(self, accepted: Sequence[Acknowledgement]) -> None:
        by_partition: dict[PartitionKey, list[range]] = {}
        for ack in accepted:
            by_partition.setdefault(ack.key, []).append(ack.offsets)
        for key, offset in list(self._suspects):
            if any(offset in offsets for offsets in by_partition.get(key, ())):
                del self._suspects[key, offset]


def _offsets(held: HeldRange) -> range:
    return range(held.first_offset, held.last_offset + 1)
