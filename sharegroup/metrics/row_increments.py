"""What the rows of a commit add to the counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sharegroup.core.record_state import ACKNOWLEDGE_CAUSE, AcknowledgeType, Cause, RecordState
from sharegroup.metrics.catalogue import (
    ACQUISITION_LOCK_TIMEOUT,
    COMMITS,
    DELIVERY_LIMIT_REACHED,
    RECORD_ACKNOWLEDGEMENTS,
    REDELIVERIES,
    SHARE_GROUP_REBALANCE_COUNT,
    TRANSITIONS,
    WRITE_TOTAL,
)
from sharegroup.metrics.registry import Increment
from sharegroup.protocol.rows import RecordType, StateRow

_COUNTED_TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)
"""Those that Kafka counts: a gap is none of the application's."""
_TYPE_OF_CAUSE = {ACKNOWLEDGE_CAUSE[found]: found.name.capitalize() for found in _COUNTED_TYPES}
ACKNOWLEDGE_TYPES = tuple(_TYPE_OF_CAUSE.values())
"""Their names, as Kafka's tag has them."""
_RETRY_CAUSES = frozenset({Cause.RELEASE, Cause.LOCK_TIMEOUT, Cause.SESSION_CLOSE})
"""Causes after which a record is delivered again, unless it was delivered too often."""
_GIVEN_UP = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVED})

WRITES = frozenset({RecordType.SHARE_SNAPSHOT, RecordType.SHARE_UPDATE})
"""Rows of what Kafka would persist."""

NO_ROWS_YET: tuple[Increment, ...] = (
    *(Increment(RECORD_ACKNOWLEDGEMENTS, (found,), 0) for found in ACKNOWLEDGE_TYPES),
    *(Increment(metric, (), 0) for metric in (WRITE_TOTAL, SHARE_GROUP_REBALANCE_COUNT, COMMITS)),
)
"""Counters that are there from the start, so that their first step is seen."""


def row_increments(row: StateRow) -> Iterator[Increment]:
    """What a row of the state table adds to the counters."""
    if row.transitions:
        yield from _transition_increments(row)
    elif row.record_type in WRITES:
        yield Increment(ACQUISITION_LOCK_TIMEOUT, share_partition_labels(row), 0)
    if row.record_type in WRITES:
        yield Increment(WRITE_TOTAL, (), 1)
    elif row.record_type is RecordType.GROUP_METADATA:
        yield Increment(SHARE_GROUP_REBALANCE_COUNT, (), group_epoch_count(row))
    elif row.record_type is RecordType.COMMIT_MARKER:
        yield Increment(COMMITS, (), 1)


def group_epoch_count(row: StateRow) -> int:
    """How often the group epoch rose with a row."""
    return sum(record["type"] == "ShareGroupMetadata" for record in row.payload.get("records", ()))


def new_batch_sizes(row: StateRow) -> list[int]:
    """Records in each range that came in flight with a row."""
    return [
        entry.last_offset - entry.first_offset + 1
        for entry in row.transitions
        if entry.cause is Cause.ACQUIRE and entry.from_state is None
    ]


def share_partition_labels(row: StateRow) -> tuple[str, str, str]:
    """Group, topic and partition of a row."""
    return row.group_id, row.topic, str(row.partition)


def _transition_increments(row: StateRow) -> Iterator[Increment]:
    topic = (row.group_id, row.topic)
    causes: Counter[Cause] = Counter()
    redeliveries = given_up = 0
    for entry in row.transitions:
        size = entry.last_offset - entry.first_offset + 1
        causes[entry.cause] += size
        if entry.cause is Cause.ACQUIRE and entry.delivery_count > 1:
            redeliveries += size
        if entry.cause in _RETRY_CAUSES and entry.to_state in _GIVEN_UP:
            given_up += size
    for cause, count in causes.items():
        yield Increment(TRANSITIONS, (*topic, cause.value), count)
        if cause in _TYPE_OF_CAUSE:
            yield Increment(RECORD_ACKNOWLEDGEMENTS, (_TYPE_OF_CAUSE[cause],), count)
    yield Increment(REDELIVERIES, topic, redeliveries)
    yield Increment(DELIVERY_LIMIT_REACHED, topic, given_up)
    yield Increment(ACQUISITION_LOCK_TIMEOUT, share_partition_labels(row), causes[Cause.LOCK_TIMEOUT])
