"""Kafka's own SharePartition, recorded, against the engine: equal, or different exactly as docs/conformance.md says."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance import rules
from tests.conformance.conftest import vectors
from tests.conformance.differences import ListedDifference, held_write_names, listed_differences, rule_names
from tests.conformance.replay import Difference, Replay
from tests.conformance.scenario import Scenario
from tests.conformance.vector_files import OWN_VECTORS, RANDOM_SCENARIOS, read_file, read_lines

LISTED = listed_differences()
RULES = rule_names()


def test_scenario(scenario: Scenario, pytestconfig: pytest.Config, outcomes: Counter[str]) -> None:
    differences = Replay(scenario).run()
    if scenario.has_held_writes:
        outcomes["compared only up to the first held write"] += 1
    else:
        outcomes["with documented differences" if differences else "equal"] += 1

    unexplained = [difference for difference in differences if difference.rule not in RULES]
    assert not unexplained, "\n".join(_text(difference) for difference in unexplained)
    observed = ListedDifference.observed(scenario.name, differences)
    listed = LISTED.get(scenario.name)
    if listed or vectors(pytestconfig) == OWN_VECTORS:
        assert listed == (observed if differences else None), f"docs/conformance.md needs: {observed}"


@pytest.mark.slow
def test_two_thirds_of_the_random_scenarios_agree_in_every_record_from_beginning_to_end() -> None:
    scenarios = [Scenario(line["name"], line) for line in read_file(RANDOM_SCENARIOS)]
    differences_of = {scenario.name: Replay(scenario).run() for scenario in scenarios}
    unexplained = {
        name: _text(d) for name, differences in differences_of.items() for d in differences if d.rule not in RULES
    }
    assert unexplained == {}
    # Windows of 8 to 200 records are often full; what they let through is no difference of a record.
    windows = {rules.WINDOW_COUNTS_UNFINISHED, rules.WINDOW_IS_EXACT}
    equal_count = sum({d.rule for d in differences} <= windows for differences in differences_of.values())
    assert 3 * equal_count >= 2 * len(scenarios), f"{equal_count} of {len(scenarios)} scenarios are equal"


def _text(difference: Difference) -> str:
    return f"step {difference.step}: {difference.field} is {difference.here}, in Kafka {difference.kafka}"


def own_scenarios() -> list[Scenario]:
    return [Scenario(line["name"], line) for line in read_lines(OWN_VECTORS, "scenario")]


def test_the_document_lists_no_scenario_that_is_not_there() -> None:
    assert set(LISTED) <= {scenario.name for scenario in own_scenarios()}


def test_the_document_lists_every_scenario_with_held_writes() -> None:
    assert held_write_names() == {scenario.name for scenario in own_scenarios() if scenario.has_held_writes}


def test_the_document_explains_every_rule_that_the_replay_knows() -> None:
    assert {value for name, value in vars(rules).items() if name.isupper() and isinstance(value, str)} == RULES
