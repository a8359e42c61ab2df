"""The groups that a processor serves: those whose id `processor.group.pattern` matches.

A request log is one trust domain, and the pattern is its border on the side of the groups: a request for another group
gets GROUP_AUTHORIZATION_FAILED, as in Kafka from a broker whose authorizer denies the group, and changes nothing. What
the state table has of other groups, from the time of another pattern, remains as it is.
"""

from __future__ import annotations

from sharegroup.config.processor_config import compiled_pattern
from sharegroup.errors import GroupAuthorizationFailedError
from sharegroup.state.fold import FoldedState

ALL_GROUPS = ".*"
"""The pattern of a processor that serves all groups."""


class ServedGroups:
    """The border of a domain.

    Args:
        pattern: regular expression that the whole id of a served group matches.
    """

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
