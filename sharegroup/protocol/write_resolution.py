"""ResolveWrite, key 10014, ours: what a sink says of a write (`core/open_writes.py`)."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE, CHOSEN_ENDS
from sharegroup.core.open_writes import RecordOutcome, Resolution
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.messages import ErrorResponse, Int64, Message, Name, PartitionIndex
from sharegroup.protocol.share_fetch import MAX_REDELIVERY_DELAY_MS
from sharegroup.protocol.sink_writes import AppId

MAX_RESOLVED_PARTITIONS = 10_000
"""Share-partitions that a commit may name: those of a share session."""
MAX_RESOLVED_RANGES = 100_000
"""Ranges of a share-partition that a commit may name: more do not fit into its metadata."""


class ResolvedRange(Message):
    """The acknowledgement of a range of offsets in a commit."""

    first_offset: Int64 = Field(ge=0, description="First offset, inclusive.")
    last_offset: Int64 = Field(ge=0, description="Last offset, inclusive.")
    acknowledge_type: AcknowledgeType = Field(description="Its type; not RENEW.")
    redelivery_delay_ms: Int64 | None = Field(
        default=None,
        ge=0,
        le=MAX_REDELIVERY_DELAY_MS,
        description="Delay before released or unread records are available again, in ms; null is the group's back-off "
        "for released ones, and none for unread ones.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.first_offset > self.last_offset:
            raise ValueError(f"first offset {self.first_offset} is above last offset {self.last_offset}")
        if ACKNOWLEDGE_CAUSE[self.acknowledge_type] not in CHOSEN_ENDS:
            raise ValueError(f"acknowledge type {self.acknowledge_type.name} ends no delivery")
        return self


class ResolvedPartition(Message):
    """Records of a share-partition that a commit names."""

    topic_id: Name = Field(description="Topic id.")
    partition_index: PartitionIndex = Field(description="Partition.")
    ranges: list[ResolvedRange] = Field(
        default_factory=list, max_length=MAX_RESOLVED_RANGES, description="Ranges, ascending and without overlaps."
    )

    @model_validator(mode="after")
    def _check_ascending(self) -> Self:
        last = -1
        for named in self.ranges:
            if named.first_offset <= last:
                raise ValueError(f"the range from {named.first_offset} on is not above offset {last}")
            last = named.last_offset
        return self


class ResolveWriteRequest(Message):
    """Report of what a sink says of a write, for ever; anybody may send it, once or often, early or late.

    A commit with rows names the records that are not accepted, and accepts the others. A commit of a part closes
    nothing, and names all records that it decides on. A fence alone means that nothing is written.
    """

    app_id: AppId = Field(description="Application id of the write.")
    version: Int64 = Field(description="Its version.")
    table_id: Name = Field(description="Id of the table that says so.")
    is_closed: bool = Field(description="True if nothing of the write can get into the table any more.")
    others: AcknowledgeType | None = Field(
        default=None, description="Outcome of all records that are not named: 1 accepts them; null is not written."
    )
    partitions: list[ResolvedPartition] = Field(
        default_factory=list, max_length=MAX_RESOLVED_PARTITIONS, description="Named records, by share-partition."
    )
    reason: Name = Field(default="", description="Reason of an administrator who decides without the sink.")

    @model_validator(mode="after")
    def _check_others(self) -> Self:
        if self.others not in (None, AcknowledgeType.ACCEPT):
            raise ValueError(f"others is {self.others!r}; it is 1, or null")
        if self.others is not None and not self.is_closed:
            raise ValueError("others is 1, but a part of a write says nothing of other records")
        keys = [(named.topic_id, named.partition_index) for named in self.partitions]
        if len(set(keys)) < len(keys):
            raise ValueError("a share-partition is named twice")
        return self

    @property
    def is_written(self) -> bool:
        """True if a commit of the write is in the table, and not only a fence."""
        return self.others is not None or bool(self.partitions)

    def resolutions(self) -> dict[tuple[str, int], Resolution]:
        """Return the engine's form of it, for the share-partitions that it names."""
        return {(named.topic_id, named.partition_index): self._resolution(named.ranges) for named in self.partitions}

    @property
    def resolution_of_others(self) -> Resolution:
        """The engine's form of it for a share-partition that it does not name."""
        return self._resolution([])

    def _resolution(self, ranges: list[ResolvedRange]) -> Resolution:
        outcomes = (
            (named.first_offset, named.last_offset, RecordOutcome(named.acknowledge_type, named.redelivery_delay_ms))
            for named in ranges
        )
        others = None if self.others is None else RecordOutcome(self.others)
        return Resolution(outcomes, others, is_closed=self.is_closed)


class ResolveWriteResponse(ErrorResponse):
    """Number of the records whose state it changed: none if the write is closed already, or was never opened."""

    record_count: int = Field(default=0, description="Records.")
