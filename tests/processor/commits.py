"""Published commits of one group, for the tests of what follows commits."""

from __future__ import annotations

from sharegroup.actor.effects import Effect, Persist
from sharegroup.processor.commit import Commit, GroupOutput, Position

LEADER_EPOCH = 3


def published(
    *effects: Effect,
    group_id: str = "g",
    message_count: int = 2,
    end_offset: int = 41,
    commit_id: int | None = 17,
    commit_ms: float = 18.4,
) -> Commit:
    """Return a commit of one cut, with the output of one group's actors."""
    rows = [effect.row for effect in effects if isinstance(effect, Persist)]
    return Commit(
        Position(LEADER_EPOCH, {0: end_offset}),
        outputs=[GroupOutput(group_id, 0, message_count, 900, 1_000, effects, rows)],
        message_count=message_count,
        commit_id=commit_id,
        commit_ms=commit_ms,
        processing_ms=20.0,
    )
