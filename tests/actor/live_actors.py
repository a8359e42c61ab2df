"""Both actors of one group, alive: each message goes to its recipients, and errors of the protocol are answered."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.actor.answers import response_to
from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest, is_outdated
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.effects import Effect, Respond, Undecodable
from sharegroup.actor.leader import Leader
from sharegroup.errors import ApiError
from sharegroup.protocol.api_key import RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.messages import ErrorResponse


class LiveActors:
    """The coordinator and the leader of a group.

    Args:
        context: their identity.
        coordinator: the one.
        leader: the other.
        last_time_ms: time never goes back behind it.
    """

    def __init__(self, context: ActorContext, coordinator: Coordinator, leader: Leader, last_time_ms: int = 0) -> None:
        self._context = context
        self.coordinator = coordinator
        self.leader = leader
        self.last_time_ms = last_time_ms

    def apply(self, messages: Iterable[LoggedRequest], cut_ms: int) -> list[Effect]:
        """Apply the messages of one cut."""
        last_offsets: dict[ActorRole, int] = {}
        effects: list[Effect] = []
        for message in messages:
            self.last_time_ms = max(self.last_time_ms, message.time_ms)
            if is_outdated(self._context, message.envelope):
                continue
            rising = LoggedRequest(message.envelope, message.offset, self.last_time_ms)
            recipients = RECIPIENTS[ApiKey(message.envelope.api_key)]
            for role in recipients:
                last_offsets[role] = message.offset
                try:
                    self._actor(role).receive(rising)
                except ApiError as error:
                    if role is recipients[0]:
                        effects.append(_refusal(message, error))
        for role in ActorRole:
            if role in last_offsets:
                effects += self._actor(role).finish(last_offsets[role], CutTime(cut_ms, self.last_time_ms))
        return effects

    def _actor(self, role: ActorRole) -> Coordinator | Leader:
        return self.leader if role is ActorRole.LEADER else self.coordinator


def _refusal(message: LoggedRequest, error: ApiError) -> Effect:
    envelope = message.envelope
    if envelope.reply_partition < 0:
        return Undecodable(message.offset, str(error))
    body = ErrorResponse(error_code=error.code, error_message=str(error))
    return Respond(envelope.reply_partition, response_to(envelope, body))
