"""Administrators' requests that change a group: start offsets (keys 91 and 92), all (42), archived records (10012).

The fields of the first three are those of Kafka 4.3's messages. The group is that of the envelope.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from sharegroup.protocol.imported_batches import MAX_IMPORTED_BATCHES, ImportedBatch, check_batches
from sharegroup.protocol.messages import ErrorResponse, Int64, Message, Name, PartitionIndex

MAX_ALTERED_TOPICS = 1_000
"""Topics that one request may name: each is looked up in the log."""
MAX_ALTERED_PARTITIONS = 100_000
"""Partitions of one topic that one request may name: each gets a state."""
MAX_REDRIVEN_RANGES = 10_000
"""Ranges of offsets that one redrive may name of a share-partition; each may become a run."""
StartOffset = Annotated[int, Field(ge=0, lt=2**63)]
"""A start offset that the sender chose."""


class AlteredPartition(Message):
    """A share-partition and its new start offset."""

    partition_index: PartitionIndex = Field(description="Partition.")
    start_offset: StartOffset = Field(description="The new SPSO; it may lie past the end of the log.")
    state_batches: list[ImportedBatch] = Field(
        default_factory=list,
        max_length=MAX_IMPORTED_BATCHES,
        description="Not in Kafka: records above it that another system has delivered; ascending lists of first and "
        "last offset, delivery state and delivery count.",
    )

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        check_batches(self.start_offset, self.state_batches)
        return self


class AlteredTopic(Message):
    """Share-partitions of one topic."""

    topic_name: Name = Field(description="Topic name.")
    partitions: list[AlteredPartition] = Field(max_length=MAX_ALTERED_PARTITIONS, description="Partitions, any subset.")


class AlterShareGroupOffsetsRequest(Message):
    """Request to restart share-partitions at other start offsets; the group must have no members."""

    topics: list[AlteredTopic] = Field(max_length=MAX_ALTERED_TOPICS, description="Topics.")


class AlteredPartitionResult(ErrorResponse):
    """Result for one share-partition."""

    partition_index: PartitionIndex = Field(description="Partition.")


class AlteredTopicResult(Message):
    """Results for one topic's share-partitions."""

    topic_name: Name = Field(description="Topic name.")
    topic_id: Name = Field(default="", description="Topic id; empty when the topic does not exist.")
    partitions: list[AlteredPartitionResult] = Field(description="Partitions, as in the request.")


class AlterShareGroupOffsetsResponse(ErrorResponse):
    """Results for all share-partitions; each may fail separately."""

    responses: list[AlteredTopicResult] = Field(default_factory=list, description="Topics, as in the request.")


class DeletedTopic(Message):
    """A topic whose state in the group is to be deleted."""

    topic_name: Name = Field(description="Topic name.")


class DeleteShareGroupOffsetsRequest(Message):
    """Request to delete the state of all share-partitions of some topics; the group must have no members."""

    topics: list[DeletedTopic] = Field(max_length=MAX_ALTERED_TOPICS, description="Topics.")


class DeletedTopicResult(ErrorResponse):
    """Result for one topic."""

    topic_name: Name = Field(description="Topic name.")
    topic_id: Name = Field(default="", description="Topic id; empty when the topic does not exist.")


class DeleteShareGroupOffsetsResponse(ErrorResponse):
    """Results for all topics; each may fail separately."""

    responses: list[DeletedTopicResult] = Field(default_factory=list, description="Topics, as in the request.")


class DeleteGroupsRequest(Message):
    """Request to delete the group and the state of all its share-partitions; it must have no members."""


class RedrivenRange(Message):
    """Offsets of archived records."""

    first_offset: Int64 = Field(ge=0, description="First offset, inclusive.")
    last_offset: Int64 = Field(ge=0, description="Last offset, inclusive.")


class RedrivenPartition(Message):
    """Archived records of one share-partition."""

    topic_id: Name = Field(description="Topic id.")
    partition_index: PartitionIndex = Field(description="Partition.")
    ranges: list[RedrivenRange] = Field(
        min_length=1, max_length=MAX_REDRIVEN_RANGES, description="Offsets of its records, ascending."
    )


class RedriveShareGroupRecordsRequest(Message):
    """Request to make archived records available again with delivery count 0: all of them, or none."""

    partitions: list[RedrivenPartition] = Field(
        min_length=1, max_length=MAX_ALTERED_TOPICS, description="Share-partitions, each once."
    )
    reason: Name = Field(default="", description="Reason, for people; the transitions have it.")


class RedriveShareGroupRecordsResponse(ErrorResponse):
    """Result of a redrive; with an error nothing was changed."""

    record_count: int = Field(default=0, description="Records that became available.")
