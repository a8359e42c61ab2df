"""When a record that went back to the queue may be acquired again: ours, not of Kafka, and off by default."""

from __future__ import annotations

from sharegroup.core.record_state import Cause
from sharegroup.core.records import SharePartitionLimits

_HIGHEST_DOUBLING = 40
"""More doublings than any back-off needs to reach its maximum."""


def not_before_ms(
    cause: Cause, delivery_count: int, limits: SharePartitionLimits, now_ms: int, asked_delay_ms: int | None = None
) -> int:
    """The time before which nobody gets a record that has just become AVAILABLE; 0 when it may be acquired at once.

    A member that releases a record may say for how long. Else the group's back-off counts, doubled by each delivery
    after the first, when the record was released or its lock timed out: then an application has failed on it. A
    session that closes and `unread` say nothing of the record.

    Args:
        cause: why it is AVAILABLE.
        delivery_count: its deliveries so far.
        limits: limits in force.
        now_ms: when it became AVAILABLE.
        asked_delay_ms: what the member that released it asks for, None when it asks for nothing.
    """
    if cause is Cause.RELEASE and asked_delay_ms is not None:
        delay_ms = asked_delay_ms
    elif cause in (Cause.RELEASE, Cause.LOCK_TIMEOUT):
        doublings = min(max(delivery_count - 1, 0), _HIGHEST_DOUBLING)
        delay_ms = min(limits.redelivery_backoff_ms << doublings, limits.redelivery_backoff_max_ms)
    else:
        delay_ms = 0
    return now_ms + delay_ms if delay_ms else 0
