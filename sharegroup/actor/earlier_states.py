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


def awaited_states(context: ActorContext, config: GroupConfig) -> Sequence[AwaitedState]:
    """Return the earlier states whose writes have to be taken over before the group acquires records."""
    accepted_id = config.share_exactly_once_accepted_state_id
    if not context.earlier_states or not config.share_exactly_once_enable or accepted_id == context.state_id:
        return ()
    ids = [earlier.state_id for earlier in context.earlier_states]
    return [
        AwaitedState(
            state_id=earlier.state_id,
            ended_ms=earlier.ended_ms,
            end_offset=earlier.end_offsets.get(context.request_partition, 0),
        )
        for earlier in context.earlier_states[ids.index(accepted_id) if accepted_id in ids else 0 :]
    ]
