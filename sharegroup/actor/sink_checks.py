"""The members of a group either all write to a sink exactly once, or none does."""

from __future__ import annotations

from collections.abc import Set

from sharegroup.errors import InvalidRequestError

EXACTLY_ONCE_KEY = "share.exactly.once.enable"
SINKS_KEY = "share.exactly.once.sinks"


def check_sink(group_id: str, *, has_sink: bool, is_exactly_once: bool) -> None:
    """Check that a member of a group has a sink if, and only if, the group writes exactly once.

    Raises:
        InvalidRequestError: it has one and must not, or has none.
    """
    if has_sink is is_exactly_once:
        return
    if has_sink:
        raise InvalidRequestError(
            f"The member has a sink, and {EXACTLY_ONCE_KEY} of group {group_id} is false.",
            f"Run `sharegroup groups configure --group {group_id} --alter --add-config {EXACTLY_ONCE_KEY}=true`, "
            "or use a new group.",
        )
    raise InvalidRequestError(
        f"The member has no sink, and {EXACTLY_ONCE_KEY} of group {group_id} is true: an accepted record would have "
        "no result.",
        "Give the member a sink (a release without sinks cannot be a member), or use another group.",
    )


def check_knows_writes(group_id: str, *, awaits_sinks: bool) -> None:
    """Check that a group knows what its sinks have, so that it may acquire records.

    Raises:
        InvalidRequestError: it began again with an older copy of the state table, and its sinks were not taken over.
    """
    if awaits_sinks:
        raise InvalidRequestError(
            f"Group {group_id} began again with an older copy of the state table. It does not know its sinks.",
            f"Stop its members, and run `sharegroup groups resolve --group {group_id} --older-state`.",
        )


def check_listed(group_id: str, address: str, sinks: Set[str]) -> None:
    """Check that a sink is one of those that the configuration of a group lists, if it lists any.

    Raises:
        InvalidRequestError: it is not.
    """
    if sinks and address not in sinks:
        raise InvalidRequestError(
            f"The sink {address} is not in {SINKS_KEY} of group {group_id}: {', '.join(sorted(sinks))}.",
            f"Add it with `sharegroup groups configure --group {group_id} --alter`, or use another group.",
        )
