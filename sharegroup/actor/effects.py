"""What an actor wants done; the processor does it after the batch's commit."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope
from sharegroup.protocol.rows import StateRow


@dataclass(frozen=True, slots=True)
class Persist:
    """Append a row to the state table, in the batch's one commit."""

    row: StateRow


@dataclass(frozen=True, slots=True)
class Respond:
    """Append a response to a partition of the response log."""

    partition: int
    response: ResponseEnvelope


@dataclass(frozen=True, slots=True)
class Send:
    """Append a message to the request log, in the group's own partition."""

    request: RequestEnvelope


@dataclass(frozen=True, slots=True)
class WatchTopics:
    """Tell the group when a topic's id or partition count is not as given; replaces the group's earlier watch.

    Attributes:
        group_id: the group.
        topics: topic name → (topic id or "" when unknown, partition count).
        reset_duration_ms: how far back `share.auto.offset.reset` by duration looks; None for earliest and latest.
    """

    group_id: str
    topics: dict[str, tuple[str, int]]
    reset_duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WatchLog:
    """Tell the group, once, when a partition's log has grown above an offset; replaces the group's earlier watch.

    Attributes:
        group_id: the group.
        above_offset: (topic name, topic id, partition) → offset that the group knows to be the end.
    """

    group_id: str
    above_offset: dict[tuple[str, str, int], int]


@dataclass(frozen=True, slots=True)
class Wake:
    """Append a Tick for the group at a time; replaces the actor's earlier wish. None: no need.

    Attributes:
        group_id: the group.
        role: the actor.
        at_ms: epoch ms, or None.
    """

    group_id: str
    role: ActorRole
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A message that could not be read was counted.

    Attributes:
        request_offset: its offset in the request log.
        reason: what is wrong with it.
    """

    request_offset: int
    reason: str


Effect = Persist | Respond | Send | WatchTopics | WatchLog | Wake | Undecodable
