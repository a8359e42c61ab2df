"""ShareGroupHeartbeat (key 76), the group's configuration (key 44), and the resume command (spec 003)."""

from __future__ import annotations

from pydantic import Field

from sharegroup.protocol.messages import ErrorResponse, Int32, Message, Name, PartitionIndex

MAX_ALTERED_KEYS = 100
"""Configuration keys that one request may set or delete; a group has about twenty."""
JOIN_EPOCH = 0
"""Member epoch that joins the group."""
LEAVE_EPOCH = -1
"""Member epoch that leaves the group."""


MAX_SUBSCRIBED_TOPICS = 1_000
"""Topics that one member may subscribe to: each is state, and is looked up in the log."""


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Name = Field(description="Topic id.")
    topic: Name = Field(default="", description="Topic name, so that a member needs no lookup.")
    partitions: list[PartitionIndex] = Field(description="Partitions, ascending.")


class ShareGroupHeartbeatRequest(Message):
    """Request to join, stay in, or leave a group. None means unchanged since the last heartbeat."""

    member_epoch: Int32 = Field(description="0 joins, -1 leaves, else the epoch last received.")
    rack_id: Name | None = Field(default=None, description="Rack of the member; None is unchanged.")
    client_host: Name | None = Field(default=None, description="Host that the client runs on; None is unchanged.")
    client_process: Name = Field(
        default="",
        description="Host and process id of the client: members of one process die together. Counts when it joins.",
    )
    subscribed_topic_names: list[Name] | None = Field(
        default=None, max_length=MAX_SUBSCRIBED_TOPICS, description="Topics; None is unchanged."
    )
    has_sink: bool = Field(
        default=False, description="True if the member's results are written to its sink exactly once. Ours."
    )


class MemberAlive(Message):
    """Sign of life of a member that holds records and sends no other request; it gets no response.

    The helper process of the member's process sends it. From the first one on, the silence of the member counts.
    """


class ShareGroupHeartbeatResponse(ErrorResponse):
    """Epoch and assignment of a member."""

    member_epoch: Int32 = Field(default=0, description="To be sent with the next heartbeat.")
    heartbeat_interval_ms: Int32 = Field(default=5000, ge=0, description="Time to the next heartbeat, in ms.")
    assignment: list[TopicPartitions] | None = Field(default=None, description="None is unchanged.")
    state_id: str = Field(default="", description="Id of the processor's state table; leader epochs of one table rise.")
    write_expiry_ms: Int32 = Field(
        default=0,
        description="share.exactly.once.write.expiry.ms of a group that writes exactly once; 0 in all others. Ours.",
    )


class AlterGroupConfigRequest(Message):
    """Request to set or delete dynamic configuration of the group (IncrementalAlterConfigs on a GROUP resource)."""

    set: dict[Name, Name] = Field(default_factory=dict, max_length=MAX_ALTERED_KEYS, description="Key to new value.")
    delete: list[Name] = Field(
        default_factory=list, max_length=MAX_ALTERED_KEYS, description="Keys that go back to the broker's default."
    )


class PauseShareGroupRequest(Message):
    """Request to pause the group: it acquires nothing until it is resumed; locks keep running."""

    reason: Name = Field(default="", description="Reason, for people.")


class ResumeShareGroupRequest(Message):
    """Request to resume a paused or quarantined group."""
