"""One micro-batch of one actor: bytes of state and messages in, bytes of state and effects out.

An unexpected exception stops this group only: the batch is done again up to the message that failed, and from
there on the actor is quarantined (status FAILED) until an administrator resumes the group. A failure that no single
message is to blame for, at the end of a batch or in reading the state, undoes the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgpack

from sharegroup.actor.answers import response_to
from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.effects import Effect, Persist, Respond, Undecodable
from sharegroup.actor.leader import Leader
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import GroupState
from sharegroup.errors import (
    ApiError,
    GroupQuarantinedError,
    InvalidRequestError,
    UnsupportedFormatVersionError,
    UnsupportedVersionError,
)
from sharegroup.protocol.api_key import LATEST_VERSION, RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.messages import ENVELOPE_VERSION, ErrorResponse, RequestEnvelope
from sharegroup.protocol.rows import RecordType, StateRow

STATE_FORMAT_VERSION = 2


class Actor(Protocol):
    """What the two actors have in common."""

    def receive(self, message: LoggedRequest) -> None:
        """Judge one message."""

    def finish(self, last_offset: int, time: CutTime) -> list[Effect]:
        """End the batch."""

    def to_plain(self) -> list[Any]:
        """The whole state as lists, numbers and strings."""


@dataclass(frozen=True, slots=True)
class ActorState:
    """An actor's state between two batches.

    Attributes:
        plain: the actor's own state; None before its first message.
        last_time_ms: append time of its last message, so that time never goes back.
        failure: why the group is quarantined; "" when it is not.
    """

    plain: list[Any] | None = None
    last_time_ms: int = 0
    failure: str = ""

    def encoded(self) -> bytes:
        """State bytes: a version, then msgpack."""
        packed: bytes = msgpack.packb([STATE_FORMAT_VERSION, self.plain, self.last_time_ms, self.failure])
        return packed

    @classmethod
    def decoded(cls, encoded: bytes) -> ActorState:
        """The state that `encoded` wrote.

        Raises:
            UnsupportedFormatVersionError: another release wrote the bytes in a format unknown here.
        """
        version, *fields = msgpack.unpackb(encoded, strict_map_key=False)
        if version != STATE_FORMAT_VERSION:
            raise UnsupportedFormatVersionError(
                f"Actor state has format version {version}; this release reads {STATE_FORMAT_VERSION}.",
                "Delete the checkpoint folder: the processor rebuilds it from the state table.",
            )
        return cls(*fields)


def run_batch(
    role: ActorRole,
    context: ActorContext,
    state: ActorState,
    messages: Sequence[LoggedRequest],
    cut_ms: int,
) -> tuple[ActorState, list[Effect]]:
    """Apply a batch's messages to an actor.

    Args:
        role: which of the group's actors.
        context: its identity.
        state: its state before.
        messages: messages of the group for this actor, in the order of the request log.
        cut_ms: the batch's time.

    Returns:
        The state after, and what is to be done once the batch is committed.
    """
    effects: list[Effect] = []
    rest: Sequence[LoggedRequest] = _with_rising_time(messages, state.last_time_ms)
    while rest:
        is_resumed = bool(state.failure)
        if is_resumed:
            state, more, rest = _refused(role, context, state, rest)
            effects += more
        state, more, rest = _applied(role, context, state, rest, cut_ms, is_resumed)
        effects += more
    return state, effects


_Progress = tuple[ActorState, list[Effect], Sequence[LoggedRequest]]
"""State, effects, and the messages that are still to be handled."""


def _applied(
    role: ActorRole,
    context: ActorContext,
    state: ActorState,
    messages: Sequence[LoggedRequest],
    cut_ms: int,
    is_resumed: bool,
) -> _Progress:
    """Apply messages up to the first that fails; from that one on the group is quarantined."""
    count, cause = len(messages), None
    while True:
        try:
            after, effects = _run(role, context, state, messages[:count], cut_ms)
            break
        except _StepError as failed:
            count, cause = failed.index, failed.cause
    if is_resumed and count:
        row = _status_row(context, role, GroupStatus.ACTIVE, "resumed", messages[0], cut_ms)
        effects = [Persist(row), *effects]
    if cause is None:
        return after, effects, ()
    bad = messages[count]
    reason = (
        f"{role.value} failed on message {bad.offset} (api_key {bad.envelope.api_key}): {type(cause).__name__}: {cause}"
    )
    row = _status_row(context, role, GroupStatus.FAILED, reason, bad, cut_ms)
    quarantined = ActorState(after.plain, bad.time_ms, reason)
    refusal = _answer(role, bad, _quarantine_error(context, quarantined))
    return quarantined, [*effects, Persist(row), *refusal], messages[count + 1 :]


def _refused(role: ActorRole, context: ActorContext, state: ActorState, messages: Sequence[LoggedRequest]) -> _Progress:
    """Refuse messages of a quarantined group up to the one that resumes it, which is left to the actor."""
    error = _quarantine_error(context, state)
    effects: list[Effect] = []
    for index, message in enumerate(messages):
        if message.envelope.api_key == ApiKey.RESUME_SHARE_GROUP and _fault(role, message.envelope) is None:
            return ActorState(state.plain, message.time_ms), effects, messages[index:]
        effects += _answer(role, message, error)
    last_time_ms = messages[-1].time_ms if messages else state.last_time_ms
    return ActorState(state.plain, last_time_ms, state.failure), effects, ()


class _StepError(Exception):
    """A message failed, or the batch as a whole (index 0)."""

    def __init__(self, index: int, cause: Exception) -> None:
        super().__init__(index, cause)
        self.index = index
        self.cause = cause


def _run(
    role: ActorRole, context: ActorContext, state: ActorState, messages: Sequence[LoggedRequest], cut_ms: int
) -> tuple[ActorState, list[Effect]]:
    if not messages:
        return state, []
    last = messages[-1]
    try:
        actor = _actor(role, context, state.plain)
        effects = [
            effect for index, message in enumerate(messages) for effect in _received(role, actor, index, message)
        ]
        effects += actor.finish(last.offset, CutTime(cut_ms, last.time_ms))
        return ActorState(actor.to_plain(), last.time_ms), effects
    except _StepError:
        raise
    except Exception as error:
        raise _StepError(0, error) from error


def _received(role: ActorRole, actor: Actor, index: int, message: LoggedRequest) -> list[Effect]:
    fault = _fault(role, message.envelope)
    if fault is not None:
        return _refusal(role, message, fault)
    try:
        actor.receive(message)
    except ApiError as error:
        return _refusal(role, message, error)
    except Exception as error:
        raise _StepError(index, error) from error
    return []


def _actor(role: ActorRole, context: ActorContext, plain: list[Any] | None) -> Actor:
    if role is ActorRole.LEADER:
        return Leader(context, {}) if plain is None else Leader.from_plain(context, plain)
    if plain is None:
        return Coordinator(context, GroupCoordinator(GroupState(), context.broker))
    return Coordinator.from_plain(context, plain)


def _with_rising_time(messages: Sequence[LoggedRequest], last_time_ms: int) -> list[LoggedRequest]:
    rising = []
    for message in messages:
        last_time_ms = max(last_time_ms, message.time_ms)
        rising.append(LoggedRequest(message.envelope, message.offset, last_time_ms))
    return rising


def _fault(role: ActorRole, envelope: RequestEnvelope) -> ApiError | None:
    """What keeps a message from being judged at all."""
    if envelope.api_key not in RECIPIENTS:
        return UnsupportedVersionError(f"api_key {envelope.api_key} is not known.")
    api_key = ApiKey(envelope.api_key)
    if envelope.api_version != LATEST_VERSION[api_key] or envelope.v != ENVELOPE_VERSION:
        return UnsupportedVersionError(
            f"Envelope version {envelope.v} with api_version {envelope.api_version} of api_key {envelope.api_key} "
            f"is not known; this release speaks {ENVELOPE_VERSION} with {LATEST_VERSION[api_key]}."
        )
    if role not in RECIPIENTS[api_key]:
        return InvalidRequestError(f"{api_key.name} is not a message for the {role.value} of a group.")
    return None


def _quarantine_error(context: ActorContext, state: ActorState) -> GroupQuarantinedError:
    return GroupQuarantinedError(
        f"Group {context.group_id} is quarantined: {state.failure}.", "An administrator must resume it."
    )


def _refusal(role: ActorRole, message: LoggedRequest, error: ApiError) -> list[Effect]:
    if message.envelope.reply_partition < 0 and _speaks_for(role, message.envelope):
        return [Undecodable(message.offset, str(error))]
    return _answer(role, message, error)


def _answer(role: ActorRole, message: LoggedRequest, error: ApiError) -> list[Effect]:
    envelope = message.envelope
    if envelope.reply_partition < 0 or not _speaks_for(role, envelope):
        return []
    body = ErrorResponse(error_code=error.code, error_message=str(error))
    return [Respond(envelope.reply_partition, response_to(envelope, body))]


def _speaks_for(role: ActorRole, envelope: RequestEnvelope) -> bool:
    """Whether this actor answers the message; one for both actors is answered by one of them."""
    recipients = RECIPIENTS.get(envelope.api_key, ())  # type: ignore[call-overload]  # an ApiKey is an int
    return role not in recipients or recipients[0] is role


def _status_row(
    context: ActorContext, role: ActorRole, status: GroupStatus, reason: str, message: LoggedRequest, cut_ms: int
) -> StateRow:
    payload = GroupStatusPayload(role=role, status=status, reason=reason)
    row = StateRow(record_type=RecordType.GROUP_STATUS, payload=payload.model_dump(mode="json"))
    return context.addressed(row, message.offset, CutTime(cut_ms, message.time_ms))
