"""The diagram of the record states: drawn from the table, complete, and the one in the documentation."""

from __future__ import annotations

import re
from itertools import compress, product
from pathlib import Path

import pytest

from sharegroup.core.record_state import TRANSITIONS, Cause, RecordState, next_state
from tools.state_diagram import transition_diagram

DOCUMENT = (Path(__file__).parents[3] / "docs" / "state_machine.md").read_text(encoding="utf-8")
LIMIT = 5
GUARDS = ("at the delivery limit", "with a dead-letter queue")
ELSEWHERE = "so in the other system"
"""Guard of the arrows that the record decides, not the table."""
LEGAL = [(state, cause) for state, row in TRANSITIONS.items() for cause, outcome in row.items() if outcome]
ARROW = re.compile(r" +(?P<start>\w+) --> (?P<end>\w+): (?P<causes>[a-z_, ]+?)(?: \[(?P<guard>.*)\])?(?: / .*)?")


def arrows(state: RecordState, cause: Cause) -> dict[frozenset[str], RecordState]:
    """Guard, as the set of its conditions → end of the arrow."""
    ends = {}
    for arrow in filter(None, map(ARROW.fullmatch, transition_diagram().splitlines())):
        if arrow["guard"] == ELSEWHERE:
            continue
        if arrow["start"] == state.name and cause.value in arrow["causes"].split(", "):
            guard = frozenset(arrow["guard"].split(", ")) if arrow["guard"] else frozenset()
            ends[guard] = RecordState[arrow["end"]]
    return ends


def test_the_documented_diagram_is_the_one_of_the_table() -> None:
    documented = re.findall(r"```mermaid\n(.*?)\n```", DOCUMENT, re.DOTALL)
    assert documented == [transition_diagram()], "run make docs"


def test_every_state_and_every_cause_is_explained() -> None:
    explained = {name for cell in re.findall(r"^\| ([^|]+) \|", DOCUMENT, re.MULTILINE) for name in cell.split(", ")}
    assert explained - {"State", "Cause"} == {state.name for state in RecordState} | {f"`{c.value}`" for c in Cause}


@pytest.mark.parametrize(("state", "cause"), LEGAL, ids=lambda value: value.name)
def test_the_arrow_whose_guard_holds_leads_where_the_record_goes(state: RecordState, cause: Cause) -> None:
    drawn = arrows(state, cause)
    seen = set()
    for at_limit, has_queue in product((False, True), repeat=2):
        conditions = set(compress(GUARDS, (at_limit, has_queue)))
        holding = [guard for guard in drawn if guard <= conditions]
        narrowest = max(holding, key=len)
        reached, _ = next_state(state, cause, LIMIT if at_limit else LIMIT - 1, LIMIT, has_queue)
        assert drawn[narrowest] is reached
        seen.add(narrowest)
    assert seen == set(drawn), "an arrow that no record can take"


def test_an_illegal_pair_has_no_arrow() -> None:
    illegal = set(product(RecordState, Cause)) - set(LEGAL)
    assert not any(arrows(state, cause) for state, cause in illegal)


def test_the_other_states_of_an_imported_record_are_drawn() -> None:
    drawn = {
        (arrow["start"], arrow["end"])
        for arrow in filter(None, map(ARROW.fullmatch, transition_diagram().splitlines()))
        if arrow["guard"] == ELSEWHERE
    }
    assert drawn == {("AVAILABLE", "ACKNOWLEDGED"), ("AVAILABLE", "ARCHIVING"), ("AVAILABLE", "ARCHIVED")}
