"""Each invariant can fail, and says so under its own name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sharegroup.core.available_runs import AvailableRuns
from sharegroup.core.cause_rules import is_suspect_after
from sharegroup.core.due_times import DueTimes
from sharegroup.core.invariants import Circumstances, Violation
from sharegroup.core.record_invariants import RECORD_INVARIANTS, check_record
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionLimits, StartOffsetMoved, Transition
from sharegroup.core.run import Run
from sharegroup.core.state_invariants import STATE_INVARIANTS, check_state
from sharegroup.core.transition_check import record_holds
from tests.unit.core.notation import partition, run

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, _ = RecordState
NOW_MS = 500
CIRCUMSTANCES = Circumstances(SharePartitionLimits(delivery_count_limit=5, max_record_locks=20), NOW_MS)

IN_FLIGHT = (
    "10..14 ACQUIRED 2 m1 @900",
    "15..16 AVAILABLE 5",
    "17..18 ACKNOWLEDGED 1",
    "19..19 ACQUIRED 5 m2 @100",
)


def names(violations: list[Violation]) -> list[str]:
    return [violation.invariant for violation in violations]


def test_what_the_engine_makes_holds() -> None:
    assert check_state(partition(*IN_FLIGHT)) == []


@pytest.mark.parametrize(
    ("damage", "invariant", "words"),
    [
        (run("25..26 AVAILABLE 1"), "runs_are_contiguous_and_merged", "25..26 AVAILABLE with count 1 does not touch"),
        (run("8..9 AVAILABLE 1"), "runs_are_contiguous_and_merged", "the first run is 8..9 AVAILABLE"),
        (Run(20, 21, ACQUIRED, 1), "only_undecided_records_have_a_holder", "has the holder ''"),
        (Run(20, 21, AVAILABLE, 1, "m1"), "only_undecided_records_have_a_holder", "has the holder 'm1'"),
        (Run(20, 21, ARCHIVED, 1, "", 900), "only_undecided_records_have_a_holder", "has the deadline 900"),
        (run("20..21 ACQUIRED 0 m1 @900"), "held_records_were_delivered", "20..21 ACQUIRED with count 0"),
        (Run(20, 21, AVAILABLE, -1), "held_records_were_delivered", "20..21 AVAILABLE with count -1"),
        (run("20..21 ARCHIVED 1!"), "suspects_can_be_delivered", "20..21 ARCHIVED with count 1 is a suspect"),
        (run("20..21 AVAILABLE 0!"), "suspects_can_be_delivered", "20..21 AVAILABLE with count 0 is a suspect"),
        (run("20..21 ACQUIRED 1! m1 @900"), "suspects_can_be_delivered", "with count 1 is a suspect"),
        (run("10..11 ACKNOWLEDGED 2"), "start_offset_is_not_finished", "the start offset 10 stands on 10..11"),
    ],
)
def test_a_damaged_state_is_found(damage: Run, invariant: str, words: str) -> None:
    share_partition = partition(*IN_FLIGHT)
    share_partition.runs.assign(damage)
    violations = check_state(share_partition)
    assert names(violations) == [invariant]
    assert words in violations[0].detail


def test_equal_neighbours_that_are_not_merged_are_found() -> None:
    share_partition = partition(*IN_FLIGHT)
    share_partition.runs._insert(run("20..21 ACQUIRED 5 m2 @100"))
    assert names(check_state(share_partition)) == ["runs_are_contiguous_and_merged"]


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("_terminal_count", 3, "the delivery-complete count is 3, the runs say 2"),
        ("_locked_count", 1, "the locked count is 1, the runs say 6"),
    ],
)
def test_a_count_that_drifted_is_found(attribute: str, value: object, words: str) -> None:
    share_partition = partition(*IN_FLIGHT)
    setattr(share_partition.runs, attribute, value)
    violations = check_state(share_partition)
    assert names(violations) == ["counts_match_runs"]
    assert words in violations[0].detail


@pytest.mark.parametrize(
    ("indexed", "words"),
    [
        ([], "the index of available and delayed runs is [], the runs say [Run("),
        (["15..15 AVAILABLE 5"], "the available count of other records is 1, the runs say 2"),
        (["15..16 AVAILABLE 5!"], "the index of available suspects is [Run("),
        (["15..16 AVAILABLE 5", "20..20 AVAILABLE 3!"], "the available count of suspects is 1, the runs say 2"),
        (["15..16 AVAILABLE 5", "20..21 AVAILABLE 4!"], "the count of suspects delivered 3 times is 0, the runs say 2"),
    ],
)
def test_an_index_of_available_runs_that_drifted_is_found(indexed: list[str], words: str) -> None:
    share_partition = partition(*IN_FLIGHT, "20..21 AVAILABLE 3!")
    by_first = {run.first_offset: run for run in share_partition.runs}
    share_partition.runs._available = AvailableRuns(by_first, map(run, indexed))
    violations = check_state(share_partition)
    assert set(names(violations)) == {"counts_match_runs"}
    assert any(words in violation.detail for violation in violations)


@pytest.mark.parametrize(("index", "value"), [("_held", {}), ("_locks", DueTimes()), ("_suspects_held", Counter())])
def test_an_index_that_lacks_an_entry_is_found(index: str, value: object) -> None:
    share_partition = partition(*IN_FLIGHT, "20..21 AVAILABLE 3!", "22..22 ACQUIRED 4! m3 @900")
    setattr(share_partition.runs, index, value)
    assert set(names(check_state(share_partition))) == {"counts_match_runs"}


def _transition(
    first: int,
    last: int,
    change: tuple[RecordState | None, RecordState],
    count: int,
    cause: Cause,
    member_id: str = "m1",
) -> Transition:
    deadline_ms = NOW_MS + CIRCUMSTANCES.limits.lock_duration_ms if change[1] is ACQUIRED else 0
    is_suspect = is_suspect_after(change[1], cause, was_suspect=False)
    return Transition(first, last, change[0], change[1], count, member_id, deadline_ms, cause, is_suspect)


@pytest.mark.parametrize(
    ("record", "invariants"),
    [
        (_transition(17, 18, (ACKNOWLEDGED, AVAILABLE), 1, Cause.RELEASE, ""), ["transition_is_in_the_table"]),
        (_transition(10, 14, (ACQUIRED, ARCHIVED), 2, Cause.RELEASE), ["transition_is_in_the_table"]),
        (_transition(19, 19, (ACQUIRED, AVAILABLE), 5, Cause.RELEASE, "m2"), ["transition_is_in_the_table"]),
        (_transition(10, 14, (ACQUIRED, ARCHIVING), 2, Cause.REJECT), ["transition_is_in_the_table"]),
        (
            _transition(10, 14, (AVAILABLE, ACQUIRED), 3, Cause.ACQUIRE),
            ["transition_starts_from_the_state_before"],
        ),
        (
            _transition(10, 14, (ACQUIRED, ACKNOWLEDGED), 3, Cause.ACCEPT),
            ["transition_starts_from_the_state_before"],
        ),
        (
            _transition(18, 21, (None, ACQUIRED), 1, Cause.ACQUIRE),
            ["transition_starts_from_the_state_before", "delivery_count_never_falls"],
        ),
        (
            _transition(20, 21, (None, ACQUIRED), 0, Cause.ACQUIRE),
            ["transition_starts_from_the_state_before"],
        ),
        (
            _transition(20, 21, (None, ACQUIRED), 3, Cause.ACQUIRE),
            ["transition_starts_from_the_state_before"],
        ),
        (
            _transition(20, 21, (AVAILABLE, ACQUIRED), 1, Cause.ACQUIRE),
            ["transition_starts_from_the_state_before"],
        ),
        (
            _transition(8, 9, (AVAILABLE, ACQUIRED), 1, Cause.ACQUIRE),
            ["transition_starts_from_the_state_before"],
        ),
        (
            _transition(10, 14, (ACQUIRED, ACKNOWLEDGED), 1, Cause.ACCEPT),
            ["transition_starts_from_the_state_before", "delivery_count_never_falls"],
        ),
        (
            _transition(10, 14, (ACQUIRED, AVAILABLE), 0, Cause.UNREAD),
            ["transition_starts_from_the_state_before", "delivery_count_never_falls"],
        ),
        (_transition(15, 16, (AVAILABLE, ACQUIRED), 6, Cause.ACQUIRE), ["delivery_count_stays_within_limit"]),
        (
            _transition(10, 14, (ACQUIRED, AVAILABLE), 2, Cause.LOCK_TIMEOUT),
            ["lock_ends_no_sooner_than_its_deadline"],
        ),
        (Transition(20, 21, None, ACQUIRED, 1, "m1", 900, Cause.ACQUIRE), ["lock_runs_for_its_duration"]),
        (Transition(10, 14, ACQUIRED, ACQUIRED, 2, "m1", 900, Cause.RENEW), ["lock_runs_for_its_duration"]),
        (_transition(10, 14, (ACQUIRED, ACKNOWLEDGED), 2, Cause.ACCEPT, "m2"), ["acknowledged_only_by_its_holder"]),
        (_transition(10, 14, (ACQUIRED, AVAILABLE), 2, Cause.SESSION_CLOSE, "m2"), ["acknowledged_only_by_its_holder"]),
        (_transition(10, 14, (ACQUIRED, AVAILABLE), 1, Cause.UNREAD, "m2"), ["acknowledged_only_by_its_holder"]),
        (_transition(20, 32, (None, ACQUIRED), 1, Cause.ACQUIRE), ["window_is_within_limit"]),
        (_transition(25, 32, (None, ACQUIRED), 1, Cause.ACQUIRE), ["window_is_within_limit"]),
        (_transition(10, 14, (ACQUIRED, ARCHIVED), 2, Cause.IMPORTED), ["transition_is_in_the_table"]),
        (_transition(15, 16, (AVAILABLE, ACKNOWLEDGED), 4, Cause.IMPORTED), ["delivery_count_never_falls"]),
        (_transition(15, 16, (AVAILABLE, ACQUIRED), 6, Cause.IMPORTED), ["transition_is_in_the_table"]),
        (
            _transition(19, 19, (ACQUIRED, AVAILABLE), 5, Cause.UNREAD, "m2")._replace(
                delivery_count=4, is_suspect=True
            ),
            ["suspicion_follows_the_cause"],
        ),
        (
            _transition(20, 21, (None, ACQUIRED), 1, Cause.ACQUIRE)._replace(is_suspect=True),
            ["suspicion_follows_the_cause", "suspects_are_delivered_apart", "suspects_are_delivered_apart"],
        ),
        (StartOffsetMoved(15), ["start_offset_passes_only_finished_records"]),
        (StartOffsetMoved(21), ["start_offset_passes_only_finished_records"] * 4),
        (StartOffsetMoved(10), ["start_offset_never_falls"]),
        (StartOffsetMoved(9, Cause.LOG_START), ["start_offset_never_falls"]),
    ],
)
def test_a_record_that_must_not_be_is_found(record: Transition | StartOffsetMoved, invariants: list[str]) -> None:
    assert names(check_record(partition(*IN_FLIGHT), record, CIRCUMSTANCES)) == invariants


@pytest.mark.parametrize(
    "record",
    [
        _transition(10, 14, (ACQUIRED, ACKNOWLEDGED), 2, Cause.ACCEPT),
        _transition(11, 12, (ACQUIRED, AVAILABLE), 1, Cause.UNREAD),
        _transition(19, 19, (ACQUIRED, ARCHIVED), 5, Cause.LOCK_TIMEOUT, "m2"),
        _transition(20, 31, (None, ACQUIRED), 1, Cause.ACQUIRE),
        _transition(25, 31, (None, ACQUIRED), 1, Cause.ACQUIRE),
        _transition(10, 14, (ACQUIRED, ACQUIRED), 2, Cause.RENEW),
        _transition(15, 16, (AVAILABLE, ARCHIVED), 9, Cause.IMPORTED),
        _transition(40, 49, (None, ACKNOWLEDGED), 3, Cause.IMPORTED),
        StartOffsetMoved(40, Cause.LOG_START),
        StartOffsetMoved(3, Cause.OFFSET_RESET),
    ],
    ids=[
        "accept",
        "unread lowers the count",
        "timeout",
        "a full window",
        "skipped offsets",
        "renewal",
        "import of later deliveries",
        "import past the window",
        "log start",
        "reset",
    ],
)
def test_a_legal_record_and_each_exception_pass(record: Transition | StartOffsetMoved) -> None:
    assert check_record(partition(*IN_FLIGHT), record, CIRCUMSTANCES) == []


def test_a_delivery_under_a_higher_limit_that_was_in_force_passes() -> None:
    lowered = Circumstances(CIRCUMSTANCES.limits, NOW_MS, highest_delivery_count_limit=6)
    record = _transition(15, 16, (AVAILABLE, ACQUIRED), 6, Cause.ACQUIRE)
    assert check_record(partition(*IN_FLIGHT), record, lowered) == []


def test_a_group_that_drains_acquires_no_new_record() -> None:
    draining = Circumstances(SharePartitionLimits(max_record_locks=20, is_draining=True), NOW_MS)
    new = _transition(25, 29, (None, ACQUIRED), 1, Cause.ACQUIRE)
    assert "window_is_within_limit" in names(check_record(partition(*IN_FLIGHT), new, draining))


SUSPECTS = ("10..19 AVAILABLE 3!", "20..21 ACQUIRED 2 m1 @900", "22..23 ACQUIRED 4! m2 @900", "24..33 AVAILABLE 1!")


@pytest.mark.parametrize(
    ("first", "last", "member_id", "details"),
    [
        (10, 14, "m3", []),
        (10, 15, "m3", ["makes 6 of 10 suspects taken together, at most 5 may be"]),
        (10, 10, "m1", ["which holds other records"]),
        (10, 10, "m2", ["which holds other records"]),
        (34, 34, "m1", []),
        (34, 34, "m2", ["is taken by 'm2', which holds suspects"]),
    ],
)
def test_suspects_are_taken_in_portions_and_nothing_beside_them(
    first: int, last: int, member_id: str, details: list[str]
) -> None:
    change = (AVAILABLE if first < 34 else None), ACQUIRED
    record = _transition(first, last, change, 4 if first < 34 else 1, Cause.ACQUIRE, member_id)
    record = record._replace(is_suspect=first < 34)
    before = partition(*SUSPECTS)
    limits = SharePartitionLimits(delivery_count_limit=6, max_record_locks=40)
    violations = check_record(before, record, Circumstances(limits, NOW_MS))
    assert all(violation.invariant == "suspects_are_delivered_apart" for violation in violations)
    assert len(violations) == len(details)
    assert all(detail in violation.detail for detail, violation in zip(details, violations, strict=True))
    # A portion of suspects is never decided by the short check.
    assert record_holds(before, record, limits, NOW_MS, 6) is (not violations and not record.is_suspect)


@pytest.mark.parametrize(
    ("limits", "invariants"),
    [
        (SharePartitionLimits(max_record_locks=16, max_span_offsets=16), ["span_is_within_limit"]),
        (SharePartitionLimits(max_record_locks=16, max_span_offsets=17), []),
        (SharePartitionLimits(max_record_locks=17, max_span_offsets=16), []),
        (SharePartitionLimits(max_runs=4), ["span_is_within_limit"]),
        (SharePartitionLimits(max_runs=5), []),
    ],
)
def test_fresh_records_past_the_span_are_found(limits: SharePartitionLimits, invariants: list[str]) -> None:
    in_force = Circumstances(limits, NOW_MS)
    new = _transition(20, 26, (None, ACQUIRED), 1, Cause.ACQUIRE)
    assert names(check_record(partition(*IN_FLIGHT), new, in_force)) == invariants
    assert record_holds(partition(*IN_FLIGHT), new, in_force.limits, NOW_MS, 5) is (not invariants)


@pytest.mark.parametrize(("until_ms", "invariants"), [(NOW_MS, ["window_is_within_limit"]), (NOW_MS + 1, [])])
def test_records_count_towards_the_window_from_the_end_of_their_delay_on(until_ms: int, invariants: list[str]) -> None:
    before = partition(*IN_FLIGHT[:3], f"19..19 AVAILABLE 1 @{until_ms}")
    before.make_available(NOW_MS + 1)
    new = _transition(20, 32, (None, ACQUIRED), 1, Cause.ACQUIRE)
    assert names(check_record(before, new, CIRCUMSTANCES)) == invariants


def test_every_invariant_says_what_it_means_and_whether_it_has_exceptions() -> None:
    for name, invariant in {**STATE_INVARIANTS, **RECORD_INVARIANTS}.items():
        assert invariant.__name__ == name
        assert invariant.__doc__
        assert "xception" in invariant.__doc__, name


TRANSITION = st.builds(
    Transition,
    first_offset=st.integers(9, 22),
    last_offset=st.integers(9, 32),
    from_state=st.sampled_from([None, *RecordState]),
    to_state=st.sampled_from(RecordState),
    delivery_count=st.integers(0, 6),
    member_id=st.sampled_from(["", "m1", "m2"]),
    deadline_ms=st.sampled_from([0, NOW_MS + CIRCUMSTANCES.limits.lock_duration_ms]),
    cause=st.sampled_from(Cause),
    is_suspect=st.booleans(),
)
LEGAL = [
    _transition(10, 14, (ACQUIRED, ACKNOWLEDGED), 2, Cause.ACCEPT),
    _transition(11, 12, (ACQUIRED, AVAILABLE), 1, Cause.UNREAD),
    _transition(19, 19, (ACQUIRED, ARCHIVED), 5, Cause.LOCK_TIMEOUT, "m2"),
    _transition(25, 31, (None, ACQUIRED), 1, Cause.ACQUIRE),
    _transition(10, 14, (ACQUIRED, ACQUIRED), 2, Cause.RENEW),
]


@given(
    record=st.one_of(
        TRANSITION,
        st.builds(
            lambda record, fields: record._replace(**fields),
            st.sampled_from(LEGAL),
            st.dictionaries(st.sampled_from(["first_offset", "last_offset", "delivery_count"]), st.integers(0, 25)),
        ),
    ),
    limit=st.integers(2, 6),
)
def test_the_short_check_agrees_with_the_invariants(record: Transition, limit: int) -> None:
    assume(record.first_offset <= record.last_offset)
    limits = replace(CIRCUMSTANCES.limits, delivery_count_limit=limit)
    before = partition(*IN_FLIGHT)
    violations = check_record(before, record, Circumstances(limits, NOW_MS, 5))
    is_of_another = record.cause in (Cause.IMPORTED, Cause.REDRIVE)
    assert record_holds(before, record, limits, NOW_MS, 5) is (not violations and not is_of_another)
