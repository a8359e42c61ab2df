"""The state at a point is the state that the actors had in memory then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sharegroup.audit.history.as_of import Selection, as_of
from sharegroup.audit.history.diff import diff
from sharegroup.audit.history.extent import HistoryStart, iso_time
from sharegroup.audit.history.lineage import LineageRequest, lineage
from sharegroup.audit.history.points import CommitPoint, PointRequest, RequestPoint, TimePoint, parse_point
from sharegroup.audit.history.row_source import TableRows
from sharegroup.core.record_state import RecordState
from sharegroup.core.run import Run
from sharegroup.errors import (
    ConfigurationError,
    GroupIdNotFoundError,
    PointOutsideHistoryError,
    ShareGroupError,
    StateTableError,
    UnknownTopicError,
    UnsupportedFormatVersionError,
)
from sharegroup.state.writer import StateTableWriter
from tests.actor.group_harness import GROUP_ID, START_MS
from tests.audit.conftest import FIRST_KEPT
from tests.audit.recorded_table import LeaderState, Moment, RecordedTable

ALL = Selection()


def leader_in(document: Mapping[str, Any]) -> LeaderState:
    """The share-partition's start offset and runs of a document."""
    partitions = [partition for group in document["groups"] for partition in group["partitions"]]
    if not partitions:
        return None
    (partition,) = partitions
    runs = [
        Run(
            run["first_offset"],
            run["last_offset"],
            RecordState[run["state"]],
            run["delivery_count"],
            run["member_id"],
            run["deadline_ms"],
            run["is_suspect"],
        )
        for run in partition["runs"]
    ]
    return partition["start_offset"], tuple(runs)


def members_in(document: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(member["member_id"] for group in document["groups"] for member in group["members"])


def assert_is(document: Mapping[str, Any], moment: Moment, at: str) -> None:
    assert (leader_in(document), members_in(document)) == (moment.leader, moment.members), at


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recorded", "with_snapshots"])
def test_the_state_at_each_cut_is_that_of_the_actors(name: str, request: pytest.FixtureRequest) -> None:
    table: RecordedTable = request.getfixturevalue(name)
    last_at = {moment.cut_ms: moment for moment in table.moments}
    source = table.source
    for moment in table.moments:
        at = f"0:{moment.end_offset - 1}"
        assert_is(as_of(source, at, ALL), moment, at)
        if moment.is_commit_end:
            at = f"commit:{moment.commit_id}"
            assert_is(as_of(source, at, ALL), moment, at)
    for time_ms, moment in last_at.items():
        assert_is(as_of(source, iso_time(time_ms), ALL), moment, iso_time(time_ms))
        assert_is(as_of(source, str(time_ms + 1), ALL), moment, f"{time_ms} + 1")
    assert_is(as_of(source, "latest", ALL), table.moments[-1], "latest")


def test_a_position_within_a_cut_is_the_whole_cut(recorded: RecordedTable) -> None:
    ends = [0, *(moment.end_offset for moment in recorded.moments)]
    index = max(range(len(recorded.moments)), key=lambda i: ends[i + 1] - ends[i])
    assert ends[index + 1] - ends[index] > 1
    document = as_of(recorded.source, f"0:{ends[index]}", ALL)
    assert_is(document, recorded.moments[index], f"0:{ends[index]}")
    assert document["end_offsets"] == {"0": ends[index + 1]}


def test_a_point_says_where_it_is(recorded: RecordedTable) -> None:
    moment = next(m for m in recorded.moments if not m.is_commit_end and m.commit_id == 3)
    document = as_of(recorded.source, f"0:{moment.end_offset - 1}", ALL)
    assert document["commit_id"] == 2
    assert document["time_ms"] == moment.cut_ms
    assert document["end_offsets"] == {"0": moment.end_offset}


def test_locks_have_their_member_and_their_rest(recorded: RecordedTable) -> None:
    moment = next(m for m in recorded.moments if m.leader and m.leader[1] and m.leader[1][0].member_id == "anna")
    document = as_of(recorded.source, f"0:{moment.end_offset - 1}", Selection(GROUP_ID, "orders", 0))
    lock = document["groups"][0]["partitions"][0]["locks"][0]
    assert (lock["first_offset"], lock["last_offset"], lock["member_id"]) == (0, 9, "anna")
    assert lock["remaining_ms"] == 30_000


def test_a_pruned_table_answers_from_its_snapshot_on(pruned_table: RecordedTable) -> None:
    source = pruned_table.source
    for moment in (m for m in pruned_table.moments if m.is_commit_end):
        at = f"commit:{moment.commit_id}"
        if moment.commit_id >= FIRST_KEPT:
            assert_is(as_of(source, at, ALL), moment, at)
            continue
        with pytest.raises(PointOutsideHistoryError) as error:
            as_of(source, at, ALL)
        assert error.value.remedy == (
            "Answerable are the points from commit 3 (2026-01-01T00:00:02.000Z) to commit 7 (2026-01-01T00:00:32.000Z)."
        )
    assert as_of(source, "latest", ALL)["history_start"] == HistoryStart(
        FIRST_KEPT, START_MS + 2_000, "2026-01-01T00:00:02.000Z", is_whole=False
    )


@pytest.mark.parametrize("at", [str(START_MS - 1), "2025-12-31", "0:2", "commit:0"])
def test_points_that_were_pruned_are_refused(pruned_table: RecordedTable, at: str) -> None:
    with pytest.raises(PointOutsideHistoryError, match=r"Answerable are the points from commit 3 \("):
        as_of(pruned_table.source, at, ALL)


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (
            "2025-12-31T23:59:59Z",
            r"no commit at or before 2025-12-31T23:59:59\.000Z\. Answerable are the points from commit 0 \(",
        ),
        ("0", r"no commit at or before 1970-01-01T00:00:00\.000Z"),
        ("commit:999", "no commit 999 yet"),
        ("0:99999", "Message 99999 of request partition 0 is not applied by any commit yet"),
        ("7:0", "Message 0 of request partition 7 is not applied"),
    ],
)
def test_points_outside_the_history_are_refused(recorded: RecordedTable, at: str, problem: str) -> None:
    with pytest.raises(PointOutsideHistoryError, match=problem):
        as_of(recorded.source, at, ALL)


