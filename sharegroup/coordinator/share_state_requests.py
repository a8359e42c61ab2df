"""What a share coordinator is asked, and what it answers: the fields of Kafka's API keys 83 to 87.

Kafka's messages carry lists of topics and partitions; its coordinator takes them one share-partition at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.state_batches import StateBatch
from sharegroup.protocol.share_state_records import UNKNOWN_COUNT

UNKNOWN_EPOCH = -1
"""An epoch that the sender does not know: it is never fenced."""
UNKNOWN_START_OFFSET = -1
"""The start offset of a share-partition that has none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateRequest:
    """A request about one share-partition.

    Attributes:
        group_id: the share group.
        topic_id: topic id in Kafka's base64 form.
        partition: partition.
    """

    group_id: str
    topic_id: str | None
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeShareGroupState(ShareStateRequest):
    """Begin a new state, whatever there was (key 83).

    Attributes:
        state_epoch: fencing epoch of the new state.
        start_offset: the SPSO; -1 when it is not known yet.
    """

    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadShareGroupState(ShareStateRequest):
    """Ask for the state, as a new leader does (key 84).

    Attributes:
        leader_epoch: epoch of the leader, which fences earlier ones from now on.
    """

    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShareGroupState(ShareStateRequest):
    """Change the state (key 85).

    Attributes:
        state_epoch: epoch of the state that the leader knows.
        leader_epoch: epoch of the leader.
        start_offset: the SPSO; -1 leaves it as it is.
        delivery_complete_count: finished records at or above the SPSO.
        state_batches: what changed.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    state_batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareGroupState(ShareStateRequest):
    """Delete the state (key 86)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadShareGroupStateSummary(ShareStateRequest):
    """Ask for the state without its batches, for a look from outside (key 87)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupStateSummary:
    """The state without its batches; the defaults are those of a share-partition that has none.

    Attributes:
        state_epoch: fencing epoch of the state.
        leader_epoch: epoch of the leader.
        start_offset: the SPSO; -1 when there is none.
        delivery_complete_count: finished records at or above the SPSO; -1 when not known.
    """

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNKNOWN_START_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
