"""What the payload column of a row says, for the record types that have no module of their own."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from sharegroup.protocol.group_records import GroupRecord
from sharegroup.protocol.messages import Message


class FencePayload(Message):
    """Payload of a Fence row: the process that took over, and what its configuration fixes for ever, by key."""

    model_config = ConfigDict(extra="allow")

    pid: int = Field(description="Process id.")
    host: str = Field(description="Host name.")


class RecoveredPayload(Message):
    """Payload of a Recovered row: the new streaming checkpoint, and where it begins."""

    checkpoint_id: str = Field(description="The new checkpoint.")
    start_offsets: dict[int, int] = Field(description="Request partition to the offset that it is read from.")
    groups: int = Field(description="Number of groups that were recovered.")


class GroupMetadataPayload(Message):
    """Payload of a GroupMetadata row: what changed, in order."""

    records: list[Annotated[GroupRecord, Field(discriminator="type")]] = Field(
        description="Records, each replacing what it names."
    )


class SharePartitionPayload(Message):
    """Payload of a ShareSnapshot, ShareUpdate or ShareTransitions row."""

    log_start_offset: int = Field(default=-1, description="The log start that the SPSO followed; -1 is none.")
    rejected: list[tuple[int, int]] = Field(
        default_factory=list,
        description="ShareSnapshot only: first and last offset of what is ARCHIVING because it was rejected.",
    )
