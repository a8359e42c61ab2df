"""Segments over columns: every finding is that of the check row by row, and segments that hold need no such check."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.led_partition import LedPartition
from sharegroup.audit.live.live_check import snapshot_row
from sharegroup.audit.verification import quick_segments
from sharegroup.audit.verification.group_rows import GroupRows, TableContext
from sharegroup.audit.verification.limits_in_force import limits_of
from sharegroup.audit.verification.quick_segments import check_segments
from sharegroup.audit.verification.segments import CheckedSegment, SegmentKey, check_segment, segment_keys
from sharegroup.audit.verification.verify import is_few, is_of_share_partition
from sharegroup.audit.verification.verify_table import in_segments
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.core.acquisition import AcquireRequest
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.core.records import AcknowledgementBatch, SharePartitionLimits, SharePartitionRecord
from sharegroup.core.rejected_records import RejectedRecords
from sharegroup.core.share_partition import SharePartition
from sharegroup.protocol.group_records import ShareGroupConfig
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import FoldedPartition, fold_order
from sharegroup.state.schema import rows_to_table, utc_date
from tests.audit.recorded_table import Rows

pytestmark = pytest.mark.slow

BROKER = BrokerConfig()
ENTRY_FIELDS = (
    *("first_offset", "last_offset", "from_state", "to_state", "delivery_count", "member_id", "deadline_ms", "cause"),
    *("time_ms", "request_offset", "is_suspect"),
)
COLUMNS = (
    *("record_type", "topic", "partition", "request_partition", "request_offset", "leader_epoch", "time_ms"),
    *("state_epoch", "snapshot_epoch", "start_offset", "delivery_complete_count", "state_batches", "runs"),
    *("transitions", "payload"),
)


def context_of(rows: list[StateRow]) -> TableContext:
    groups = GroupRows(BROKER, is_whole=True)
    groups.check_all(row for row in rows if is_few(row))
    return groups.context()


def by_row(rows: list[StateRow], context: TableContext) -> list[CheckedSegment]:
    """The segments, checked row by row."""
    segments: dict[SegmentKey, list[StateRow]] = defaultdict(list)
    for row in sorted(rows, key=fold_order):
        if is_of_share_partition(row):
            for key in segment_keys(row):
                segments[key].append(row)
    return [check_segment(key, of_segment, context) for key, of_segment in segments.items()]


def by_columns(rows: list[StateRow], context: TableContext) -> list[CheckedSegment]:
    """The segments, checked over columns."""
    return list(check_segments(in_segments(rows_to_table(rows)), context))


def outcome(checked: list[CheckedSegment]) -> tuple[int, list[str], list[str]]:
    findings = sorted(str(finding) for segment in checked for finding in segment.findings)
    orphan_rows = sorted(repr(segment.orphan_row) for segment in checked if segment.orphan_row is not None)
    return sum(segment.transition_count for segment in checked), findings, orphan_rows


def engine_rows(seed: int, step_count: int) -> Iterator[StateRow]:
    """Rows of one share-partition whose two members do at random whatever the engine allows."""
    random = Random(seed)
    limits = limits_of(BROKER, configured(seed))
    led = LedPartition("orders", "orders-id", 0, SharePartition(10), SnapshotEpochs())
    state = led.share_partition
    log_end, now_ms = 30, 1_000
    for step in range(step_count):
        now_ms += random.choice([0, 1, 5_000, 31_000])
        log_end += random.randrange(40)
        for _ in range(random.randrange(1, 4)):
            member = random.choice(["anna", "ben"])
            match random.randrange(10):
                case 0 | 1 | 2:
                    records: list[SharePartitionRecord] = []
                    if not state.runs.are_suspects_held_by(member):
                        suspect_count = state.acquirable_suspect_count(log_end, now_ms)
                        takes_suspects = suspect_count > 0 and not state.runs.is_held_by(member)
                        request = AcquireRequest(member, random.randrange(1, 60), takes_suspects=takes_suspects)
                        records += state.acquire(request, limits, log_end, now_ms)[1]
                case 3:
                    records = state.expire_locks(limits, now_ms)
                case 4 if random.random() < 0.3:
                    records = state.release_member(member, limits, now_ms)
                case 5:
                    first = state.start_offset
                    records = state.finish_dead_letters(first, first + random.randrange(30), limits, now_ms)
                case _:
                    batches = [
                        AcknowledgementBatch(
                            *(first, last, (random.choice([*AcknowledgeType, AcknowledgeType.ACCEPT]),)),
                            random.choice([None, None, 2_000, 90_000]),
                        )
                        for run in state.runs.held_by(member)
                        for first in [random.randint(run.first_offset, run.last_offset)]
                        for last in [random.randint(first, run.last_offset)]
                    ]
                    records = state.acknowledge(member, batches, limits, now_ms)
            led.record(records, now_ms, step)
        row = led.take_row(8, LastRequests({}, 1))
        if row is not None:
            columns = {"group_id": "group-1", "request_partition": 0, "request_offset": step, "time_ms": now_ms}
            yield row.model_copy(update={**columns, "leader_epoch": 1 + step // 70, "date": utc_date(now_ms)})
            if random.random() < 0.1:
                yield table_snapshot(led, row.model_copy(update={**columns, "leader_epoch": 1 + step // 70}))


def table_snapshot(led: LedPartition, last: StateRow) -> StateRow:
    """The share-partition's row of a table snapshot after its last row."""
    rejected = led.rejected.ranges(led.share_partition.runs)
    folded = FoldedPartition("orders-id", "orders", 0, led.share_partition, led.epochs, 0, 0, RejectedRecords(rejected))
    return snapshot_row(folded, last).model_copy(update={"date": utc_date(last.time_ms)})


