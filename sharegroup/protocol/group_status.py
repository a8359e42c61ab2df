"""What a GroupStatus row says: an actor of the group was quarantined, cannot do all of its work, or goes on."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.messages import Message


class GroupStatus(StrEnum):
    """Whether an actor of a group works on its messages."""

    ACTIVE = "ACTIVE"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"


class GroupStatusPayload(Message):
    """Payload of a GroupStatus row."""

    role: ActorRole = Field(description="The actor that it is about.")
    status: GroupStatus = Field(
        description="FAILED until an administrator resumes the group; DEGRADED while dead letters cannot be written."
    )
    reason: str = Field(default="", description="What failed, or that it goes on.")
