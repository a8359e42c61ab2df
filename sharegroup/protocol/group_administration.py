"""Requests that change a group from outside: its start offsets (keys 91 and 92), or all of it (key 42).

Their fields are those of Kafka 4.3's messages. The group is that of the envelope.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sharegroup.protocol.messages import ErrorResponse, Message, Name, PartitionIndex

MAX_ALTERED_TOPICS = 1_000
"""Topics that one request may name: each is looked for in the log."""
MAX_ALTERED_PARTITIONS = 100_000
"""Partitions of one topic that one request may name: each gets a state."""
StartOffset = Annotated[int, Field(ge=0, lt=2**63)]
"""A start offset that somebody chose."""


class AlteredPartition(Message):
    """A share-partition and its new start offset."""

    partition_index: PartitionIndex = Field(description="Partition.")
    start_offset: StartOffset = Field(description="The new SPSO; it may lie past the end of the log.")


class AlteredTopic(Message):
    """Share-partitions of one topic."""

    topic_name: Name = Field(description="Topic name.")
    partitions: list[AlteredPartition] = Field(max_length=MAX_ALTERED_PARTITIONS, description="Partitions, any subset.")


class AlterShareGroupOffsetsRequest(Message):
    """Begin the state of share-partitions anew at other start offsets; the group must have no members."""

    topics: list[AlteredTopic] = Field(max_length=MAX_ALTERED_TOPICS, description="Topics.")


class AlteredPartitionResult(ErrorResponse):
    """What became of one share-partition."""

    partition_index: PartitionIndex = Field(description="Partition.")


class AlteredTopicResult(Message):
    """What became of one topic's share-partitions."""

    topic_name: Name = Field(description="Topic name.")
    topic_id: Name = Field(default="", description="Topic id; empty when the topic does not exist.")
    partitions: list[AlteredPartitionResult] = Field(description="Partitions, as in the request.")


class AlterShareGroupOffsetsResponse(ErrorResponse):
    """What became of each share-partition; they fail one by one."""

    responses: list[AlteredTopicResult] = Field(default_factory=list, description="Topics, as in the request.")


class DeletedTopic(Message):
    """A topic that the group is to forget."""

    topic_name: Name = Field(description="Topic name.")


class DeleteShareGroupOffsetsRequest(Message):
    """Delete the state of all share-partitions of some topics; the group must have no members."""

    topics: list[DeletedTopic] = Field(max_length=MAX_ALTERED_TOPICS, description="Topics.")


class DeletedTopicResult(ErrorResponse):
    """What became of one topic."""

    topic_name: Name = Field(description="Topic name.")
    topic_id: Name = Field(default="", description="Topic id; empty when the topic does not exist.")


class DeleteShareGroupOffsetsResponse(ErrorResponse):
    """What became of each topic; they fail one by one."""

    responses: list[DeletedTopicResult] = Field(default_factory=list, description="Topics, as in the request.")


class DeleteGroupsRequest(Message):
    """Delete the group and the state of all its share-partitions; it must have no members."""
