"""The payload of a CommitMarker row: the applied offsets of the request log, its cuts, and the outbox."""

from __future__ import annotations

from pydantic import Field

from sharegroup.protocol.messages import Message


class Cut(Message):
    """One cut of one request partition: the messages from the cut before it on, applied together.

    New locks of the partition's groups run from the cut's time.
    """

    partition: int = Field(description="Request partition.")
    end_offset: int = Field(description="Offset after the last message of the cut.")
    time_ms: int = Field(description="Time of the cut; epoch ms.")


class GroupCut(Cut):
    """A cut of one group's messages alone, skipped by other groups' cuts while the group was rebuilt."""

    group_id: str = Field(description="Group.")


class OutboxResponse(Message):
    """A response as it is appended to the response log."""

    partition: int = Field(description="Response partition.")
    member_id: str = Field(description="Key of the record.")
    value: str = Field(description="The response envelope, JSON.")


class CommitMarkerPayload(Message):
    """Payload of a CommitMarker row, which stands in each commit of a processor once."""

    row_count: int = Field(default=-1, description="Rows of the commit, this one included; -1 is unknown.")
    end_offsets: dict[int, int] = Field(description="Request partition to the offset after its last applied message.")
    cuts: list[Cut] = Field(default_factory=list, description="All cuts since the marker before, in order.")
    group_cuts: list[GroupCut] = Field(
        default_factory=list, description="Cuts of groups that had been rebuilt, since the marker before, in order."
    )
    message_times_ms: dict[int, int] = Field(
        default_factory=dict,
        description="Request partition to the time of its last applied message, behind which time does not go back.",
    )
    responses: list[OutboxResponse] = Field(
        default_factory=list, description="Outbox: responses that were not published before this commit, in order."
    )
    messages: list[str] = Field(
        default_factory=list, description="Outbox: internal messages, request envelopes in JSON, in order."
    )
    unapplied_groups: dict[str, int] = Field(
        default_factory=dict,
        description="Group that is being rebuilt to the first of its messages that is not applied.",
    )
    group_epoch_floor: int = Field(
        default=0, description="Group epochs of new groups are above it: the highest epoch of any removed group."
    )
    attempted_offset: tuple[int, int] | None = Field(
        default=None,
        description="Request partition and offset of the one message that is applied next, after repeated takeovers.",
    )