def test_a_time_after_the_last_commit_is_its_state_until_now(recorded: RecordedTable) -> None:
    last = recorded.moments[-1]
    now_ms = last.cut_ms + 3_600_000
    for time_ms in (last.cut_ms + 1, now_ms):
        document = as_of(recorded.source, str(time_ms), ALL, now_ms)
        assert_is(document, last, str(time_ms))
        assert (document["time_ms"], document["commit_id"]) == (time_ms, last.commit_id)
    assert_is(as_of(recorded.source, str(last.cut_ms), ALL, START_MS), last, "this machine's clock is behind the log's")


@pytest.mark.parametrize("behind_ms", [0, 60_000])
def test_a_time_in_the_future_is_refused(recorded: RecordedTable, behind_ms: int) -> None:
    last_ms = recorded.moments[-1].cut_ms
    now_ms = last_ms + behind_ms
    problem = (
        rf"The time {iso_time(now_ms + 1)} is in the future: it is {iso_time(now_ms)} now, and the last commit is of "
        rf"{iso_time(last_ms)}\. Answerable are the points from commit 0 \(.*\) to commit 7 \({iso_time(last_ms)}\)\."
    )
    with pytest.raises(PointOutsideHistoryError, match=problem):
        as_of(recorded.source, str(now_ms + 1), ALL, now_ms)
    with pytest.raises(PointOutsideHistoryError, match=problem):
        diff(recorded.source, "commit:2", str(now_ms + 1), ALL, now_ms)
    with pytest.raises(PointOutsideHistoryError, match=problem):
        lineage(recorded.source, LineageRequest(selection=ALL, since_ms=now_ms + 1), now_ms)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("2026-01-01T00:00:00Z", TimePoint(START_MS)),
        ("2026-01-01", TimePoint(START_MS)),
        ("2026-01-01T01:00:00.250+01:00", TimePoint(START_MS + 250)),
        ("1767225600000", TimePoint(START_MS)),
        ("commit:17", CommitPoint(17)),
        ("3:42", RequestPoint(3, 42)),
        ("latest", CommitPoint(None)),
    ],
)
def test_forms_of_points(text: str, point: PointRequest) -> None:
    assert parse_point(text) == point


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "commit:",
        "commit:-1",
        "1:2:3",
        "-5",
        "999999999999999",
        "12:30:1",
        "0001-01-01",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_other_texts_are_no_points(text: str) -> None:
    with pytest.raises(ConfigurationError, match="ISO-8601"):
        parse_point(text)


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        (Selection("nobody"), GroupIdNotFoundError),
        (Selection(GROUP_ID, "payments"), UnknownTopicError),
        (Selection(GROUP_ID, "orders", 9), UnknownTopicError),
    ],
)
def test_unknown_groups_and_share_partitions(
    recorded: RecordedTable, selection: Selection, error: type[ShareGroupError]
) -> None:
    with pytest.raises(error):
        as_of(recorded.source, "latest", selection)


def test_a_table_without_a_commit_has_no_point(tmp_path: Path) -> None:
    StateTableWriter.open(str(tmp_path / "state"), {})
    with pytest.raises(PointOutsideHistoryError, match="has no commit yet"):
        as_of(TableRows(str(tmp_path / "state")), "latest", ALL)


def test_a_folder_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateTableError, match="There is no state table at"):
        TableRows(str(tmp_path / "nothing"))


def test_another_delta_table_is_refused(tmp_path: Path) -> None:
    # As any other program makes one.
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "sales"), pa.table({"price": [1]}))
    with pytest.raises(UnsupportedFormatVersionError, match="is not a state table of this release"):
        TableRows(str(tmp_path / "sales"))
