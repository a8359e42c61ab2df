"""The calls of a worker's handler for one acquisition whose results go into a sink.

1. The results of the whole acquisition are one commit, which closes its write.
2. Where the handler fails with it, the results of each part that it processes are a commit, and a last one closes the
   write with what was given up.
3. A write of which nothing has begun is given up by acknowledgements, all its records at once.
4. Whatever else fails is the sink's: the search ends, and only the sink decides. The acknowledgements say so
   (`is_begun`), and hold if the sink has nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame

from sharegroup.client.held_records import HeldRange, unread
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError, UndecidedWriteError, WriteFencedError
from sharegroup.event_log import Event
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.spark.failure_search import Outcome
from sharegroup.spark.sink.sink_write import SinkWrite, WriteGivenUpError

logger = logging.getLogger("sharegroup.spark.worker")

_NOT_WRITTEN = "the sink could not be written"


class HandledRecords(NamedTuple):
    """The results of a handler for some records.

    Attributes:
        rows: rows for the sink, not computed yet.
        acknowledgements: of all these records.
        note_gaps: called when the rows are computed.
    """

    rows: DataFrame
    acknowledgements: list[Acknowledgement]
    note_gaps: Callable[[], None]


class WrittenCalls:
    """Calls a handler with the records of one acquisition, and writes what it returns.

    Args:
        handle: calls the handler; raises its exception.
        ranges: the records of the acquisition that the handler receives.
        unreadable: acknowledgements of its other records.
    """

    def __init__(
        self,
        handle: Callable[[list[HeldRange]], HandledRecords],
        write: SinkWrite,
        ranges: Sequence[HeldRange],
        unreadable: Sequence[Acknowledgement],
        event: Callable[..., Event],
    ) -> None:
        self._handle = handle
        self._write = write
        self._ranges = ranges
        self._unreadable = unreadable
        self._event = event
        self._in_parts: set[Acknowledgement] = set()
        """Acknowledgements that are in the commits of parts."""
        self._resolved: ResolveWriteRequest | None = None
        self._failure: SinkError | None = None

    def until(self, is_cancelled: Callable[[], bool]) -> Callable[[], bool]:
        """Return a condition that also ends the search when the sink fails, or has all."""
        return lambda: self._failure is not None or self._resolved is not None or is_cancelled()

    def call(self, part: list[HeldRange]) -> list[Acknowledgement]:
        """Call the handler, and commit its rows; return the acknowledgements, which are in the commit."""
        handled = self._handle(part)
        is_whole = not self._in_parts and _record_count(part) == _record_count(self._ranges)
        try:
            if is_whole:
                self._resolved = self._write.commit(handled.rows, [*handled.acknowledgements, *self._unreadable])
            else:
                self._write.commit_part(handled.rows, handled.acknowledgements)
                self._in_parts.update(handled.acknowledgements)
        except SinkError as error:
            self._failure = error
            raise
        handled.note_gaps()
        return handled.acknowledgements

    def finish(self, outcome: Outcome, return_delay_ms: Callable[[], int | None]) -> None:
        """End the write, and add to an outcome what the sink says of it; else its acknowledgements are to be sent.

        Args:
            return_delay_ms: returns for how long the records stay unavailable, as the sink cannot be written.
        """
        if self._resolved is None and self._failure is None:
            if not self._write.give_up():
                return
            rest = [ack for ack in outcome.acknowledgements if ack not in self._in_parts]
            self._end(lambda: self._write.close(rest))
        elif isinstance(self._failure, WriteFencedError):
            self._end(self._write.fence)
        outcome.resolved = self._resolved
        if self._resolved is None and self._failure is not None:
            logger.error(self._event("write_failed", reason=self._failure))
            self._put_off(outcome, return_delay_ms)

    def _end(self, end: Callable[[], ResolveWriteRequest]) -> None:
        self._failure = None
        try:
            self._resolved = end()
        except WriteFencedError:
            # It has nothing of the write; the one that fenced it has said so.
            self._end(self._write.fence)
        except SinkError as error:
            self._failure = error

    def _put_off(self, outcome: Outcome, return_delay_ms: Callable[[], int | None]) -> None:
        """Keep what was intended for the records, if the sink has none of them."""
        is_begun = self._write.give_up()
        delay_ms = None
        if not isinstance(self._failure, UndecidedWriteError | WriteGivenUpError):
            delay_ms = return_delay_ms()
            outcome.delayed_count = 0 if delay_ms is None else _record_count(self._ranges)
        kept = [
            ack._replace(is_begun=is_begun) for ack in outcome.acknowledgements if ack.acknowledge_type not in _PUT_OFF
        ]
        returned = [
            part
            for ack in outcome.acknowledgements
            if ack.acknowledge_type in _PUT_OFF
            for held in self._ranges
            if held.key == ack.key
            and (first := max(held.first_offset, ack.first_offset)) <= (last := min(held.last_offset, ack.last_offset))
            for part in [held.cut(first, last)]
        ]
        outcome.acknowledgements = [*kept, *unread(returned, _NOT_WRITTEN, delay_ms, is_begun=is_begun)]


_PUT_OFF = (AcknowledgeType.ACCEPT, AcknowledgeType.UNREAD)
"""Records that the handler accepted, or did not receive, are delivered again; those that it gave up are not."""


def _record_count(ranges: Iterable[HeldRange]) -> int:
    return sum(held.record_count for held in ranges)
