"""The earlier states of a table that was accepted as an older copy.

The copy does not know the writes that were opened after it, and their results may be in the sinks. So a group that
writes exactly once acquires nothing until somebody who reaches its sinks has kept those writes out, and has taken over
what they have written (`client/earlier_writes.py`). The processor has no rights to the sinks.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.actor.context import ActorContext
from sharegroup.config.group import GroupConfig
from sharegroup.protocol.group_description import AwaitedState
from sharegroup.protocol.row_payloads import EarlierState


def awaited_states(context: ActorContext, config: GroupConfig) -> Sequence[AwaitedState]:
    """Return the earlier states whose writes have to be taken over before the group acquires records."""
    accepted_id = config.share_exactly_once_accepted_state_id
    if not context.earlier_states or not config.share_exactly_once_enable or accepted_id == context.state_id:
        return ()
    first = _first_awaited(context.earlier_states, accepted_id)
    return [
        AwaitedState(
            state_id=earlier.state_id,
            ended_ms=earlier.ended_ms,
            end_offset=earlier.end_offsets.get(context.request_partition, 0),
        )
        for earlier in context.earlier_states[first:]
    ]


def _first_awaited(states: Sequence[EarlierState], accepted_id: str) -> int:
    """Return the index of the first state whose writes were lost after the group had taken over all before.

    A state that was lost together with others had itself no whole copy: that the group had taken those over in it, only
    messages say that are applied again.
    """
    named = next((each for each in states if each.state_id == accepted_id), None)
    if named is None:
        return 0
    return next(i for i, each in enumerate(states) if each.followed_by == named.followed_by)
