"""The columns of the transition table that depend on the cause alone, and all sets of causes.

The table (`record_state.TRANSITIONS`) says where a cause leads from each state. The rest of what there is to know of a
cause is here, one row a cause: its author, the acknowledgement that asks for it, and what the checks, the reports and
Kafka make of it. All other modules ask these columns, or a set that is derived from them or from the table; so a new
cause is in each set to which it belongs, and in no report by oversight.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from sharegroup.core.record_state import (
    TRANSITIONS,
    UNDECIDED_STATES,
    AcknowledgeType,
    Cause,
    Outcome,
    RecordState,
)


class Author(Enum):
    """The one that makes a change; it decides which member the transition must name."""

    ACQUIRER = auto()
    """A member by a fetch: it holds the records from now on."""
    HOLDER = auto()
    """The member that holds the records, by a request; no other member may."""
    LEADER = auto()
    """The leader by itself: it ends the lock of the member that the transition names."""
    DEAD_LETTER_WRITER = auto()
    LOG = auto()
    ADMINISTRATOR = auto()
    OTHER_SYSTEM = auto()


class Suspicion(Enum):
    """The effect of a change on the suspicion that a record kills the processes that take it."""

    RAISED = auto()
    """The delivery ended without an acknowledgement of the application, which may have died of the record."""
    KEPT = auto()
    """It says nothing about the record."""
    ENDED = auto()
    """The application has answered, or the record is not delivered any more."""


@dataclass(frozen=True, slots=True)
class CauseRule:
    """The columns of the transition table that do not depend on the state. None has a default: a new cause needs each.

    Attributes:
        author: the one that makes the change.
        acknowledge_type: type of the acknowledgement that asks for it; None if none does.
        is_answer: True if it is the application's answer, which an acknowledgement of the client itself is not.
        has_record: False if the record is not in the log, or an administrator gave it up: it cannot be redriven.
        is_persisted_by_kafka: True if Kafka's share coordinator would store it. Kafka stores no acquisition, renewal
            or `unread`. When the log start passes records, Kafka writes nothing either: the next write carries the
            new start offset (recorded from 4.3.1).
        needs_deadline: True if it ends no lock before its deadline.
        backs_off: True if the group's back-off delays the record: an application failed on it. A closed session and
            `unread` cause none, because they do not depend on the record; with `unread` the member may ask for one.
        suspicion: what it makes of the suspicion against a record that stays in the queue or with its holder.
    """

    author: Author
    acknowledge_type: AcknowledgeType | None
    is_answer: bool
    has_record: bool
    is_persisted_by_kafka: bool
    needs_deadline: bool
    backs_off: bool
    suspicion: Suspicion


# fmt: off
_RAISED, _KEPT, _ENDED = Suspicion
_Type = AcknowledgeType
_ROWS: tuple[tuple[Cause, Author, AcknowledgeType | None, bool, bool, bool, bool, bool, Suspicion], ...] = (
    # cause                     author                     acknowledgement answer record Kafka  overdue delay  suspicion
    (Cause.ACQUIRE,             Author.ACQUIRER,           None,          False, True,  False, False,  False, _KEPT),
    (Cause.GAP,                 Author.HOLDER,             _Type.GAP,     False, False, True,  False,  False, _ENDED),
    (Cause.ACCEPT,              Author.HOLDER,             _Type.ACCEPT,  True,  True,  True,  False,  False, _ENDED),
    (Cause.RELEASE,             Author.HOLDER,             _Type.RELEASE, True,  True,  True,  False,  True,  _ENDED),
    (Cause.REJECT,              Author.HOLDER,             _Type.REJECT,  True,  True,  True,  False,  False, _ENDED),
    (Cause.RENEW,               Author.HOLDER,             _Type.RENEW,   True,  True,  False, False,  False, _KEPT),
    (Cause.UNREAD,              Author.HOLDER,             _Type.UNREAD,  False, True,  False, False,  False, _KEPT),
    (Cause.LOCK_TIMEOUT,        Author.LEADER,             None,          False, True,  True,  True,   True,  _RAISED),
    (Cause.SESSION_CLOSE,       Author.HOLDER,             None,          False, True,  True,  False,  False, _KEPT),
    (Cause.MEMBER_SILENT,       Author.LEADER,             None,          False, True,  True,  False,  False, _RAISED),
    (Cause.MEMBER_ENDED,        Author.LEADER,             None,          False, True,  True,  False,  False, _RAISED),
    (Cause.DEAD_LETTER_WRITTEN, Author.DEAD_LETTER_WRITER, None,          False, True,  True,  False,  False, _ENDED),
    (Cause.LOG_START,           Author.LOG,                None,          False, False, False, False,  False, _ENDED),
    (Cause.OFFSET_RESET,        Author.ADMINISTRATOR,      None,          False, False, True,  False,  False, _ENDED),
    (Cause.IMPORTED,            Author.OTHER_SYSTEM,       None,          False, True,  True,  False,  False, _ENDED),
    (Cause.REDRIVE,             Author.ADMINISTRATOR,      None,          False, True,  True,  False,  False, _ENDED),
    (Cause.IN_DOUBT,            Author.LEADER,             None,          False, True,  False, False,  False, _KEPT),
    (Cause.NOT_WRITTEN,         Author.LEADER,             None,          False, True,  True,  False,  False, _KEPT),
)
# fmt: on
CAUSE_RULES: dict[Cause, CauseRule] = {row[0]: CauseRule(*row[1:]) for row in _ROWS}
"""Cause → its columns. All sets of causes are derived from this table and from `TRANSITIONS`."""

ACKNOWLEDGE_CAUSE: dict[AcknowledgeType, Cause] = {
    rule.acknowledge_type: cause for cause, rule in CAUSE_RULES.items() if rule.acknowledge_type is not None
}
"""Type of an acknowledgement → cause of its transitions."""

ANSWER_CAUSE: dict[AcknowledgeType, Cause] = {
    kind: cause for kind, cause in ACKNOWLEDGE_CAUSE.items() if CAUSE_RULES[cause].is_answer
}
"""Those of them that an application may use."""

HOLDER_ACTS = frozenset(cause for cause, rule in CAUSE_RULES.items() if rule.author is Author.HOLDER)
"""Causes by which a member changes what it holds, by a request."""

ENDS_OF_LOCKS = frozenset(cause for cause, rule in CAUSE_RULES.items() if rule.author is Author.LEADER)
"""Causes that name the member whose lock ends by itself."""

OVERDUE = frozenset(cause for cause, rule in CAUSE_RULES.items() if rule.needs_deadline)
"""Causes that end no lock before its deadline."""

WITHOUT_RECORD = frozenset(cause for cause, rule in CAUSE_RULES.items() if not rule.has_record)
"""Causes after which a record is archived that is not in the log, or that an administrator gave up."""


def _outcomes(*states: RecordState) -> list[tuple[Cause, Outcome]]:
    return [
        (cause, outcome) for state in states for cause, outcome in TRANSITIONS[state].items() if outcome is not None
    ]


DELIVERIES = frozenset(
    cause for cause, outcome in _outcomes(RecordState.AVAILABLE) if outcome.to_state is RecordState.ACQUIRED
)
"""Causes by which a member receives records."""

RETURNS = frozenset(cause for cause, outcome in _outcomes(RecordState.ACQUIRED) if outcome.at_limit is not None)
"""Causes that end a delivery and give the record back to the queue, at the delivery limit to nobody."""

ENDS_OF_DELIVERIES = frozenset(
    cause for cause, outcome in _outcomes(RecordState.ACQUIRED) if outcome.to_state not in UNDECIDED_STATES
)
"""Causes that end a delivery, be it that they take it back; each delivery ends by one of them, once."""

DECIDED_ENDS = frozenset(cause for cause, _ in _outcomes(RecordState.RESOLVING))
"""Causes that end a delivery with an open write when the write is decided."""

CHOSEN_ENDS = DECIDED_ENDS & frozenset(ACKNOWLEDGE_CAUSE.values())
"""Those of them that a commit of the write may give a record; the others come from the end of a lock alone."""

UNDELIVERED = frozenset(cause for cause, outcome in _outcomes(*RecordState) if outcome.delivery_count_change < 0)
"""Causes that take a delivery back: no application has seen the record."""

COUNT_RESETS = frozenset(cause for cause, outcome in _outcomes(*RecordState) if outcome.resets_delivery_count)
"""Causes that start the delivery count again, which Kafka does with a new state only."""


def is_suspect_after(to_state: RecordState, cause: Cause, *, was_suspect: bool) -> bool:
    """Return True if a record is a suspect after a change: its last delivery ended without an acknowledgement.

    A finished record, and one that waits for its dead letter, is none: it is not delivered again.
    """
    if to_state is RecordState.ACKNOWLEDGED or to_state is RecordState.ARCHIVED or to_state is RecordState.ARCHIVING:
        return False
    suspicion = CAUSE_RULES[cause].suspicion
    return suspicion is Suspicion.RAISED or (was_suspect and suspicion is Suspicion.KEPT)


def is_persisted_by_kafka(to_state: RecordState, cause: Cause) -> bool:
    """Return True if Kafka's share coordinator would store a transition; of a damaged row, it must know the state."""
    return to_state.is_persisted and CAUSE_RULES[cause].is_persisted_by_kafka
