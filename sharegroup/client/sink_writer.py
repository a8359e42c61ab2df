"""The results of a consumer's records on their way into its sink: one commit for all writes of a transaction."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import pyarrow as pa

from sharegroup.client.delta_sink import DeltaSink
from sharegroup.client.group_member import GroupMember
from sharegroup.client.handed_out import HandedOutWrites, PlannedPart
from sharegroup.client.held_records import ReadRange
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.client.result_rows import ResultRows
from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.client.write_resolver import WriteResolver
from sharegroup.config.table_location import TableLocation
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import SinkError, WriteFencedError
from sharegroup.protocol.sink_writes import Sink

_MOST_NAMED = 1_500
"""Acknowledgements of one commit that are not ACCEPT: so many fit into its metadata."""

_REFUSED_ROWS = re.compile(r"failed validation|invariant|constraint|schema|cannot be null", re.IGNORECASE)
"""Messages of delta-rs for rows that a table refuses; its errors for stores have no type of their own."""

_logger = logging.getLogger(__name__)


class SinkWriter:
    """The sink of a consumer, and the open writes of which it has records."""

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self._handed_out = HandedOutWrites()
        self._member: GroupMember | None = None
        self._resolver: WriteResolver | None = None
        self._expiry_ms = WRITE_EXPIRY_MS

    def follow(self, member: GroupMember) -> None:
        """Look writes up for a member from now on; a second call with it does nothing."""
        if self._member is None:
            self._member = member
            self._resolver = WriteResolver(member, self._sink)

    def rows(self) -> ResultRows:
        """Return rows to fill."""
        return ResultRows(self._sink.schema)

    @property
    def sink(self) -> Sink:
        """The table, with its version when it was last loaded."""
        return self._sink.sink

    def delivered(self, ranges: Sequence[ReadRange]) -> None:
        """Add records that a poll returns.

        Raises:
            SinkError: the table forgets transactions or commits before the group's writes expire.
        """
        member = self._joined()
        if (expiry_ms := member.write_expiry_ms) and expiry_ms != self._expiry_ms:
            self._sink.check(expiry_ms)
            self._expiry_ms = expiry_ms
        self._handed_out.add(ranges)
        # A write whose offsets have no records needs no commit.
        if gaps := self._handed_out.take_without_records(member.waits_with):
            member.acknowledge(gaps)

    def of_writes(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledgement]:
        """Return acknowledgements of delivered records, with the versions of their writes."""
        return self._handed_out.of_writes(acknowledgements)

    def settle(self, results: Sequence[Acknowledged]) -> None:
        """Handle the leader's responses: a record whose renewal was refused is lost."""
        for result in results:
            if result.error is not None:
                renewals = [a for a in result.acknowledgements if a.acknowledge_type is AcknowledgeType.RENEW]
                self._handed_out.lost(renewals)

    def commit(self, acknowledgements: Sequence[Acknowledgement], rows: ResultRows) -> None:
        """Write rows and acknowledgements in one commit, with a transaction for each write, and report it.

        Raises:
            WriteFencedError: the sink refused the commit whole; its records come again.
            SinkError: it is unknown whether the sink has it; its records come again if not.
        """
        if self._member is None:
            return
        ended = [*acknowledgements, *self._handed_out.missing]
        named = [ack for ack in ended if ack.acknowledge_type is not AcknowledgeType.ACCEPT]
        # What does not fit into one commit gets into parts without rows before it.
        while len(named) > _MOST_NAMED:
            portion, named = named[:_MOST_NAMED], named[_MOST_NAMED:]
            self._commit(self._member, self._handed_out.plan(portion, lambda _: True), None)
        self._commit(self._member, self._handed_out.plan(ended, self._member.waits_with), rows.table)

    def _commit(self, member: GroupMember, planned: Sequence[PlannedPart], rows: pa.Table | None) -> None:
        if not planned:
            return
        try:
            committed = self._sink.commit([each.part for each in planned], rows)
            # Whatever fails from here on must not release what is written.
            (self._handed_out.committed if committed.is_written else self._handed_out.fenced)(planned)
        except BaseException as error:
            # A delivery counts if its results may be at fault, and not because of a store that is away.
            self.give_up(is_begun=True, is_unread=not _REFUSED_ROWS.search(str(error)))
            raise
        settles = {part.write.version: acks for part, acks in planned} if committed.is_written else {}
        for report in committed.reports:
            member.report(report, settles.get(report.version, ()))
        for report in committed.reports:
            if report.is_closed:
                member.withdraw(report.version)
        member.name_sink(self._sink.sink)
        if not committed.is_written:
            versions = ", ".join(str(report.version) for report in committed.reports)
            raise WriteFencedError(
                f"The commit into {self._sink.sink.address} was refused, since a write of it was fenced, or belongs to "
                f"another table: {versions}. Nothing of it is written.",
                "Its records come again.",
            )

    def give_up(self, *, is_begun: bool = False, is_unread: bool = False) -> None:
        """Release the records that the application has, and return the rest of their writes unread.

        Args:
            is_begun: True if a commit of them may be in the sink, or may get there: they are looked up first.
            is_unread: return them unread, too: their delivery does not count.
        """
        member, resolver = self._member, self._resolver
        if member is None or resolver is None:
            return
        for given_up in self._handed_out.give_up(member.withdraw, is_begun=is_begun, is_unread=is_unread):
            member.acknowledge(given_up.acknowledgements)
            if given_up.is_begun:
                resolver.add(given_up.write.unresolved)

    def close(self, timeout_s: float) -> None:
        """Give up what is not written, look up what was begun, and end the lookups.

        Args:
            timeout_s: time for the lookups; what is left, another member looks up, or `sharegroup groups resolve`.
        """
        self.give_up()
        if self._resolver is not None:
            if not self._resolver.drain(timeout_s):
                count = self._resolver.waiting_count
                _logger.warning("%d writes into %s are not looked up yet.", count, self._sink.sink.address)
            if not self._resolver.close():
                # A lookup goes on, which may commit: the table stays locked until the process ends.
                return
        self._sink.close()

    def _joined(self) -> GroupMember:
        if self._member is None:
            raise SinkError("The consumer has no member yet.", "Poll first.")
        return self._member


def opened_sink(location: TableLocation) -> DeltaSink:
    """Open the sink of a consumer.

    Raises:
        SinkError: it is no Delta table, cannot be read, or cannot be written exactly once from here.
    """
    sink = DeltaSink(location, location.options)
    try:
        sink.check()
    except BaseException:
        sink.close()
        raise
    return sink
