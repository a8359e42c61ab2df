"""The two actors of one group, and the dispatch of messages to them.

A group lives here between cuts. `receive` applies one message, `finish` ends the group's part of a cut and returns
the effects. An `ApiError` is a response. Any other exception means that the actors can no longer be trusted:
`ActorFailedError` names the actor and the message. The caller then rebuilds the group from the state table, applies the
messages before that one again, and calls `quarantine`. A quarantined group does not change and refuses its messages
until an administrator resumes it.
"""

from __future__ import annotations

from typing import Protocol

from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest, is_outdated
from sharegroup.actor.effects import Effect, Persist, Undecodable, address_of, response_to
from sharegroup.errors import (
    ApiError,
    GroupQuarantinedError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from sharegroup.protocol.api_key import DESCRIBING_KEYS, INTERNAL_KEYS, LATEST_VERSION, RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.group_description import GroupStateName, ShareGroupDescribeResponse
from sharegroup.protocol.messages import ENVELOPE_VERSION, ErrorResponse, RequestEnvelope
from sharegroup.protocol.row_payloads import GroupStatus, GroupStatusPayload
from sharegroup.protocol.rows import RecordType, StateRow


class Actor(Protocol):
    """One of the two deterministic actors of a group."""

    @property
    def is_empty(self) -> bool:
        """Return True when no state would be lost with the actor."""
        ...

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message."""
        ...

    def describe(self, envelope: RequestEnvelope) -> ErrorResponse:
        """Return the response to a request that only reads."""
        ...

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """End the cut."""
        ...


class NamedActor(Actor, Protocol):
    """The actor that knows the group's state."""

    @property
    def state_name(self) -> str:
        """Return the name of the group's state."""
        ...


class ActorFailedError(Exception):
    """An actor raised an unexpected exception, which is the cause of this one.

    Attributes:
        message: the message that it failed on; None when it failed at the end of the cut.
    """

    def __init__(self, role: ActorRole, message: LoggedRequest | None) -> None:
        super().__init__(role, message)
        self.role = role
        self.message = message


class GroupActors:
    """The coordinator and the leader of one group.

    Args:
        failure: why the group is quarantined; "" when it is not.
    """

    def __init__(
        self,
        context: ActorContext,
        coordinator: NamedActor,
        leader: Actor,
        failure: str = "",
        failed_role: ActorRole = ActorRole.COORDINATOR,
    ) -> None:
        self._context = context
        self._coordinator = coordinator
        self._actors: dict[ActorRole, Actor] = {ActorRole.COORDINATOR: coordinator, ActorRole.LEADER: leader}
        self._failure = failure
        self._failed_role = failed_role
        self._touched: dict[ActorRole, LoggedRequest] = {}
        self._effects: list[Effect] = []

    @property
    def failure(self) -> str:
        """Reason for the quarantine of the group; "" when it is not quarantined."""
        return self._failure

    @property
    def state_name(self) -> str:
        """Name of the group's state."""
        return GroupStateName.QUARANTINED if self._failure else self._coordinator.state_name

    @property
    def is_empty(self) -> bool:
        """Return True when the group can be dropped: it has no durable state and no waiting request."""
        coordinator, leader = self._actors.values()
        return not self._failure and coordinator.is_empty and leader.is_empty

    def receive(self, message: LoggedRequest) -> None:
        """Apply one message, or refuse it.

        Raises:
            ActorFailedError: an actor failed; the group must be rebuilt.
        """
        envelope = message.envelope
        error = version_refusal(envelope) or _recipient_refusal(envelope)
        if error is not None:
            self._effects += _refused(message, error, self._context.leader_epoch)
            return
        if envelope.api_key in DESCRIBING_KEYS:
            self._describe(message)
            return
        if self._failure:
            if envelope.api_key != ApiKey.RESUME_SHARE_GROUP:
                if envelope.reply_partition >= 0:
                    self._effects += _refused(message, self._quarantine_error(), self._context.leader_epoch)
                return
            self._failure = ""
            for role in ActorRole:
                self._effects.append(self._status(role, GroupStatus.ACTIVE, "resumed", message))
        if is_outdated(self._context, envelope):
            return
        recipients = RECIPIENTS[envelope.api_key]
        for role in recipients:
            self._touched[role] = message
            try:
                self._actors[role].receive(message)
            except ApiError as refusal:
                # The leader checks some requests first; the coordinator, which responds to them, may still refuse.
                if role is recipients[0] or role is ActorRole.COORDINATOR:
                    self._effects += _refused(message, refusal, self._context.leader_epoch)
                    if envelope.api_key not in INTERNAL_KEYS:
                        return
            except Exception as failure:
                raise ActorFailedError(role, message) from failure

    def finish(self, cut_ms: int) -> list[Effect]:
        """End the group's part of a cut, and return its effects in order.

        Raises:
            ActorFailedError: an actor failed; the group must be rebuilt.
        """
        effects: list[Effect] = []
        touched, self._touched = self._touched, {}
        for role, actor in self._actors.items():
            last = touched.get(role)
            if last is None:
                continue
            try:
                effects += actor.finish(last.offset, CutTime(cut_ms, last.time_ms))
            except Exception as failure:
                raise ActorFailedError(role, None) from failure
        # Last: a quarantine follows the messages that were applied before it.
        effects += self._effects
        self._effects = []
        return effects

    def quarantine(self, role: ActorRole, message: LoggedRequest, reason: str) -> None:
        """Refuse this message and all that follow, until one resumes the group."""
        self._failed_role = role
        failed_on = f"message {message.offset} (api_key {message.envelope.api_key})"
        self._failure = f"{role.value} failed on {failed_on}: {reason}"
        self._effects.append(self._status(role, GroupStatus.FAILED, self._failure, message))
        self._effects += _refused(message, self._quarantine_error(), self._context.leader_epoch)

    def _describe(self, message: LoggedRequest) -> None:
        """Respond to a request that only reads, from the actors' current state; apply nothing."""
        envelope = message.envelope
        role = RECIPIENTS[ApiKey(envelope.api_key)][0]
        try:
            body = self._actors[role].describe(envelope)
        except ApiError as refusal:
            self._effects += _refused(message, refusal, self._context.leader_epoch)
            return
        except Exception as failure:
            raise ActorFailedError(role, message) from failure
        if self._failure and isinstance(body, ShareGroupDescribeResponse):
            quarantine = {"quarantined_role": self._failed_role.value, "quarantine_reason": self._failure}
            body = body.model_copy(update={"group_state": GroupStateName.QUARANTINED, **quarantine})
        if envelope.reply_partition >= 0:
            self._effects.append(response_to(address_of(envelope), body, self._context.leader_epoch))

    def _quarantine_error(self) -> GroupQuarantinedError:
        return GroupQuarantinedError(
            f"Group {self._context.group_id} is quarantined: {self._failure}.", "An administrator must resume it."
        )

    def _status(self, role: ActorRole, status: GroupStatus, reason: str, message: LoggedRequest) -> Persist:
        payload = GroupStatusPayload(role=role, status=status, reason=reason)
        row = StateRow(record_type=RecordType.GROUP_STATUS, payload=payload.model_dump(mode="json"))
        return Persist(self._context.addressed(row, message.offset, CutTime(message.time_ms, message.time_ms)))


def version_refusal(envelope: RequestEnvelope) -> ApiError | None:
    """Return the error of a message whose kind or version is unknown; None when both are known."""
    api_key = envelope.api_key
    if api_key not in RECIPIENTS:
        return UnsupportedVersionError(f"api_key {api_key} is not known.")
    if envelope.api_version != LATEST_VERSION[api_key] or envelope.v != ENVELOPE_VERSION:
        return UnsupportedVersionError(
            f"Envelope version {envelope.v} with api_version {envelope.api_version} of api_key {api_key} "
            f"is not known; this release speaks {ENVELOPE_VERSION} with {LATEST_VERSION[api_key]}."
        )
    return None


def _recipient_refusal(envelope: RequestEnvelope) -> ApiError | None:
    api_key = envelope.api_key
    return None if RECIPIENTS[api_key] else InvalidRequestError(f"{ApiKey(api_key).name} is not a message for a group.")


def _refused(message: LoggedRequest, error: ApiError, leader_epoch: int) -> list[Effect]:
    envelope = message.envelope
    if envelope.reply_partition < 0:
        return [Undecodable(message.offset, str(error))]
    body = ErrorResponse(error_code=error.code, error_message=str(error))
    return [response_to(address_of(envelope), body, leader_epoch)]
