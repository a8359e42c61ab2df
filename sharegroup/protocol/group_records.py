"""Records of a group's metadata, as GroupMetadata rows hold them; each replaces the value that it names (KIP-932)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from sharegroup.protocol.imported_batches import ImportedBatch
from sharegroup.protocol.messages import Message


class ShareGroupMetadata(Message):
    """The group epoch: it rises with every change of members, subscriptions or topics."""

    type: Literal["ShareGroupMetadata"] = "ShareGroupMetadata"
    epoch: int = Field(description="Group epoch.")


class ShareGroupMemberMetadata(Message):
    """Subscription of a member that joined or changed it."""

    type: Literal["ShareGroupMemberMetadata"] = "ShareGroupMemberMetadata"
    member_id: str = Field(description="Member.")
    client_id: str = Field(default="", description="Free name of the client.")
    client_host: str = Field(default="", description="Host that the client runs on; empty when unknown.")
    client_process: str = Field(default="", description="Host and process id of the client; empty when unknown.")
    rack_id: str = Field(default="", description="Rack of the member; empty when unknown.")
    subscribed_topic_names: list[str] = Field(description="Topics, sorted.")


class ShareGroupMemberRemoved(Message):
    """Removal of a member that left, or whose session timed out."""

    type: Literal["ShareGroupMemberRemoved"] = "ShareGroupMemberRemoved"
    member_id: str = Field(description="Member.")
    reason: str = Field(description="left, session timeout or process ended.")


class ShareGroupTargetAssignment(Message):
    """The group epoch that the current assignment was made for."""

    type: Literal["ShareGroupTargetAssignment"] = "ShareGroupTargetAssignment"
    assignment_epoch: int = Field(description="Group epoch of the assignment.")


class ShareGroupCurrentMemberAssignment(Message):
    """Assignment of a member."""

    type: Literal["ShareGroupCurrentMemberAssignment"] = "ShareGroupCurrentMemberAssignment"
    member_id: str = Field(description="Member.")
    member_epoch: int = Field(description="Epoch of the assignment.")
    previous_member_epoch: int = Field(description="Epoch before; still accepted in heartbeats.")
    partitions: dict[str, list[int]] = Field(description="Topic id to partitions, ascending.")


class ShareGroupStatePartitionMetadata(Message):
    """Share-partitions of a topic that have their state, are getting it, or are losing it."""

    type: Literal["ShareGroupStatePartitionMetadata"] = "ShareGroupStatePartitionMetadata"
    topic: str = Field(description="Topic name.")
    topic_id: str = Field(description="Topic id.")
    partition_count: int = Field(default=0, description="Partitions that the topic had in its last observation.")
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
    state_batches: dict[int, list[ImportedBatch]] = Field(
        default_factory=dict,
        description="Initializing partition to the records above it that another system has delivered.",
    )


class ShareGroupTopicRemoved(Message):
    """End of a topic's state: none of its share-partitions has one any more."""

    type: Literal["ShareGroupTopicRemoved"] = "ShareGroupTopicRemoved"
    topic_id: str = Field(description="Topic id.")


class ShareGroupRemoved(Message):
    """Removal of the group with its dynamic configuration."""

    type: Literal["ShareGroupRemoved"] = "ShareGroupRemoved"
    reason: str = Field(description="deleted or expired.")
    epoch: int = Field(default=0, description="Its last group epoch: another group of its name begins above it.")


class ShareGroupConfig(Message):
    """The complete dynamic configuration of the group."""

    type: Literal["ShareGroupConfig"] = "ShareGroupConfig"
    overrides: dict[str, str] = Field(description="Key to value, only keys that were set.")


class ShareGroupPaused(Message):
    """Pause of the group by an administrator, or its end."""

    type: Literal["ShareGroupPaused"] = "ShareGroupPaused"
    is_paused: bool = Field(description="True if no record is acquired.")
    client_id: str = Field(default="", description="Free name of the administrator's client.")
    reason: str = Field(default="", description="Reason for the pause.")


class ShareGroupRequestWaiting(Message):
    """An administrator's request that waits for its response; a second record of it shows its progress."""

    type: Literal["ShareGroupRequestWaiting"] = "ShareGroupRequestWaiting"
    api_key: int = Field(description="Kind of the request.")
    correlation_id: int = Field(description="Chosen by the sender, repeated in the response.")
    client_id: str = Field(default="", description="Free name of the client.")
    member_id: str = Field(description="Its sender; with the correlation id it names the request.")
    reply_partition: int = Field(description="Partition of the response log; -1 asks for no response.")
    time_ms: int = Field(description="Append time of the request; epoch ms.")
    body: dict[str, Any] = Field(
        default_factory=dict, description="The request: the fields known to this release; empty once it has a response."
    )
    response: dict[str, Any] | None = Field(
        default=None, description="The response, once it is decided; it is sent when the leader has done its part."
    )
    changing: dict[str, int] = Field(
        default_factory=dict, description="Topic id to the state epoch up to which the leader has to change it first."
    )


class ShareGroupRequestCompleted(Message):
    """Response to an administrator's request: it no longer waits."""

    type: Literal["ShareGroupRequestCompleted"] = "ShareGroupRequestCompleted"
    member_id: str = Field(description="Its sender.")
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
    | ShareGroupPaused
    | ShareGroupRequestWaiting
    | ShareGroupRequestCompleted
)

_ADAPTER: TypeAdapter[GroupRecord] = TypeAdapter(Annotated[GroupRecord, Field(discriminator="type")])


def group_record(fields: dict[str, Any]) -> GroupRecord:
    """Return the record of a row's JSON payload."""
    return _ADAPTER.validate_python(fields)
