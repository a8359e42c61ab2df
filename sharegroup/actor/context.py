"""The context of an actor besides its state: its identity, its messages, and the cut's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.api_key import INTERNAL_KEYS, ApiKey
from sharegroup.protocol.messages import RequestEnvelope, changed
from sharegroup.protocol.row_payloads import EarlierState
from sharegroup.protocol.rows import StateRow

_OUTSIDE_REPORTS = frozenset({ApiKey.DLQ_WRITTEN, ApiKey.DLQ_STATUS_CHANGED, ApiKey.MEMBER_ENDED})
"""Internal messages that report outside events: true for any sender."""


class LoggedRequest(NamedTuple):
    """A message of the request log.

    Attributes:
        time_ms: its append time, made non-decreasing within the group.
    """

    envelope: RequestEnvelope
    offset: int
    time_ms: int


class CutTime(NamedTuple):
    """The time of a cut.

    Attributes:
        cut_ms: the time of the cut in the group's request partition; the marker has it.
        last_message_ms: append time of the last message of the group in it.
    """

    cut_ms: int
    last_message_ms: int

    @property
    def lock_start_ms(self) -> int:
        """Start of new locks, chosen so that a stalled processor acquires no lock that is already over."""
        return max(self.cut_ms, self.last_message_ms)


@dataclass(frozen=True, slots=True)
class ActorContext:
    """The identity of an actor.

    Attributes:
        leader_epoch: epoch of the processor that runs the actor.
        group_epoch_floor: a new group begins above it: the highest epoch of any removed group.
        host: host that the processor runs on, "" when unknown.
        earlier_states: the states before, each of which ended when an older copy of the table was accepted.
    """

    group_id: str
    request_partition: int
    leader_epoch: int
    broker: BrokerConfig
    group_epoch_floor: int = 0
    state_id: str = ""
    host: str = ""
    earlier_states: tuple[EarlierState, ...] = ()

    def addressed(self, row: StateRow, request_offset: int, time: CutTime) -> StateRow:
        """Return the row with the columns for its group, message and time; the table adds those of the commit."""
        return changed(
            row,
            group_id=self.group_id,
            request_partition=self.request_partition,
            request_offset=request_offset,
            time_ms=time.lock_start_ms,
        )


def is_outdated(context: ActorContext, envelope: RequestEnvelope) -> bool:
    """Return True if a message is an internal one of an older processor, which the actors ignore.

    The older processor may have sent it from a state that is gone. This processor sent all messages
    that are still needed again when it took over.
    """
    return (
        envelope.api_key in INTERNAL_KEYS
        and envelope.api_key not in _OUTSIDE_REPORTS
        and envelope.leader_epoch < context.leader_epoch
    )
