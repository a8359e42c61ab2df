"""The production groups with actors that fail on chosen messages, before or after they have changed something."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from sharegroup.actor.context import CutTime, LoggedRequest
from sharegroup.actor.effects import Effect
from sharegroup.actor.mailbox import Actor, GroupActors
from sharegroup.logs.partitioner import partition_for
from sharegroup.processor.commit import GroupOutput
from sharegroup.processor.groups import Groups, Rebuild
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.messages import ErrorResponse, RequestEnvelope
from sharegroup.state.fold import FoldedGroup


class Failure(StrEnum):
    """When an actor fails."""

    BEFORE = "before"
    AFTER = "after"
    AT_END = "at the end of the cut"


BadMessages = dict[tuple[int, int], tuple[ActorRole, Failure]]
"""Request partition and offset → which actor fails on the message, and when."""


class FailingActor:
    """An actor that fails on bad messages.

    Args:
        actor: the real one.
        role: which one it is.
        partition: request partition of its group.
        bad_messages: of all groups.
    """

    def __init__(self, actor: Actor, role: ActorRole, partition: int, bad_messages: BadMessages) -> None:
        self._actor = actor
        self._role = role
        self._partition = partition
        self._bad_messages = bad_messages

    @property
    def is_empty(self) -> bool:
        return self._actor.is_empty

    def receive(self, message: LoggedRequest) -> None:
        failure = self._failure(message.offset)
        if failure is Failure.BEFORE:
            raise ValueError("The actor fails before the message.")
        self._actor.receive(message)
        if failure is Failure.AFTER:
            raise ValueError("The actor fails after the message.")

    def describe(self, envelope: RequestEnvelope) -> ErrorResponse:
        return self._actor.describe(envelope)

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        effects = self._actor.finish(last_offset, time)
        if self._failure(last_offset) is Failure.AT_END:
            raise ValueError("The actor fails at the end of the cut.")
        return effects

    def _failure(self, offset: int) -> Failure | None:
        if not self._bad_messages:
            return None
        role, failure = self._bad_messages.get((self._partition, offset), (None, None))
        return failure if role is self._role else None


class SimulatedGroups(Groups):
    """The live groups of a processor.

    Args:
        bad_messages: those that actors fail on.
        rebuilding: called with request partition, time and end offset of the cut that a rebuilt group is put back in.
        arguments: those of `Groups`.
    """

    def __init__(self, bad_messages: BadMessages, rebuilding: Callable[[int, int, int], None], *arguments: Any) -> None:
        self._bad_messages = bad_messages
        self._rebuilding = rebuilding
        super().__init__(*arguments)

    def finish_rebuild(self, rebuild: Rebuild, cut_ms: int) -> list[GroupOutput]:
        self._rebuilding(rebuild.partition, cut_ms, rebuild.messages[-1].offset + 1)
        return super().finish_rebuild(rebuild, cut_ms)

    def _actors_of(self, group: FoldedGroup) -> GroupActors:
        actors = super()._actors_of(group)
        partition = partition_for(group.group_id, self._beginning.request_partition_count)
        actors._actors = {
            role: FailingActor(actor, role, partition, self._bad_messages) for role, actor in actors._actors.items()
        }
        return actors
