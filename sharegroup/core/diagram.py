"""The transition table as a Mermaid state diagram, for the documentation: `python -m sharegroup.core.diagram`."""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.core.record_state import TRANSITIONS, Outcome, RecordState


def transition_diagram() -> str:
    """Every legal pair of state and cause as an arrow `causes [guard] / effect`; arrows that are alike are one."""
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
    """Where an outcome can lead, each with its guard, if any, and with what it does to the delivery count."""
    if outcome is None:
        return
    effect = f" / count {outcome.delivery_count_change:+d}" if outcome.delivery_count_change else ""
    yield outcome.to_state, effect
    if outcome.at_limit is not None:
        yield outcome.at_limit, f" [at the delivery limit]{effect}"
    if outcome.dead_letters:
        limit = "at the delivery limit, " if outcome.at_limit is not None else ""
        yield RecordState.ARCHIVING, f" [{limit}with a dead-letter queue]{effect}"


if __name__ == "__main__":
    print(transition_diagram())
