"""What was applied together: the value that the table, the logs, metrics, events and dead letters are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sharegroup.actor.effects import Effect, Persist
from sharegroup.protocol.marker import Cut
from sharegroup.protocol.rows import StateRow


@dataclass(frozen=True, slots=True)
class AppliedGroup:
    """What one group's actors made of their messages in one cut.

    Attributes:
        group_id: the group; "" for messages that belong to no group.
        request_partition: partition of the request log.
        message_count: messages applied.
        oldest_ms: append time of the first of them; epoch ms.
        cut_ms: time of the cut; epoch ms.
        effects: what is to be done, in order.
    """

    group_id: str
    request_partition: int
    message_count: int
    oldest_ms: int
    cut_ms: int
    effects: Sequence[Effect]


@dataclass(frozen=True, slots=True)
class Commit:
    """Cuts that were applied, committed and published together.

    Attributes:
        commit_id: id of the Delta commit; None when nothing durable happened, so that nothing was committed.
        leader_epoch: epoch of the processor.
        cuts: the cuts, in order.
        groups: what the groups made of them, in order of application.
        end_offsets: request partition → offset after its last applied message.
        commit_ms: duration of the Delta commit; 0 without one.
        processing_ms: duration from the first message taken to everything published.
    """

    commit_id: int | None
    leader_epoch: int
    cuts: Sequence[Cut]
    groups: Sequence[AppliedGroup]
    end_offsets: Mapping[int, int]
    commit_ms: float
    processing_ms: float

    def effects(self) -> Iterator[Effect]:
        """All effects, in order of application."""
        return (effect for group in self.groups for effect in group.effects)

    def rows(self) -> Iterator[StateRow]:
        """All rows that the groups persisted; the marker is not among them."""
        return (effect.row for effect in self.effects() if isinstance(effect, Persist))

    @property
    def message_count(self) -> int:
        """Messages applied."""
        return sum(group.message_count for group in self.groups)
