"""The tables of recorded scenarios in docs/conformance.md; the tests hold the engine to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.replay import Difference

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"
RULES_HEADING = "## Rules that recorded scenarios show"
SCENARIOS_HEADING = "## Recorded scenarios that differ"
HELD_WRITES_HEADING = "## Recorded scenarios with held writes"


@dataclass(frozen=True)
class ListedDifference:
    """A row of the table of scenarios.

    Attributes:
        scenario: its name.
        rules: the rules that it shows.
        statements: what holds here at each place where Kafka differs, as `Difference.statement` writes it.
    """

    scenario: str
    rules: frozenset[str]
    statements: tuple[str, ...]

    @classmethod
    def observed(cls, scenario: str, differences: Iterable[Difference]) -> ListedDifference:
        """The row that the table must have for these differences."""
        observations = list(differences)
        return cls(scenario, frozenset(d.rule for d in observations), tuple(d.statement for d in observations))

    def __str__(self) -> str:
        rules = ", ".join(f"`{rule}`" for rule in sorted(self.rules))
        return f"| `{self.scenario}` | {rules} | {'; '.join(self.statements)} |"


def rule_names() -> set[str]:
    """Every rule that the document explains."""
    return {cells[0] for cells in _rows(RULES_HEADING)}


def held_write_names() -> set[str]:
    """Every scenario that the document lists because it holds writes."""
    return {cells[0] for cells in _rows(HELD_WRITES_HEADING)}


def listed_differences() -> dict[str, ListedDifference]:
    """Scenario → what the document says about it."""
    return {
        scenario: ListedDifference(scenario, frozenset(rules.split(", ")), tuple(statements.split("; ")))
        for scenario, rules, statements in _rows(SCENARIOS_HEADING)
    }


def _rows(heading: str) -> Iterator[list[str]]:
    _, _, section = DOCUMENT.read_text(encoding="utf-8").partition(f"{heading}\n")
    table = [line for line in section.partition("\n#")[0].splitlines() if line.startswith("|")]
    for line in table[2:]:
        yield [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
