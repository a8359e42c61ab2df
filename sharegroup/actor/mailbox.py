"""One micro-batch of one actor: bytes of state and messages in, bytes of state and effects out.

An unexpected exception stops this group only: the batch is done again up to the message that failed, and from
there on the group is quarantined (status FAILED) until an administrator resumes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgpack

from sharegroup.actor.answers import response_to
from sharegroup.actor.context import ActorContext, BatchTime, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.effects import Effect, Persist, Respond, Undecodable
from sharegroup.actor.leader import Leader
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.group_state import GroupState
from sharegroup.errors import (
    ApiError,
    GroupQuarantinedError,
    UnsupportedFormatVersionError,
    UnsupportedVersionError,
)
from sharegroup.protocol.api_key import LATEST_VERSION, RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.group_status import GroupStatus, GroupStatusPayload
from sharegroup.protocol.messages import ENVELOPE_VERSION, ErrorResponse, RequestEnvelope
from sharegroup.protocol.rows import RecordType, StateRow

STATE_FORMAT_VERSION = 1


class Actor(Protocol):
    """What the two actors have in common."""

    def receive(self, message: LoggedRequest) -> None:
        """Judge one message."""

    def finish(self, last_offset: int, time: BatchTime) -> list[Effect]:
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
    batch_ms: int,
) -> tuple[ActorState, list[Effect]]:
    """Apply a batch's messages to an actor.

    Args:
        role: which of the group's actors.
        context: its identity.
        state: its state before.
        messages: messages of the group for this actor, in the order of the request log.
        batch_ms: the batch's time.

    Returns:
        The state after, and what is to be done once the batch is committed.
    """
    ordered = _with_rising_time(messages, state.last_time_ms)
    if state.failure:
        return _run_quarantined(role, context, state, ordered, batch_ms)
    try:
        return _run(role, context, state, ordered, batch_ms)
    except _StepError as failed:
        return _quarantine(role, context, state, ordered, batch_ms, failed)


class _StepError(Exception):
    def __init__(self, index: int, cause: Exception) -> None:
        super().__init__(index, cause)
        self.index = index
        self.cause = cause


def _run(
    role: ActorRole, context: ActorContext, state: ActorState, messages: Sequence[LoggedRequest], batch_ms: int
) -> tuple[ActorState, list[Effect]]:
    if not messages:
        return state, []
    actor = _actor(role, context, state.plain)
    effects: list[Effect] = []
    for index, message in enumerate(messages):
        try:
            _check_version(message.envelope)
            actor.receive(message)
        except ApiError as error:
            effects += _refusal(role, message, error)
        except Exception as error:
            raise _StepError(index, error) from error
    last = messages[-1]
    try:
        effects += actor.finish(last.offset, BatchTime(batch_ms, last.time_ms))
        plain = actor.to_plain()
    except Exception as error:
        raise _StepError(len(messages) - 1, error) from error
    return ActorState(plain, last.time_ms), effects


def _quarantine(
    role: ActorRole,
    context: ActorContext,
    state: ActorState,
    messages: Sequence[LoggedRequest],
    batch_ms: int,
    failed: _StepError,
) -> tuple[ActorState, list[Effect]]:
    try:
        before, effects = _run(role, context, state, messages[: failed.index], batch_ms)
    except _StepError as earlier:
        return _quarantine(role, context, state, messages, batch_ms, earlier)
    bad = messages[failed.index]
    reason = (
        f"{role.value} failed on message {bad.offset} (api_key {bad.envelope.api_key}): "
        f"{type(failed.cause).__name__}: {failed.cause}"
    )
    row = _status_row(context, role, GroupStatus.FAILED, reason, bad, batch_ms)
    quarantined = ActorState(before.plain, bad.time_ms, reason)
    after, more = _run_quarantined(role, context, quarantined, messages[failed.index :], batch_ms)
    return after, [*effects, Persist(row), *more]


def _run_quarantined(
    role: ActorRole, context: ActorContext, state: ActorState, messages: Sequence[LoggedRequest], batch_ms: int
) -> tuple[ActorState, list[Effect]]:
    effects: list[Effect] = []
    for index, message in enumerate(messages):
        if message.envelope.api_key == ApiKey.RESUME_SHARE_GROUP:
            resumed = ActorState(state.plain, message.time_ms)
            effects.append(Persist(_status_row(context, role, GroupStatus.ACTIVE, "resumed", message, batch_ms)))
            after, more = run_batch(role, context, resumed, messages[index:], batch_ms)
            return after, [*effects, *more]
        error = GroupQuarantinedError(f"Group {context.group_id} is quarantined: {state.failure}.")
        effects += _refusal(role, message, error)
    last_time_ms = messages[-1].time_ms if messages else state.last_time_ms
    return ActorState(state.plain, last_time_ms, state.failure), effects


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


def _check_version(envelope: RequestEnvelope) -> None:
    known = LATEST_VERSION.get(ApiKey(envelope.api_key))
    if envelope.api_version != known or envelope.v != ENVELOPE_VERSION:
        raise UnsupportedVersionError(
            f"Envelope version {envelope.v} with api_version {envelope.api_version} of api_key {envelope.api_key} "
            f"is not known; this release speaks {ENVELOPE_VERSION} with {known}."
        )


def _refusal(role: ActorRole, message: LoggedRequest, error: ApiError) -> list[Effect]:
    envelope = message.envelope
    if envelope.reply_partition < 0:
        return [Undecodable(message.offset, str(error))]
    # A message for both actors is answered by one of them.
    if RECIPIENTS[ApiKey(envelope.api_key)][0] is not role:
        return []
    body = ErrorResponse(error_code=error.code, error_message=str(error))
    return [Respond(envelope.reply_partition, response_to(envelope, body))]


def _status_row(
    context: ActorContext, role: ActorRole, status: GroupStatus, reason: str, message: LoggedRequest, batch_ms: int
) -> StateRow:
    payload = GroupStatusPayload(role=role, status=status, reason=reason)
    row = StateRow(record_type=RecordType.GROUP_STATUS, payload=payload.model_dump(mode="json"))
    return context.addressed(row, message.offset, BatchTime(batch_ms, message.time_ms))
