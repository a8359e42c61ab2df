"""The comparison of two sides by itself, without a broker: what it takes for equal, and what it does not overlook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharegroup.core.record_state import RecordState
from tests.kafka.side_by_side.outcome import Delivery, Outcome, PartitionState, disagreements, outcome
from tests.kafka.side_by_side.scenario import Scenario, read_scenarios

ACKNOWLEDGED, ARCHIVED, AVAILABLE = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED, RecordState.AVAILABLE
NAMES = {0: {0: "a", 1: "b", 4: "c"}}
EXPECT = {"deliveries": {"a": ["1 accept"]}, "final": {"a": "acknowledged 1"}, "start": {0: "end"}}
SAME = Outcome({"a": ["1 accept"]}, {"a": "acknowledged 1"}, {0: "end"})
LATE = "1 accept: INVALID_RECORD_STATE"


def scenario(**keys: Any) -> Scenario:
    content = {"name": "s", "about": "about", "members": {"m": {}}, "steps": [{"consume": "m"}], **keys}
    return Scenario.model_validate(content)


@pytest.mark.parametrize(
    ("start_offset", "records", "start"),
    [
        (0, {0: (ACKNOWLEDGED, 1)}, "b"),
        (1, {0: (ACKNOWLEDGED, 1)}, "b"),
        (1, {1: (AVAILABLE, 1)}, "b"),
        # Kafka's start offset lags, and gaps have no state.
        (0, {0: (ACKNOWLEDGED, 1), 1: (ARCHIVED, 1)}, "c"),
        (2, {0: (ACKNOWLEDGED, 1), 1: (ARCHIVED, 1)}, "c"),
        (0, {0: (ACKNOWLEDGED, 1), 1: (ARCHIVED, 1), 4: (ACKNOWLEDGED, 2)}, "end"),
        (5, {}, "end"),
    ],
)
def test_the_start_offset_is_the_first_record_that_is_not_finished(
    start_offset: int, records: dict[int, tuple[RecordState, int]], start: str
) -> None:
    assert outcome([], {0: PartitionState(start_offset, records)}, NAMES).start == {0: start}


def test_deliveries_are_in_the_order_of_their_counts_whichever_side_reported_them_first() -> None:
    deliveries = [Delivery("a", 2, "accept", "ok"), Delivery("b", 1), Delivery("deleted", 1, "accept", "ok")]
    deliveries.append(Delivery("a", 1, "release", "INVALID_RECORD_STATE"))
    result = outcome(deliveries, {0: PartitionState(0, {0: (ACKNOWLEDGED, 2)})}, NAMES)
    assert result.deliveries == {
        "a": ["1 release: INVALID_RECORD_STATE", "2 accept"],
        "b": ["1 nothing"],
        "c": [],
        "deleted": ["1 accept"],
    }
    assert result.final == {"a": "acknowledged 2", "b": "available 0", "c": "available 0"}


@pytest.mark.parametrize("keys", [{}, {"expect": EXPECT}])
@pytest.mark.parametrize(
    "other",
    [
        replace(SAME, deliveries={"a": ["1 release", "2 accept"]}),
        replace(SAME, deliveries={"a": [LATE]}),
        replace(SAME, final={"a": "archived 1"}),
        replace(SAME, final={"a": "acknowledged 2"}),
        replace(SAME, start={0: "a"}),
        Outcome({}, {}, {}),
    ],
)
def test_nothing_is_overlooked(keys: dict[str, Any], other: Outcome) -> None:
    assert disagreements(scenario(**keys), SAME, SAME) == []
    assert disagreements(scenario(**keys), SAME, other) != []
    assert disagreements(scenario(**keys), other, SAME) != []


def test_what_both_sides_do_must_be_what_is_expected() -> None:
    other = replace(SAME, final={"a": "archived 1"})
    assert disagreements(scenario(), other, other) == []
    assert disagreements(scenario(expect=EXPECT), other, other) == [
        "final a: Kafka archived 1, here archived 1; expected: Kafka acknowledged 1, here acknowledged 1"
    ]


@pytest.mark.parametrize("keys", [{}, {"expect": EXPECT}])
def test_a_stated_difference_must_be_there_on_both_sides(keys: dict[str, Any]) -> None:
    difference = {"name": "deliveries a", "kafka": ["1 accept"], "here": [LATE], "reason": "one rule"}
    differing = scenario(differs=[difference], **keys)
    here = replace(SAME, deliveries={"a": [LATE]})
    assert disagreements(differing, SAME, here) == []
    assert disagreements(differing, SAME, SAME) != []
    assert disagreements(differing, here, SAME) != []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("about: x\nmembers: {}\nsteps: [{consume: m, close: m}]", "a step has one key"),
        ("about: x\nmembers: {}\nsteps: [{consumes: m}]", "consumes"),
        ("about: x\nmembers: {m: {mode: maybe}}\nsteps: []", "'implicit' or 'explicit'"),
        ("about: x\nmembers: {m: {}}\nsteps: [{consume: [m, n]}]", "steps name ['n']"),
        ("about: [", "while parsing"),
        ("- a list", "is no scenario"),
    ],
)
def test_a_file_that_is_no_scenario_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"odd\.yaml is no scenario") as caught:
        list(read_scenarios(tmp_path))
    assert named in str(caught.value)
