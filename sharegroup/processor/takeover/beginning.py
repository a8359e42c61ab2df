"""Where the live groups of a processor begin: their state, and the term of the processor that hosts them.

A processor serves the groups whose id `processor.group.pattern` matches. A request log is one trust domain, and the
pattern is its border on the side of the groups: a request for another group gets GROUP_AUTHORIZATION_FAILED, as from a
broker of Kafka whose authorizer denies the group, and changes nothing. What the state table has of other groups, from
the time of another pattern, remains as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.config.processor_config import compiled_pattern
from sharegroup.errors import FencedProcessorError, GroupAuthorizationFailedError
from sharegroup.logs.port import LogRecord
from sharegroup.protocol.messages import RequestEnvelope
from sharegroup.protocol.row_payloads import EarlierState
from sharegroup.state.fold import FoldedState

ALL_GROUPS = ".*"
"""The pattern of a processor that serves all groups."""


class ServedGroups:
    """The border of a domain."""

    def __init__(self, pattern: str = ALL_GROUPS) -> None:
        self.pattern = pattern
        self._matches = None if pattern == ALL_GROUPS else compiled_pattern(pattern).fullmatch

    def includes(self, group_id: str) -> bool:
        """Return True if the processor serves the group."""
        return self._matches is None or self._matches(group_id) is not None

    def refusal(self, group_id: str) -> GroupAuthorizationFailedError:
        """Return the error for a request of a group that is not served."""
        return GroupAuthorizationFailedError(
            f"Group {group_id} is not served here: processor.group.pattern is {self.pattern}.",
            "Name a group of this domain, or use the topics of the group's own domain.",
        )

    def of(self, state: FoldedState) -> FoldedState:
        """Return the part of a folded state that is served."""
        return FoldedState({group_id: group for group_id, group in state.groups.items() if self.includes(group_id)})


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a processor's term.

    Attributes:
        folded: all groups of the state table; the live groups change them from now on.
        group_epoch_floor: highest group epoch of any removed group.
        poison: request partition and offset of a message that ended processors: its group is quarantined at it.
        announced_offsets: request partition → offset of this processor's announcement.
        served: the groups that are served; the others of the state table are left out.
        host: host that the processor runs on, which its Fence row has.
        earlier_states: the states before, each of which ended when an older copy of the table was accepted.
    """

    folded: FoldedState
    leader_epoch: int
    request_partition_count: int
    group_epoch_floor: int = 0
    poison: tuple[int, int] | None = None
    state_id: str = ""
    announced_offsets: Mapping[int, int] = field(default_factory=dict)
    served: ServedGroups = field(default_factory=ServedGroups)
    host: str = ""
    earlier_states: tuple[EarlierState, ...] = ()

    def check_term(self, announcement: RequestEnvelope, record: LogRecord) -> None:
        """Check that the announcement of a processor does not end this one's term.

        Args:
            announcement: a ProcessorStarted message.
            record: its record in the request log.

        Raises:
            FencedProcessorError: the other processor has taken over.
        """
        named_id = announcement.body.get("state_id")
        state_id = named_id or self.state_id
        announced = self.announced_offsets.get(record.partition)
        if not named_id and announced is not None and record.offset < announced:
            # Processors name their table. What does not, and comes first, would end each new processor for ever.
            return
        if state_id != self.state_id:
            # Leader epochs of two state tables cannot be compared, but the table that was announced last counts.
            if announced is not None and record.offset > announced:
                raise FencedProcessorError(
                    f"A processor with another state table, {state_id}, has taken over at offset {record.offset} of "
                    f"request partition {record.partition}; this one has {self.state_id}.",
                    "Stop this processor: another one has taken over.",
                )
        elif announcement.leader_epoch > self.leader_epoch:
            raise FencedProcessorError(
                f"A processor with leader epoch {announcement.leader_epoch} has taken over at offset {record.offset} "
                f"of request partition {record.partition}; this one has {self.leader_epoch}.",
                "Stop this processor: another one has taken over.",
            )