def configured(seed: int) -> dict[str, str]:
    """The settings of the group."""
    values = {"share.delivery.count.limit": "3", "share.partition.max.record.locks": "100"}
    return {**values, "errors.deadletterqueue.topic.name": "dlq"} if seed % 2 else values


def configuration(seed: int) -> StateRow:
    """The row with the group's configuration."""
    record = ShareGroupConfig(overrides=configured(seed))
    return StateRow(
        record_type=RecordType.GROUP_METADATA,
        group_id="group-1",
        leader_epoch=1,
        request_partition=0,
        request_offset=-1,
        payload={"records": [record.model_dump(mode="json")]},
    )


@pytest.fixture(scope="module")
def histories() -> list[Rows]:
    """Random histories; they hold."""
    histories = [Rows([configuration(seed), *engine_rows(seed, 150)]) for seed in range(6)]
    for rows in histories:
        assert outcome(by_row(list(rows), context_of(list(rows))))[1] == []
    return histories


def changed(value: Any, number: int) -> Any:
    """Another value of the same type."""
    match value:
        case RecordType():
            return list(RecordType)[number % len(RecordType)]
        case RecordState() | None:
            return list(RecordState)[number % len(RecordState)]
        case Cause():
            return list(Cause)[number % len(Cause)]
        case bool():
            return bool(number % 2)
        case int():
            return value + (number % 5 - 2)
        case str():
            return ("", "member-1", "member-2", value + "x")[number % 4]
        case list():
            return value[:-1] if number % 2 else [*value, *value[-1:]]
        case dict():
            return ({}, {"log_start_offset": number % 60}, {"rejected": [[1, 2]]}, value)[number % 4]
    raise TypeError(value)


numbers = st.integers(0, 10_000)
changes = st.lists(
    st.tuples(st.sampled_from(["drop", "repeat", "column", "column", "entry", "entry", "entry"]), *[numbers] * 4),
    min_size=1,
    max_size=2,
)


def tampered(rows: list[StateRow], kind: str, row_number: int, name_number: int, entry: int, value: int) -> None:
    """Change the rows."""
    candidates = [
        i for i, row in enumerate(rows) if is_of_share_partition(row) and (row.transitions or kind != "entry")
    ]
    index = candidates[row_number % len(candidates)]
    row = rows[index]
    if kind == "drop":
        del rows[index]
    elif kind == "repeat":
        rows.insert(index, row)
    elif kind == "entry":
        entries = list(row.transitions)
        at, field = entry % len(entries), ENTRY_FIELDS[name_number % len(ENTRY_FIELDS)]
        entries[at] = entries[at].model_copy(update={field: changed(getattr(entries[at], field), value)})
        rows[index] = row.model_copy(update={"transitions": entries})
    else:
        name = COLUMNS[name_number % len(COLUMNS)]
        rows[index] = row.model_copy(update={name: changed(getattr(row, name), value)})


