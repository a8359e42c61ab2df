"""Counters and gauges of groups, from rows that the real actors made."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.audit.history.group_history import group_history
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.core.records import MAX_RUNS
from sharegroup.errors import LogUnavailableError
from sharegroup.logs.port import PartitionOffsets
from sharegroup.logs.topic_offsets import TopicOffsets
from sharegroup.metrics import catalogue
from sharegroup.metrics.catalogue import Metric
from sharegroup.metrics.group_metrics import GroupMetrics
from sharegroup.metrics.registry import MetricsRegistry
from sharegroup.protocol.group_records import ShareGroupRemoved
from sharegroup.protocol.rows import RecordType, RunEntry, StateRow
from sharegroup.state.fold import FoldedState, fold, fold_order
from tests.actor.group_harness import GROUP_ID, START_MS, group_with, joined
from tests.actor.sink_group import TABLE, acquire, new_group, writer
from tests.audit.conftest import worked_on
from tests.metrics.values import everything, values

ROWS = sorted(worked_on(BrokerConfig(share_coordinator_snapshot_update_records_per_snapshot=1)), key=fold_order)
ORDERS_0 = (GROUP_ID, "orders", "0")
BROKER = BrokerConfig()


def offsets(topics: Iterable[str]) -> TopicOffsets:
    return {("orders-id", 0): PartitionOffsets(0, 60, 60)} if "orders" in topics else {}


def followed(rows: Iterable[StateRow], state: FoldedState | None = None, now_ms: int = START_MS) -> MetricsRegistry:
    """A registry that saw these rows, each in a batch of its own."""
    registry = MetricsRegistry(max_series=100, now_s=lambda: 0.0)
    metrics = GroupMetrics(registry, state or FoldedState(), offsets, BROKER, now_ms=lambda: now_ms)
    for row in rows:
        metrics.committed([row])
    return registry


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        # Two members acquired 10 each, 3 each and 24; 15 records were accepted; the log start passed the first 25.
        (
            catalogue.RECORD_ACKNOWLEDGEMENTS,
            {("Accept",): 18 - 3, ("Reject",): 1, ("Release",): 1, ("Renew",): 1},
        ),
        (catalogue.ACQUISITION_LOCK_TIMEOUT, {ORDERS_0: 3}),
        (catalogue.IN_FLIGHT_MESSAGE_COUNT, {ORDERS_0: 16}),
        (catalogue.IN_FLIGHT_BATCH_COUNT, {ORDERS_0: 1}),
        (catalogue.LOCKED_RECORDS, {ORDERS_0: 16}),
        (catalogue.WINDOW_RECORDS, {ORDERS_0: 16}),
        (catalogue.SPAN_FULL, {ORDERS_0: 0}),
        (catalogue.LAG, {ORDERS_0: 60 - 28}),
        (catalogue.REDELIVERIES, {ORDERS_0[:2]: 7}),
        (catalogue.DELIVERY_LIMIT_REACHED, {ORDERS_0[:2]: 0}),
        (catalogue.MEMBERS, {(GROUP_ID,): 3}),
        (catalogue.QUARANTINED, {(GROUP_ID,): 0}),
        (catalogue.GROUP_COUNT, {("share",): 1}),
        (catalogue.SHARE_GROUP_COUNT, {("Dead",): 0, ("Empty",): 0, ("Stable",): 1}),
        (catalogue.NUM_PARTITIONS, {("share",): 1}),
    ],
    ids=lambda value: value.short_name if isinstance(value, Metric) else "",
)
def test_values_after_rows(metric: Metric, expected: dict[tuple[str, ...], float]) -> None:
    assert values(followed(ROWS), metric) == expected


def test_open_writes_by_sink() -> None:
    group = new_group()
    anna, ben = writer(group), writer(group, "ben")
    acquire(anna, max_records=4)
    acquire(ben, max_records=3)
    anna.close()
    registry = followed(sorted(group.rows, key=fold_order), now_ms=START_MS + 600_000)
    of_sink = (group.group_id, TABLE.address)
    assert values(registry, catalogue.OPEN_WRITES) == {of_sink: 2}
    assert values(registry, catalogue.WRITES_IN_DOUBT) == {of_sink: 1}
    assert values(registry, catalogue.RESOLVING_RECORDS) == {(group.group_id, "orders", "0"): 4}
    (age_s,) = values(registry, catalogue.OLDEST_WRITE_IN_DOUBT_SECONDS).values()
    assert 500 < age_s <= 600


def test_counters_agree_with_the_audit() -> None:
    registry, history = followed(ROWS), group_history(GROUP_ID, ROWS)
    counted = {cause: count for (_, _, cause), count in values(registry, catalogue.TRANSITIONS).items()}
    assert counted == {cause.value: history.record_count(cause) for cause in Cause if history.record_count(cause)}
    assert len(counted) >= 10
    locked = history.count(RecordState.ACQUIRED)
    assert values(registry, catalogue.LOCKED_RECORDS) == {ORDERS_0: locked}


def test_writes_are_the_rows_that_kafka_would_persist() -> None:
    written = [row for row in ROWS if row.record_type in (RecordType.SHARE_SNAPSHOT, RecordType.SHARE_UPDATE)]
    assert values(followed(ROWS), catalogue.WRITE_TOTAL) == {(): len(written)}


@given(st.integers(0, len(ROWS)))
def test_a_start_from_the_fold_continues_the_rows_before_it(cut: int) -> None:
    """Gauges are those of the whole; counters are those of the rows after the start."""
    before, after = ROWS[:cut], ROWS[cut:]
    continued = followed(after, fold(before))
    read = MetricsRegistry(max_series=100, now_s=lambda: 0.0)
    GroupMetrics(read, fold(ROWS), offsets, BROKER, now_ms=lambda: START_MS).count(after)
    assert everything(continued) == everything(read)


def test_a_group_that_is_gone_has_no_series() -> None:
    last = ROWS[-1]
    removed = ShareGroupRemoved(reason="deleted").model_dump(mode="json")
    offset = last.request_offset + 1
    tombstone = last.model_copy(
        update={"record_type": RecordType.SHARE_TOMBSTONE, "transitions": [], "request_offset": offset}
    )
    metadata = StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id=GROUP_ID,
        request_partition=last.request_partition,
        request_offset=offset + 1,
        payload={"records": [removed]},
    )
    assert ORDERS_0 not in values(followed([*ROWS, tombstone]), catalogue.ACQUISITION_LOCK_TIMEOUT)
    registry = followed([*ROWS, tombstone, metadata])
    assert [name for name in everything(registry) if GROUP_ID in name] == []
    assert values(registry, catalogue.SHARE_GROUP_COUNT) == {("Dead",): 0, ("Empty",): 0, ("Stable",): 0}


def test_records_that_were_deleted_are_no_lag() -> None:
    def deleted(_: Iterable[str]) -> TopicOffsets:
        return {("orders-id", 0): PartitionOffsets(50, 60, 60)}

    registry = MetricsRegistry(max_series=100)
    GroupMetrics(registry, fold(ROWS), deleted, BROKER)
    assert values(registry, catalogue.LAG) == {ORDERS_0: 10}


def test_a_log_that_does_not_respond_costs_the_lag_only() -> None:
    def unavailable(_: Iterable[str]) -> TopicOffsets:
        raise LogUnavailableError("no", "try again")

    registry = MetricsRegistry(max_series=100)
    GroupMetrics(registry, fold(ROWS), unavailable, BROKER)
    assert values(registry, catalogue.LAG) == {}
    assert values(registry, catalogue.LOCKED_RECORDS) == {ORDERS_0: 16}


def test_delayed_records_count_towards_the_window_when_their_time_has_come() -> None:
    group = group_with(20)
    assert group.alter_config(**{"share.redelivery.backoff.ms": "5000"}) == 0
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.acknowledge({("orders-id", 0): [(0, 3, AcknowledgeType.RELEASE), (4, 5, AcknowledgeType.ACCEPT)]})
    until_ms = group.now_ms + 5_000
    counts = [
        values(followed(group.rows, now_ms=now_ms), catalogue.WINDOW_RECORDS)[ORDERS_0]
        for now_ms in (until_ms - 1, until_ms)
    ]
    assert counts == [4, 8]


@pytest.mark.parametrize(("run_count", "is_full"), [(MAX_RUNS - 1, 0), (MAX_RUNS, 1)])
def test_a_metric_says_when_the_bound_of_the_span_holds(run_count: int, is_full: int) -> None:
    row = next(row for row in ROWS if row.record_type is RecordType.SHARE_SNAPSHOT)
    states = [RecordState.AVAILABLE, RecordState.ACKNOWLEDGED]
    runs = [
        RunEntry(first_offset=offset, last_offset=offset, state=states[offset % 2], delivery_count=1)
        for offset in range(run_count)
    ]
    snapshot = row.model_copy(update={"start_offset": 0, "runs": runs, "transitions": []})
    assert values(followed([snapshot]), catalogue.SPAN_FULL) == {ORDERS_0: is_full}


def test_suspects_are_counted_until_they_are_acknowledged() -> None:
    group = group_with(20)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.acknowledge({("orders-id", 0): [(0, 3, AcknowledgeType.ACCEPT)]})
    counts = [values(followed(group.rows), catalogue.SUSPECT_RECORDS)[ORDERS_0]]
    group.advance(30_000)
    counts.append(values(followed(group.rows), catalogue.SUSPECT_RECORDS)[ORDERS_0])
    assert anna.fetch(max_records=10).record_count == 6
    counts.append(values(followed(group.rows), catalogue.SUSPECT_RECORDS)[ORDERS_0])
    anna.acknowledge({("orders-id", 0): [(4, 9, AcknowledgeType.ACCEPT)]})
    counts.append(values(followed(group.rows), catalogue.SUSPECT_RECORDS)[ORDERS_0])
    assert counts == [0, 6, 6, 0]
