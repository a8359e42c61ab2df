"""The record state machine: states, causes, and the transition table as data (spec 002, "The record state machine").

The columns of the table that depend on the cause alone are in `cause_rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from sharegroup.errors import IllegalTransitionError


class RecordState(IntEnum):
    """Delivery state of one record; the numbers up to 4 are the ones Kafka persists."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4
    RESOLVING = 5
    """Its delivery has ended, and whether its result is in the sink, or may still get there, is not known yet."""

    @property
    def is_terminal(self) -> bool:
        """True if the share-partition start offset may pass a record in this state."""
        return self in TERMINAL_STATES

    @property
    def is_persisted(self) -> bool:
        """True if Kafka stores this state; a lock, and an open write, exist only in the leader's memory there."""
        return self not in UNDECIDED_STATES


TERMINAL_STATES = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
"""The share-partition start offset may pass a record in one of these states."""

UNDECIDED_STATES = (RecordState.ACQUIRED, RecordState.RESOLVING)
"""A record in one of these states was delivered, and the outcome is not known; only such a record has an open write."""


class AcknowledgeType(IntEnum):
    """Type of an acknowledgement; 0 to 4 as in Kafka, 100 is an extension of this package."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    UNREAD = 100


class Cause(StrEnum):
    """Cause of a state change; every transition has one."""

    ACQUIRE = "acquire"
    GAP = "gap"
    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"
    UNREAD = "unread"
    LOCK_TIMEOUT = "lock_timeout"
    SESSION_CLOSE = "session_close"
    MEMBER_SILENT = "member_silent"
    MEMBER_ENDED = "member_ended"
    DEAD_LETTER_WRITTEN = "dead_letter_written"
    LOG_START = "log_start"
    OFFSET_RESET = "offset_reset"
    IMPORTED = "imported"
    REDRIVE = "redrive"
    IN_DOUBT = "in_doubt"
    NOT_WRITTEN = "not_written"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a cause in a state.

    Attributes:
        at_limit: the new state when the delivery count has reached its limit; None = `to_state` then too.
        resets_delivery_count: True if the delivery count becomes 0.
        dead_letters: an archived record passes through ARCHIVING when the group has a dead-letter queue (KIP-1191).
        other_states: states that a record may reach instead, with any higher count: another system has decided.
    """

    to_state: RecordState
    at_limit: RecordState | None = None
    delivery_count_change: int = 0
    resets_delivery_count: bool = False
    dead_letters: bool = False
    other_states: tuple[RecordState, ...] = ()

    def count_after(self, delivery_count: int) -> int:
        """Return the delivery count after the change of a record with this count."""
        return 0 if self.resets_delivery_count else delivery_count + self.delivery_count_change


_BACK_TO_THE_QUEUE = Outcome(RecordState.AVAILABLE, at_limit=RecordState.ARCHIVED, dead_letters=True)
_ENDS: dict[Cause, Outcome] = {
    Cause.GAP: Outcome(RecordState.ARCHIVED),
    Cause.ACCEPT: Outcome(RecordState.ACKNOWLEDGED),
    Cause.RELEASE: _BACK_TO_THE_QUEUE,
    Cause.REJECT: Outcome(RecordState.ARCHIVED, dead_letters=True),
    Cause.UNREAD: Outcome(RecordState.AVAILABLE, delivery_count_change=-1),
    Cause.LOCK_TIMEOUT: _BACK_TO_THE_QUEUE,
    Cause.SESSION_CLOSE: _BACK_TO_THE_QUEUE,
    Cause.MEMBER_SILENT: _BACK_TO_THE_QUEUE,
    Cause.MEMBER_ENDED: _BACK_TO_THE_QUEUE,
}
"""The ends of a delivery. With an open write they wait in RESOLVING, and apply if it is not in the sink."""
_PASSED_BY_THE_START_OFFSET = {
    Cause.LOG_START: Outcome(RecordState.ARCHIVED),
    Cause.OFFSET_RESET: Outcome(RecordState.ARCHIVED),
}


def _row(legal: dict[Cause, Outcome]) -> dict[Cause, Outcome | None]:
    return {cause: legal.get(cause) for cause in Cause}


TRANSITIONS: dict[RecordState, dict[Cause, Outcome | None]] = {
    RecordState.AVAILABLE: _row(
        {
            Cause.ACQUIRE: Outcome(RecordState.ACQUIRED, delivery_count_change=+1),
            Cause.IMPORTED: Outcome(
                RecordState.AVAILABLE,
                other_states=(RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED),
            ),
            **_PASSED_BY_THE_START_OFFSET,
        }
    ),
    RecordState.ACQUIRED: _row(
        {
            **_ENDS,
            Cause.RENEW: Outcome(RecordState.ACQUIRED),
            Cause.IN_DOUBT: Outcome(RecordState.RESOLVING),
            Cause.NOT_WRITTEN: _BACK_TO_THE_QUEUE,
            **_PASSED_BY_THE_START_OFFSET,
        }
    ),
    RecordState.ACKNOWLEDGED: _row({}),
    RecordState.ARCHIVING: _row(
        {
            Cause.DEAD_LETTER_WRITTEN: Outcome(RecordState.ARCHIVED),
            Cause.IMPORTED: Outcome(RecordState.ARCHIVED),
            **_PASSED_BY_THE_START_OFFSET,
        }
    ),
    RecordState.ARCHIVED: _row({Cause.REDRIVE: Outcome(RecordState.AVAILABLE, resets_delivery_count=True)}),
    RecordState.RESOLVING: _row(_ENDS),
}
"""State → cause → outcome, for every pair; None marks an illegal pair."""


def outcome_of(state: RecordState, cause: Cause) -> Outcome:
    """Return the table's outcome for a state and a cause.

    Raises:
        IllegalTransitionError: the pair is illegal.
    """
    outcome = TRANSITIONS[state][cause]
    if outcome is None:
        raise IllegalTransitionError(f"A record that is {state.name} cannot change by {cause.value}.")
    return outcome


def next_state(
    state: RecordState, cause: Cause, delivery_count: int, delivery_count_limit: int, has_dead_letter_queue: bool
) -> tuple[RecordState, int]:
    """Return the new state and delivery count of a record in this state with this count.

    Raises:
        IllegalTransitionError: the pair of state and cause is illegal.
    """
    outcome = outcome_of(state, cause)
    to_state = outcome.to_state
    if outcome.at_limit is not None and delivery_count >= delivery_count_limit:
        to_state = outcome.at_limit
    if to_state is RecordState.ARCHIVED and outcome.dead_letters and has_dead_letter_queue:
        to_state = RecordState.ARCHIVING
    return to_state, outcome.count_after(delivery_count)
