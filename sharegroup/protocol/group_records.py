"""Records of a group's metadata, as GroupMetadata rows hold them; each replaces what it names (KIP-932)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from sharegroup.protocol.messages import Message


class ShareGroupMetadata(Message):
    """The group epoch: it rises with every change of members, subscriptions or topics."""

    type: Literal["ShareGroupMetadata"] = "ShareGroupMetadata"
    epoch: int = Field(description="Group epoch.")


class ShareGroupMemberMetadata(Message):
    """A member joined or changed its subscription."""

    type: Literal["ShareGroupMemberMetadata"] = "ShareGroupMemberMetadata"
    member_id: str = Field(description="Member.")
    client_id: str = Field(default="", description="Free name of the client.")
    rack_id: str = Field(default="", description="Rack of the member; empty when unknown.")
    subscribed_topic_names: list[str] = Field(description="Topics, sorted.")


class ShareGroupMemberRemoved(Message):
    """A member left, or its session timed out."""

    type: Literal["ShareGroupMemberRemoved"] = "ShareGroupMemberRemoved"
    member_id: str = Field(description="Member.")
    reason: str = Field(description="left or session timeout.")


class ShareGroupTargetAssignment(Message):
    """The group epoch that the current assignment was made for."""

    type: Literal["ShareGroupTargetAssignment"] = "ShareGroupTargetAssignment"
    assignment_epoch: int = Field(description="Group epoch of the assignment.")


class ShareGroupCurrentMemberAssignment(Message):
    """What a member is assigned."""

    type: Literal["ShareGroupCurrentMemberAssignment"] = "ShareGroupCurrentMemberAssignment"
    member_id: str = Field(description="Member.")
    member_epoch: int = Field(description="Epoch of the assignment.")
    previous_member_epoch: int = Field(description="Epoch before; still accepted in heartbeats.")
    partitions: dict[str, list[int]] = Field(description="Topic id to partitions, ascending.")


class ShareGroupStatePartitionMetadata(Message):
    """Which share-partitions of a topic have their state, are getting it, or are losing it."""

    type: Literal["ShareGroupStatePartitionMetadata"] = "ShareGroupStatePartitionMetadata"
    topic: str = Field(description="Topic name.")
    topic_id: str = Field(description="Topic id.")
    partition_count: int = Field(default=0, description="Partitions that the topic had when it was last looked at.")
    initializing: list[int] = Field(default_factory=list, description="Partitions, ascending.")
    initialized: list[int] = Field(default_factory=list, description="Partitions, ascending.")
    deleting: list[int] = Field(default_factory=list, description="Partitions, ascending: all of the topic, or none.")
    state_epochs: dict[int, int] = Field(
        default_factory=dict, description="Initializing partition to the epoch of its new state."
    )
    start_offsets: dict[int, int] = Field(
        default_factory=dict,
        description="Initializing partition to the SPSO that it gets; without one share.auto.offset.reset decides.",
    )


class ShareGroupTopicRemoved(Message):
    """No share-partition of the topic has a state any more."""

    type: Literal["ShareGroupTopicRemoved"] = "ShareGroupTopicRemoved"
    topic_id: str = Field(description="Topic id.")


class ShareGroupRemoved(Message):
    """The group is dead: nothing is left of it, its dynamic configuration neither."""

    type: Literal["ShareGroupRemoved"] = "ShareGroupRemoved"
    reason: str = Field(description="deleted or expired.")
    epoch: int = Field(default=0, description="Its last group epoch: another group of its name begins above it.")


class ShareGroupConfig(Message):
    """The group's dynamic configuration, whole."""

    type: Literal["ShareGroupConfig"] = "ShareGroupConfig"
    overrides: dict[str, str] = Field(description="Key to value, only what was set.")


class ShareGroupRequestWaiting(Message):
    """An administrator's request waits for its answer; a second record of it tells how far it is."""

    type: Literal["ShareGroupRequestWaiting"] = "ShareGroupRequestWaiting"
    api_key: int = Field(description="Kind of the request.")
    correlation_id: int = Field(description="Chosen by the sender, repeated in the answer.")
    client_id: str = Field(default="", description="Free name of the client.")
    member_id: str = Field(description="Who sent it; with the correlation id it names the request.")
    reply_partition: int = Field(description="Partition of the response log; -1 asks for no answer.")
    time_ms: int = Field(description="Append time of the request; epoch ms.")
    body: dict[str, Any] = Field(
        default_factory=dict, description="The request: the fields known to this release; empty once it has a response."
    )
    response: dict[str, Any] | None = Field(
        default=None, description="The answer, once it is decided; it is sent when the leader has done its part."
    )
    changing: dict[str, int] = Field(
        default_factory=dict, description="Topic id to the state epoch up to which the leader has to change it first."
    )


class ShareGroupRequestAnswered(Message):
    """An administrator's request waits no more."""

    type: Literal["ShareGroupRequestAnswered"] = "ShareGroupRequestAnswered"
    member_id: str = Field(description="Who sent it.")
    correlation_id: int = Field(description="Its correlation id.")


GroupRecord = (
    ShareGroupMetadata
    | ShareGroupMemberMetadata
    | ShareGroupMemberRemoved
    | ShareGroupTargetAssignment
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
    | ShareGroupTopicRemoved
    | ShareGroupRemoved
    | ShareGroupConfig
    | ShareGroupRequestWaiting
    | ShareGroupRequestAnswered
)

_ADAPTER: TypeAdapter[GroupRecord] = TypeAdapter(Annotated[GroupRecord, Field(discriminator="type")])


def group_record(fields: dict[str, Any]) -> GroupRecord:
    """The record that a row's payload holds as JSON."""
    return _ADAPTER.validate_python(fields)
