"""The rules of the protocol of open writes, each of which a variant of the model may leave out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Slot(Enum):
    """The time for which an application id belongs to a write."""

    UNTIL_CLOSED = auto()
    WHILE_ACQUIRED = auto()
    FOR_EVER_THE_GROUP_S = auto()


class Check(Enum):
    """The snapshot whose transaction a writer checks."""

    OF_ITS_COMMIT = auto()
    OF_AN_EARLIER_LOAD = auto()
    NONE = auto()


class Intended(Enum):
    """The effect of a RELEASE, REJECT, UNREAD or GAP of a write that has begun."""

    KEPT = auto()
    AT_ONCE = auto()


class Parts(Enum):
    """A write in several commits: what the last one says, and which version it has."""

    NONE = auto()
    UNION = auto()
    OWN_RECORDS_ONLY = auto()
    BELOW_THE_FENCE = auto()


class Wait(Enum):
    """The behaviour of the log start, or of a reset of offsets, while a write is open."""

    NEVER_HAPPENS = auto()
    WAITS = auto()
    AT_ONCE = auto()


@dataclass(frozen=True)
class Rules:
    """A variant: its size, and its rules. The defaults are the protocol.

    Attributes:
        given_up: acknowledgements without a commit: R releases, U unread, J rejects, G is a gap.
        has_mixed_outcomes: commits release and reject some records, too.
        reads_back: a writer says what the sink has, not what it meant to write.
        says_own_decision: a writer that finds a commit of its write says what this run decided.
        resolve_names_version: a resolution is of one write, not of all with its application id.
        acknowledgement_names_version: so is an acknowledgement.
        fences: a resolver commits a fence before it looks.
        anybody_reports: anybody may report a commit without a fence.
        says_begun: an acknowledgement of a write that has begun says so.
        has_second_run: a write may be run once more, while the first run goes on as a zombie.
        second_run_stops: a run that meets a part of another one stops.
        limit_at_lock_end: the delivery limit applies before a write is decided.
        hands_out_always: unresolved writes are handed out to fetches that get no records, too.
    """

    records: int = 1
    writes: int = 2
    resolvers: int = 1
    limit: int = 9
    given_up: str = "R"
    has_mixed_outcomes: bool = False
    reads_back: bool = True
    says_own_decision: bool = False
    resolve_names_version: bool = True
    acknowledgement_names_version: bool = True
    fences: bool = True
    anybody_reports: bool = False
    says_begun: bool = True
    has_second_run: bool = False
    second_run_stops: bool = True
    limit_at_lock_end: bool = False
    hands_out_always: bool = True
    slot: Slot = Slot.UNTIL_CLOSED
    check: Check = Check.OF_ITS_COMMIT
    intended: Intended = Intended.KEPT
    parts: Parts = Parts.NONE
    log_start: Wait = Wait.NEVER_HAPPENS
    reset: Wait = Wait.NEVER_HAPPENS
