"""The limits that may have been in force when a row was made.

The rows have the message at which a configuration was decided, not the one at which the leader received it. But it
receives them in their order, and a processor that takes over begins with the last one of the table. So each
configuration may be in force from its own row on, until

- a transition is valid only under a later one, or
- a row comes from a processor that took over when a later one was in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.core.invariants import Violation
from sharegroup.core.record_state import RecordState
from sharegroup.core.records import SharePartitionLimits
from sharegroup.core.run import Run


class Configuration(NamedTuple):
    """A configuration of a group.

    Attributes:
        request_offset: the message at which it was decided.
        leader_epoch: epoch of the processor that decided it.
        from_epoch: epoch of the first processor that may have it; a processor may bring other defaults and bounds.
    """

    request_offset: int
    leader_epoch: int
    limits: SharePartitionLimits
    from_epoch: int = -1


def limits_of(broker: BrokerConfig, overrides: Mapping[str, str]) -> SharePartitionLimits:
    """Return the limits of a group with these settings of its own."""
    return effective_group_config(broker, overrides).share_partition_limits


@dataclass(slots=True)
class _Known:
    """A configuration, and the time of the cut in which a later one was in force already."""

    configuration: Configuration
    superseded_ms: int | None = None


class LimitsInForce:
    """The limits that may be in force at a group's leader, along the rows of a share-partition.

    Args:
        configurations: the group's configurations in their order; the first is the one without settings of its own.
    """

    def __init__(self, configurations: Sequence[Configuration]) -> None:
        self._later = configurations
        self._next = 0
        self._known: list[_Known] = []
        self.highest_delivery_count_limit = 0
        """Deliveries that were made under a higher limit stay counted."""

    def advance(self, request_offset: int, leader_epoch: int) -> None:
        """Go on to a row: add what was decided up to it, and drop what its processor can never have had."""
        later = self._later
        while self._next < len(later):
            if later[self._next].request_offset > request_offset or later[self._next].from_epoch > leader_epoch:
                break
            configuration = later[self._next]
            self._next += 1
            if not self._known or self._known[-1].configuration.limits != configuration.limits:
                self._known.append(_Known(configuration))
            self.highest_delivery_count_limit = max(
                self.highest_delivery_count_limit, configuration.limits.delivery_count_limit
            )
        while len(self._known) > 1 and self._known[1].configuration.leader_epoch < leader_epoch:
            del self._known[0]

    def allow_counts_of(self, runs: Iterable[Run]) -> None:
        """Allow the counts of the snapshot that opens a segment: it is compared with the segment before.

        A state that was imported has counts that were made under the limits of another system.
        """
        for run in runs:
            highest = self.highest_delivery_count_limit
            if run.state is RecordState.AVAILABLE and run.delivery_count >= highest:
                self.highest_delivery_count_limit = run.delivery_count + 1
            else:
                self.highest_delivery_count_limit = max(highest, run.delivery_count)

    def latest_until(self, request_offset: int, leader_epoch: int) -> SharePartitionLimits | None:
        """Return the latest limits that may be in force; None if later ones may come before a row.

        What is valid under them is valid whichever of the known ones are in force.
        """
        if self._next < len(self._later):
            following = self._later[self._next]
            if following.request_offset <= request_offset and following.from_epoch <= leader_epoch:
                return None
        return self._known[-1].configuration.limits if self._known else None

    @property
    def only(self) -> SharePartitionLimits | None:
        """The limits, if no others may be in force; else None."""
        return self._known[0].configuration.limits if len(self._known) == 1 else None

    def violations(self, check: Callable[[SharePartitionLimits], list[Violation]], cut_ms: int) -> list[Violation]:
        """Return the violations under the latest limits; nothing if there are none under some of the limits.

        Args:
            check: limits → violations under them.
            cut_ms: time of the cut. The order of rows within a cut is not known.
        """
        self._known = [k for k in self._known if k.superseded_ms is None or cut_ms <= k.superseded_ms]
        violations: list[Violation] = []
        for index, known in enumerate(self._known):
            if not (violations := check(known.configuration.limits)):
                for earlier in self._known[:index]:
                    earlier.superseded_ms = cut_ms if earlier.superseded_ms is None else earlier.superseded_ms
                break
        return violations