@pytest.mark.long("thousands of random histories")
@settings(max_examples=150, deadline=None)
@given(number=st.integers(0, 5), changes=changes)
def test_the_findings_are_those_of_the_rows(
    histories: list[Rows], number: int, changes: list[tuple[str, int, int, int, int]]
) -> None:
    rows = list(histories[number])
    for change in changes:
        tampered(rows, *change)
    context = context_of(rows)
    assert outcome(by_columns(rows, context)) == outcome(by_row(rows, context))


def test_segments_that_hold_are_not_checked_row_by_row(histories: list[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    """But where suspects are delivered: the columns cannot judge their portions."""
    again: list[CheckedSegment] = []
    monkeypatch.setattr(quick_segments, "check_segment", by_row_only_with_suspects(again))
    count = 0
    for rows in histories:
        checked = by_columns(list(rows), context_of(list(rows)))
        count += sum(segment.transition_count for segment in checked)
    assert count - sum(segment.transition_count for segment in again) > 300
    assert again


def by_row_only_with_suspects(again: list[CheckedSegment]) -> Callable[..., CheckedSegment]:
    """A check row by row that no segment needs in which nobody holds suspects."""

    def checked(key: SegmentKey, rows: list[StateRow], context: TableContext) -> CheckedSegment:
        held = [entry.is_suspect for row in rows for entry in row.transitions if entry.to_state is RecordState.ACQUIRED]
        held += [entry.is_suspect for row in rows for entry in row.runs if entry.state is RecordState.ACQUIRED]
        assert any(held)
        again.append(check_segment(key, rows, context))
        return again[-1]

    return checked


def under(context: TableContext, change: Callable[[SharePartitionLimits], SharePartitionLimits]) -> TableContext:
    """The same groups under other limits."""
    groups = {
        group_id: replace(
            group,
            configurations=tuple(known._replace(limits=change(known.limits)) for known in group.configurations),
        )
        for group_id, group in context.groups.items()
    }
    return replace(context, groups=groups)


def with_window(limit: int) -> Callable[[SharePartitionLimits], SharePartitionLimits]:
    return lambda limits: replace(limits, max_record_locks=limit)


def test_the_columns_know_how_far_each_acquisition_fills_the_window(
    histories: list[Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    for history in histories:
        rows, context = list(history), context_of(list(history))

        def holds(limit: int, rows: list[StateRow] = rows, context: TableContext = context) -> bool:
            return outcome(by_row(rows, under(context, with_window(limit))))[1] == []

        limits = range(1, 101)
        fullest = limits[bisect_left(limits, True, key=holds)]
        narrower = under(context, with_window(fullest - 1))
        past = outcome(by_columns(rows, narrower))
        assert past == outcome(by_row(rows, narrower))
        assert all("window_is_within_limit" in finding for finding in past[1])
        with monkeypatch.context() as patch:
            patch.setattr(quick_segments, "check_segment", by_row_only_with_suspects([]))
            by_columns(rows, under(context, with_window(fullest)))


@pytest.mark.parametrize(("max_span_offsets", "max_runs"), [(60, 10_000), (90, 10_000), (1_000, 9)])
def test_acquisitions_past_the_span_are_found(histories: list[Rows], max_span_offsets: int, max_runs: int) -> None:
    def narrowed(limits: SharePartitionLimits) -> SharePartitionLimits:
        # A window that is larger than the span is the span.
        return replace(limits, max_record_locks=60, max_span_offsets=max_span_offsets, max_runs=max_runs)

    findings: list[str] = []
    for rows in histories:
        context = under(context_of(list(rows)), narrowed)
        checked = outcome(by_columns(list(rows), context))
        assert checked == outcome(by_row(list(rows), context))
        findings += checked[1]
    assert any("span_is_within_limit" in finding for finding in findings)


def test_no_rows_have_no_segments() -> None:
    assert by_columns([], context_of([])) == []
