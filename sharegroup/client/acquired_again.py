"""Records that a member acquires again before acknowledgements of their earlier delivery are confirmed.

That happens when their locks end while the application works, or while acknowledgements wait for a processor. A lock
belongs to a member, so the acknowledgements still count. Delivered again, or returned unread, the records would have
the acknowledgements of the whole partition refused, since a share-partition takes all of a request or none. With a sink
an acknowledgement is of one write, so it does not count for a later delivery.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.held_records import HeldRange, unread
from sharegroup.client.pending_acknowledgements import Acknowledgement, PendingAcknowledgements
from sharegroup.client.waiting_acquisitions import WaitingAcquisitions
from sharegroup.core.offset_ranges import OffsetRange, RangeMap, subtract
from sharegroup.core.records import PartitionKey


def unacknowledged(
    acquired: tuple[HeldRange, ...], pending: PendingAcknowledgements, sent: Iterable[Acknowledgement]
) -> tuple[HeldRange, ...]:
    """Return the parts of acquired ranges without unconfirmed acknowledgements.

    Args:
        pending: acknowledgements that are not sent.
        sent: acknowledgements without a response.
    """
    if not acquired:
        return ()
    ranges: dict[PartitionKey, RangeMap[int]] = {}
    for ack in sent:
        ranges.setdefault(ack.key, RangeMap()).assign(ack.first_offset, ack.last_offset, ack.write_version)
    parts: list[HeldRange] = []
    for held in acquired:
        unconfirmed = _pending_ranges(pending, held)
        if held.key in ranges:
            of_sent = ranges[held.key].overlapping(held.first_offset, held.last_offset)
            unconfirmed += [(first, last) for first, last, version in of_sent if version == held.write_version]
        parts += subtract(held, sorted(unconfirmed))
    return tuple(parts)


def withdraw_acknowledged(waiting: WaitingAcquisitions, pending: PendingAcknowledgements) -> None:
    """Return waiting ranges of which records have unsent acknowledgements: those are sent, and the rest is unread."""
    withdrawn = waiting.withdraw(lambda held: bool(_pending_ranges(pending, held)))
    pending.put_back(unread(withdrawn, "other records of the range were acknowledged"))


def _pending_ranges(pending: PendingAcknowledgements, held: HeldRange) -> list[OffsetRange]:
    return pending.overlapping(held.key, held.first_offset, held.last_offset, held.write_version)
