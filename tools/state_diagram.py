"""The transition table as the Mermaid state diagram in docs/state_machine.md; `make docs` writes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sharegroup.core.record_state import TRANSITIONS, Outcome, RecordState


def transition_diagram() -> str:
    """Return every legal pair of state and cause as an arrow `causes [guard] / effect`; equal arrows are merged."""
    causes: dict[tuple[RecordState, RecordState, str], list[str]] = {}
    for state, row in TRANSITIONS.items():
        for cause, outcome in row.items():
            for to_state, guard_and_effect in _ends(outcome):
                causes.setdefault((state, to_state, guard_and_effect), []).append(cause.value)
    # A record that was never in flight is acquired as one that is AVAILABLE with delivery count 0.
    arrows = [f"[*] --> {RecordState.AVAILABLE.name}"]
    for (state, to_state, guard_and_effect), names in causes.items():
        arrows.append(f"{state.name} --> {to_state.name}: {', '.join(names)}{guard_and_effect}")
    arrows += [f"{state.name} --> [*]" for state in RecordState if state.is_terminal]
    return "\n".join(["stateDiagram-v2", *(f"    {arrow}" for arrow in arrows)])


def _ends(outcome: Outcome | None) -> Iterator[tuple[RecordState, str]]:
    """Yield the end states of an outcome, each with its guard, if any, and its effect on the delivery count."""
    if outcome is None:
        return
    effect = f" / count {outcome.delivery_count_change:+d}" if outcome.delivery_count_change else ""
    if outcome.resets_delivery_count:
        effect = " / count 0"
    yield outcome.to_state, effect
    yield from ((state, f" [so in the other system]{effect}") for state in outcome.other_states)
    if outcome.at_limit is not None:
        yield outcome.at_limit, f" [at the delivery limit]{effect}"
    if outcome.dead_letters:
        limit = "at the delivery limit, " if outcome.at_limit is not None else ""
        yield RecordState.ARCHIVING, f" [{limit}with a dead-letter queue]{effect}"


def write_diagram(document: Path) -> None:
    """Replace the diagram in a document."""
    text = document.read_text(encoding="utf-8")
    block = f"```mermaid\n{transition_diagram()}\n```"
    document.write_text(re.sub(r"```mermaid\n.*?\n```", lambda _: block, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    write_diagram(Path(sys.argv[1]))
