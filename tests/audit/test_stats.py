"""The figures of a group: times in states, deliveries, slow members, poison records, pins of the start offset, gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.statistics.durations import Durations
from sharegroup.audit.statistics.gap_check import check_gaps
from sharegroup.audit.statistics.stats import stats
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.isolation_level import IsolationLevel
from sharegroup.errors import GroupIdNotFoundError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import NewRecord
from tests.actor.group_harness import GROUP_ID, START_MS
from tests.audit.conftest import FIRST_KEPT
from tests.audit.recorded_table import RecordedTable


@pytest.fixture(scope="module")
def figures(configured: RecordedTable) -> dict[str, Any]:
    (group,) = stats(configured.source, Selection(), BrokerConfig())["groups"]
    assert isinstance(group, dict)
    return group


def test_the_records_of_a_share_partition(figures: dict[str, Any]) -> None:
    (partition,) = figures["partitions"]
    counts = ("accepted_count", "archived_count", "waiting_count", "redelivered_count", "highest_delivery_count")
    assert [partition[name] for name in counts] == [22, 3, 0, 2, 2]
    assert (partition["start_offset"], partition["archived_at_limit_count"]) == (25, 2)
    assert partition["record_count_by_cause"] == {"accept": 22, "acquire": 27, "gap": 1, "release": 4}
    assert figures["deliveries_per_record"] == {"1": 23, "2": 2}


def test_the_time_in_each_state(figures: dict[str, Any]) -> None:
    times = figures["time_in_state"]
    # Ten records for 1 s, ten for 5 s, two twice and three once for no time.
    assert (times["ACQUIRED"]["record_count"], times["ACQUIRED"]["max_ms"]) == (27, 5_000)
    assert times["ACQUIRED"]["mean_ms"] == round(60_000 / 27)
    assert times["AVAILABLE"] == {"record_count": 2, "mean_ms": 500, "p50_ms": 500, "p99_ms": 500, "max_ms": 500}
    assert times["ARCHIVING"]["record_count"] == 0


def test_slow_members_come_first(figures: dict[str, Any]) -> None:
    anna, ben = figures["members"]
    assert (anna["member_id"], ben["member_id"]) == ("anna", "ben")
    assert (anna["acquired_count"], anna["accepted_count"], anna["time_to_acknowledge"]["mean_ms"]) == (10, 10, 5_000)
    assert (ben["released_count"], ben["gap_count"], ben["time_to_acknowledge"]["max_ms"]) == (4, 1, 1_000)


def test_poison_records(figures: dict[str, Any]) -> None:
    (most,) = figures["most_delivered"]
    assert (most["first_offset"], most["last_offset"], most["delivery_count"], most["state"]) == (20, 21, 2, "ARCHIVED")
    (given_up,) = figures["archived_at_limit"]
    assert (given_up["first_offset"], given_up["last_offset"], given_up["cause"]) == (20, 21, "release")
    assert (given_up["member_id"], given_up["delivery_count"]) == ("ben", 2)


def test_a_record_that_held_the_start_offset(figures: dict[str, Any]) -> None:
    pin = figures["head_of_line_pins"][0]
    assert (pin["offset"], pin["since_ms"], pin["duration_ms"]) == (0, START_MS + 3_000, 4_000)
    assert (pin["finished_behind_count"], pin["member_id"], pin["ended_by"]) == (10, "anna", "accept")


def test_a_record_that_holds_the_start_offset_still(recorded: RecordedTable) -> None:
    (group,) = stats(recorded.source, Selection(GROUP_ID), BrokerConfig())["groups"]
    longest = group["head_of_line_pins"][0]
    # The released record 5 held what the others had finished, until the log start passed it.
    assert (longest["offset"], longest["ended_by"], longest["delivery_count"]) == (5, "log_start", 3)
    assert longest["duration_ms"] == 30_000


def test_figures_of_a_pruned_table_are_those_since(pruned_table: RecordedTable) -> None:
    document = stats(pruned_table.source, Selection(), BrokerConfig())
    assert (document["history_start"].commit_id, document["history_start"].is_whole) == (FIRST_KEPT, False)
    (group,) = document["groups"]
    (partition,) = group["partitions"]
    # The records in flight at the snapshot are known with their deliveries, those below the start offset are not.
    assert (partition["accepted_count"], partition["waiting_count"], partition["start_offset"]) == (8 + 3, 16, 28)
    assert group["deliveries_per_record"] == {"1": 33, "2": 5, "3": 1}
    # The locks of anna's three records began before.
    assert group["time_in_state"]["ACQUIRED"]["record_count"] == 17


def test_gaps_that_members_reported(figures: dict[str, Any]) -> None:
    (gap,) = figures["gaps"]
    assert (gap["topic"], gap["record_count"], gap["ranges"], gap["check"]) == ("orders", 1, [[23, 23]], None)


def test_lists_have_a_bound(recorded: RecordedTable) -> None:
    (group,) = stats(recorded.source, Selection(), BrokerConfig(), limit=1)["groups"]
    assert [len(group[name]) for name in ("most_delivered", "head_of_line_pins")] == [1, 1]
    assert group["most_delivered"][0]["delivery_count"] == 3


def test_an_unknown_group_is_refused(recorded: RecordedTable) -> None:
    with pytest.raises(GroupIdNotFoundError):
        stats(recorded.source, Selection("nobody"), BrokerConfig())


@pytest.fixture
def log(tmp_path: Path) -> LocalLog:
    log = LocalLog(tmp_path / "log.db")
    log.create_topic("orders", 1)
    log.append("orders", 0, [NewRecord(None, b"v")] * 10)
    log.delete_records("orders", 0, 3)
    return log


@pytest.mark.parametrize(
    ("ranges", "checked_count", "unchecked_count", "with_record"),
    [
        pytest.param([(5, 6)], 2, 0, ((5, 6),), id="they have records"),
        pytest.param([(0, 1), (12, 13)], 0, 4, (), id="outside of the log"),
        pytest.param([(2, 3), (9, 10)], 2, 2, ((3, 3), (9, 9)), id="at both ends"),
    ],
)
def test_gaps_are_read_again(
    log: LocalLog,
    ranges: list[tuple[int, int]],
    checked_count: int,
    unchecked_count: int,
    with_record: tuple[tuple[int, int], ...],
) -> None:
    with log:
        topic_id = log.describe_topic("orders").topic_id
        check = check_gaps(log, "orders", topic_id, 0, ranges, IsolationLevel.READ_UNCOMMITTED)
        assert (check.checked_count, check.unchecked_count) == (checked_count, unchecked_count)
        assert check.with_record == with_record
        assert bool(check.unchecked_reason) == bool(unchecked_count)
        other = check_gaps(log, "orders", "another-id", 0, ranges, IsolationLevel.READ_UNCOMMITTED)
        assert (other.checked_count, other.unchecked_reason) == (0, "the topic was deleted")


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 5)), min_size=1))
def test_percentiles_are_close(added: list[tuple[int, int]]) -> None:
    durations, other = Durations(), Durations()
    for index, (duration_ms, record_count) in enumerate(added):
        (other if index % 2 else durations).add(duration_ms, record_count)
    durations.merge(other)
    every = sorted(duration_ms for duration_ms, count in added for _ in range(count))
    summary = durations.summary()
    assert (summary.record_count, summary.max_ms) == (len(every), every[-1])
    assert summary.mean_ms == round(sum(every) / len(every))
    for percent, shown in ((50, summary.p50_ms), (99, summary.p99_ms)):
        exact = every[-(-len(every) * percent // 100) - 1]
        assert shown is not None
        assert exact <= shown <= exact * 1.04
