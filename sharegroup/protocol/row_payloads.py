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


class GroupMetadataPayload(Message):
    """Payload of a GroupMetadata row: what changed, in order."""

    records: list[Annotated[GroupRecord, Field(discriminator="type")]] = Field(
        description="Records, each replacing what it names."
    )


class LastRequest(Message):
    """A member's last request with a durable effect: sent again after a takeover, it is answered and not applied."""

    member_id: str = Field(description="The member.")
    share_session_epoch: int = Field(description="Epoch of the share session that the request had.")
    correlation_id: int = Field(description="Its correlation id.")
    refused: list[tuple[str, int, int]] = Field(
        default_factory=list,
        description="Topic id, partition and error code where its acknowledgements were refused; others succeeded.",
    )


class SharePartitionPayload(Message):
    """Payload of a ShareSnapshot, ShareUpdate or ShareTransitions row."""

    log_start_offset: int = Field(default=-1, description="The log start that the SPSO followed; -1 is none.")
    rejected: list[tuple[int, int]] = Field(
        default_factory=list,
        description="ShareSnapshot only: first and last offset of what is ARCHIVING because it was rejected.",
    )
    last_requests: list[LastRequest] = Field(
        default_factory=list, description="The last requests of the members that caused the row's transitions."
    )
