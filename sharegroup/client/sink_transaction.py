"""The transaction of a consumer with a sink: the records that polls returned since the last one, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

from sharegroup.client.delivered import DeliveredRecords
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import ReadRange
from sharegroup.client.kafka_exceptions import IllegalStateException
from sharegroup.client.pending_acknowledgements import Acknowledged, Acknowledgement
from sharegroup.config.table_location import TableLocation

if TYPE_CHECKING:
    from sharegroup.client.result_rows import ResultRows
    from sharegroup.client.sink_writer import SinkWriter


class SinkTransaction:
    """The one transaction that a consumer may have open, and the records for the next one.

    Args:
        writer: None for a consumer without a sink.
        is_implicit: True to accept all records that polls returned.
    """

    def __init__(self, writer: SinkWriter | None, delivered: DeliveredRecords, *, is_implicit: bool) -> None:
        self._writer = writer
        self._delivered = delivered
        self._is_implicit = is_implicit
        self._is_open = False

    @contextmanager
    def opened(self, entered: Callable[[], AbstractContextManager[None]]) -> Iterator[ResultRows]:
        """Open it, and commit it at the end of the block; an exception gives its records up.

        Args:
            entered: guards a call of the application; the block itself is not one.

        Raises:
            IllegalStateException: the consumer has no sink, or a transaction is open.
        """
        with entered():
            rows = self._begin()
        try:
            yield rows
            with entered():
                self._commit(rows)
        except BaseException:
            # A commit that failed, or a close in the block, has given its records up already.
            with suppress(IllegalStateException), entered():
                self._give_up()
            raise
        finally:
            self._is_open = False

    def take_to_send(self, member: GroupMember) -> list[Acknowledgement]:
        """Return what a poll sends of the records before: with a sink only renewals, since its commit has the rest."""
        if self._writer is None:
            return self._delivered.take_acknowledged(self._is_implicit)
        self._writer.follow(member)
        return self._writer.of_writes(self._delivered.take_renewals())

    def deliver(self, ranges: list[ReadRange]) -> None:
        """Add records that a poll returns.

        Raises:
            SinkError: the table forgets transactions or commits before the group's writes expire.
        """
        self._delivered.add(ranges)
        if self._writer is not None:
            self._writer.delivered(ranges)

    def settle(self, results: Sequence[Acknowledged]) -> None:
        """Handle the leader's responses to acknowledgements."""
        self._delivered.renewals.settle(results)
        if self._writer is not None:
            self._writer.settle(results)

    def close(self, timeout_s: float) -> None:
        """Give up what is not written, and look up what was begun; without a sink it does nothing.

        Args:
            timeout_s: time for the lookups.
        """
        if self._writer is not None:
            self._delivered.clear()
            self._writer.close(timeout_s)

    def refuse_other_commits(self, method: str) -> None:
        """Refuse a commit of acknowledgements without their results.

        Raises:
            IllegalStateException: the consumer has a sink.
        """
        if self._writer is not None:
            raise IllegalStateException(
                f"{method} cannot commit records whose results have a sink: use transaction(), which writes both"
            )

    def _begin(self) -> ResultRows:
        if self._writer is None:
            raise IllegalStateException("The consumer has no sink: set `sink` in its configuration")
        if self._is_open:
            raise IllegalStateException("A transaction is open already")
        self._is_open = True
        return self._writer.rows()

    def _commit(self, rows: ResultRows) -> None:
        if not self._is_implicit and (count := self._delivered.unacknowledged_count):
            raise IllegalStateException(f"{count} records of the transaction have not been acknowledged")
        ended = self._delivered.take_ended(self._is_implicit)
        if not ended and rows.row_count:
            raise IllegalStateException("The transaction has rows, and no poll has returned records for it")
        if self._writer is not None:
            self._writer.commit(ended, rows)

    def _give_up(self) -> None:
        self._delivered.clear()
        if self._writer is not None:
            self._writer.give_up()


def sink_writer(location: TableLocation | None) -> SinkWriter | None:
    """Open the sink of a consumer; None without one, which needs no library of Delta tables.

    Raises:
        SinkError: it is no Delta table, cannot be read, or cannot be written exactly once from here.
    """
    if location is None:
        return None
    from sharegroup.client.sink_writer import SinkWriter, opened_sink

    return SinkWriter(opened_sink(location))
