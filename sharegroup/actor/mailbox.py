"""The two actors of one group, and which of them receives a message.

A group lives here between cuts. `receive` applies one message, `finish` ends the group's part of a cut and returns
what is to be done. An `ApiError` is an answer. Any other exception means that the actors can no longer be trusted:
`ActorFailedError` names the actor and the message, and whoever runs the group rebuilds it from the state table, applies
again what came before the message, and calls `quarantine`. A quarantined group changes no more and refuses its
messages until an administrator resumes it.
"""

from __future__ import annotations

from typing import Protocol

from sharegroup.actor.answers import response_to
from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest, is_outdated
from sharegroup.actor.effects import Effect, Persist, Respond, Undecodable
from sharegroup.errors import (
    ApiError,
    GroupQuarantinedError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from sharegroup.protocol.api_key import LATEST_VERSION, RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.messages import ENVELOPE_VERSION, ErrorResponse, RequestEnvelope
from sharegroup.protocol.rows import RecordType, StateRow


class Actor(Protocol):
    """One of the two deterministic actors of a group."""

    @property
    def is_empty(self) -> bool:
        """Return True when nothing would be lost with the actor."""
        ...

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message."""
        ...

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """End the cut."""
        ...


class ActorFailedError(Exception):
    """An actor raised an unexpected exception, which is the cause of this one.

    Attributes:
        role: the actor.
        message: the message that it failed on; None when it failed at the end of the cut.
    """

    def __init__(self, role: ActorRole, message: LoggedRequest | None) -> None:
        super().__init__(role, message)
        self.role = role
        self.message = message


class GroupActors:
    """The coordinator and the leader of one group.

    Args:
        context: identity of the group.
        coordinator: its coordinator.
        leader: its leader.
        failure: why the group is quarantined; "" when it is not.
    """

    def __init__(
        self,
        context: ActorContext,
        coordinator: Actor,
        leader: Actor,
        failure: str = "",
    ) -> None:
        self._context = context
        self._actors = {ActorRole.COORDINATOR: coordinator, ActorRole.LEADER: leader}
        self._failure = failure
        self._touched: dict[ActorRole, LoggedRequest] = {}
        self._effects: list[Effect] = []

    @property
    def failure(self) -> str:
        """Why the group is quarantined; "" when it is not."""
        return self._failure

    @property
    def is_empty(self) -> bool:
        """Return True when the group can be forgotten: nothing durable and nobody who waits."""
        return not self._failure and all(actor.is_empty for actor in self._actors.values())

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message, or refuse it.

        Raises:
            ActorFailedError: an actor failed; the group must be rebuilt.
        """
        envelope = message.envelope
        error = _refusal(envelope)
        if error is not None:
            self._effects += _refused(message, error)
            return
        if self._failure:
            if envelope.api_key != ApiKey.RESUME_SHARE_GROUP:
                if envelope.reply_partition >= 0:
                    self._effects += _refused(message, self._quarantine_error())
                return
            self._failure = ""
            for role in ActorRole:
                self._effects.append(self._status(role, GroupStatus.ACTIVE, "resumed", message))
        if is_outdated(self._context, envelope):
            return
        for role in RECIPIENTS[ApiKey(envelope.api_key)]:
            self._touched[role] = message
            try:
                self._actors[role].receive(message)
            except ApiError as refusal:
                if role is RECIPIENTS[ApiKey(envelope.api_key)][0]:
                    self._effects += _refused(message, refusal)
            except Exception as failure:
                raise ActorFailedError(role, message) from failure

    def finish(self, cut_ms: int) -> list[Effect]:
        """End the group's part of a cut; returns what is to be done, in order.

        Args:
            cut_ms: time of the cut; epoch ms.

        Raises:
            ActorFailedError: an actor failed; the group must be rebuilt.
        """
        effects: list[Effect] = []
        touched, self._touched = self._touched, {}
        for role in ActorRole:
            last = touched.get(role)
            if last is None:
                continue
            try:
                effects += self._actors[role].finish(last.offset, CutTime(cut_ms, last.time_ms))
            except Exception as failure:
                raise ActorFailedError(role, None) from failure
        # Last: a quarantine follows the messages that were applied before it.
        effects += self._effects
        self._effects = []
        return effects

    def quarantine(self, role: ActorRole, message: LoggedRequest, reason: str) -> None:
        """Refuse this message and all that follow, until one resumes the group."""
        place = f"message {message.offset} (api_key {message.envelope.api_key})"
        self._failure = f"{role.value} failed on {place}: {reason}"
        self._effects.append(self._status(role, GroupStatus.FAILED, self._failure, message))
        self._effects += _refused(message, self._quarantine_error())

    def _quarantine_error(self) -> GroupQuarantinedError:
        return GroupQuarantinedError(
            f"Group {self._context.group_id} is quarantined: {self._failure}.", "An administrator must resume it."
        )

    def _status(self, role: ActorRole, status: GroupStatus, reason: str, message: LoggedRequest) -> Persist:
        payload = GroupStatusPayload(role=role, status=status, reason=reason)
        row = StateRow(record_type=RecordType.GROUP_STATUS, payload=payload.model_dump(mode="json"))
        return Persist(self._context.addressed(row, message.offset, CutTime(message.time_ms, message.time_ms)))


def _refusal(envelope: RequestEnvelope) -> ApiError | None:
    """Return the error of a message that no actor can receive; None when one can."""
    if envelope.api_key not in RECIPIENTS:
        return UnsupportedVersionError(f"api_key {envelope.api_key} is not known.")
    api_key = ApiKey(envelope.api_key)
    if envelope.api_version != LATEST_VERSION[api_key] or envelope.v != ENVELOPE_VERSION:
        return UnsupportedVersionError(
            f"Envelope version {envelope.v} with api_version {envelope.api_version} of api_key {envelope.api_key} "
            f"is not known; this release speaks {ENVELOPE_VERSION} with {LATEST_VERSION[api_key]}."
        )
    if not RECIPIENTS[api_key]:
        return InvalidRequestError(f"{api_key.name} is not a message for a group.")
    return None


def _refused(message: LoggedRequest, error: ApiError) -> list[Effect]:
    envelope = message.envelope
    if envelope.reply_partition < 0:
        return [Undecodable(message.offset, str(error))]
    body = ErrorResponse(error_code=error.code, error_message=str(error))
    return [Respond(envelope.reply_partition, response_to(envelope, body))]
