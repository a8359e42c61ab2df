"""Reads the records of waiting acquisitions in a separate thread, before the next poll.

The member owns the acquisitions: this module has a copy with the records. A poll has the member deliver parts of them,
unless they were returned meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition, ReadRange
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.record_reader import RecordReader
from sharegroup.errors import LogUnavailableError, ShareGroupError

_RECORDS_AT_ONCE = 20_000
"""Maximum number of records of one read."""
_RECORDS_AHEAD = 60_000
"""Number of waiting records beyond which no more are read; the last read may exceed it."""
_CUT_PORTIONS = 2
"""Maximum number of portions in memory that reached the limit of bytes."""
_JOIN_S = 0.5
_RETRY_PAUSE_S = 0.5
"""Pause after a read that failed with a retriable error, or met ranges that cannot be read now."""

_logger = logging.getLogger(__name__)

PolledRange = tuple[int, ReadRange]
"""Number of an acquisition, and a range of it with its records."""


@dataclass(slots=True)
class _Portion:
    """Records of an acquisition from one read that no poll has taken yet."""

    acquisition: Acquisition
    ranges: deque[ReadRange]
    record_count: int
    is_cut: bool
    """True if it reached the limit of bytes, which is also that of a poll."""
    position: int = 0
    """Records of the first range that polls have taken."""


class ReadAhead:
    """Reads the records that a member acquires, for one consuming thread."""

    def __init__(self, member: GroupMember, reader: RecordReader) -> None:
        self.lock_timeout_ms: int | None = None
        """Duration of the locks of the last acquisition; None before there is one."""
        self.member = member
        self._reader = reader
        self._changed = threading.Condition()
        self._portions: deque[_Portion] = deque()
        self._error: Exception | None = None
        self._cause = ""
        """The failure of the last read; empty after a successful one."""
        self._is_reading = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"share-group-reader-{member.member_id}", daemon=True)
        self._thread.start()

    def poll(self, acknowledgements: Sequence[Acknowledgement], wanted_count: int) -> list[ReadRange]:
        """Deliver the next records, with the offsets around them that have none; return an empty list without records.

        With a sink there may be offsets without records alone.

        Args:
            acknowledgements: of records that were delivered before; they are sent in any case.
            wanted_count: number of records to wait for, unless no more are being read.

        Raises:
            ShareGroupError: the next records cannot be read, or the member has ended; a retry may help.
        """
        try:
            while self.is_ready(wanted_count) and (polled := self._take(self.member.poll_records)):
                unsent, acknowledgements = acknowledgements, ()
                delivered = self.member.deliver(unsent, polled)
                ranges = [part for (_, part), is_delivered in zip(polled, delivered, strict=True) if is_delivered]
                # Offsets without records are given up with the commit of their write.
                if any(part.records or part.held.write is not None for part in ranges):
                    return ranges
        except BaseException:
            self.member.acknowledge(acknowledgements)
            raise
        self.member.ask(acknowledgements)
        return []

    def is_ready(self, record_count: int) -> bool:
        """Return True if `poll` returns this number of records, or all that are read, or raises."""
        with self._changed:
            if self._error is not None or not self._portions:
                return self._error is not None
            # A reader that waits for room goes on once records are polled.
            is_all = not self._is_reading or self._is_full
            return is_all or self._portions[0].is_cut or self._ahead_count >= record_count

    def _take(self, max_records: int) -> list[PolledRange]:
        """Remove the next ranges with this number of records together; empty if nothing is read yet.

        Records that were acquired together with the last of them are included, beyond the requested number.
        """
        with self._changed:
            if self._error is not None:
                error, self._error = self._error, None
                self._changed.notify_all()
                raise error
            taken: list[PolledRange] = []
            room = max_records
            while self._portions and room > 0:
                portion = self._portions[0]
                if portion.record_count <= room + portion.acquisition.excess_count:
                    room = max(room, portion.record_count)
                room -= _take(portion, room, taken)
                if not portion.ranges:
                    self._portions.popleft()
                if portion.is_cut:
                    break
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """End the thread, which may last until the current read ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.member.notify()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        number = 0
        while (acquisition := self.member.await_acquisition(number)) is not None and not self._is_closed:
            number = acquisition.number
            self.lock_timeout_ms = acquisition.lock_timeout_ms
            self._is_reading = True
            self._read(acquisition)
            if self.member.waiting_after(number) is None:
                self._is_reading = False
                self.member.notify()

    def _read(self, acquisition: Acquisition) -> None:
        ranges = acquisition.ranges
        while ranges and self._has_room() and self._is_waiting(acquisition):
            started_s = time.monotonic()
            try:
                chunk = self._reader.read(ranges, _RECORDS_AT_ONCE)
            except Exception as error:
                self._failed(error)
                continue
            self._cause = ""
            ranges = chunk.rest
            if count := sum(len(read_range.records) for read_range in chunk.ranges):
                self.member.read(count, (time.monotonic() - started_s) * 1_000)
            self._add(acquisition, chunk.ranges, count, is_cut=bool(ranges) and count < _RECORDS_AT_ONCE)
            if chunk.unreadable:
                # Returned at once, they would be acquired again at once.
                self._pause()
                self._add(acquisition, chunk.unreadable)

    def _add(
        self, acquisition: Acquisition, ranges: list[ReadRange], record_count: int = 0, is_cut: bool = False
    ) -> None:
        """Add a portion for the next polls."""
        if ranges:
            with self._changed:
                self._portions.append(_Portion(acquisition, deque(ranges), record_count, is_cut))
            self.member.notify()

    def _is_waiting(self, acquisition: Acquisition) -> bool:
        """Return True if a part of an acquisition waits to be delivered."""
        waiting = self.member.waiting_after(acquisition.number - 1)
        return waiting is not None and waiting.number == acquisition.number

    def _has_room(self) -> bool:
        """Wait until there is room for more records; return False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._is_full)
            return not self._is_closed

    @property
    def _is_full(self) -> bool:
        return self._ahead_count >= _RECORDS_AHEAD or sum(portion.is_cut for portion in self._portions) >= _CUT_PORTIONS

    @property
    def _ahead_count(self) -> int:
        return sum(portion.record_count for portion in self._portions)

    def _failed(self, error: Exception) -> None:
        """Report an error that is not retriable, once for each cause; otherwise pause."""
        cause = repr(error)
        if cause != self._cause:
            self._cause = cause
            if isinstance(error, LogUnavailableError):
                _logger.warning("Member %s cannot read records, and tries again: %s", self.member.member_id, error)
            else:
                if not isinstance(error, ShareGroupError):
                    _logger.exception("The reader of member %s met an error.", self.member.member_id)
                self._report(error)
                return
        self._pause()

    def _pause(self) -> None:
        """Wait before another attempt; less long once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, _RETRY_PAUSE_S)

    def _report(self, error: Exception) -> None:
        """Pass an error to the next poll, and wait for it."""
        with self._changed:
            if self._is_closed:
                return
            self._error = error
        self.member.notify()
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._error is None)


def _take(portion: _Portion, max_records: int, taken: list[PolledRange]) -> int:
    """Move the first ranges of a portion, up to a number of records; return the number moved."""
    count = 0
    while portion.ranges and count < max_records:
        first = portion.ranges[0]
        start, portion.position = portion.position, portion.position + max_records - count
        if portion.position >= len(first.records):
            portion.ranges.popleft()
            portion.position = 0
        part = first.part(start, portion.position or len(first.records))
        count += len(part.records)
        taken.append((portion.acquisition.number, part))
    portion.record_count -= count
    return count
