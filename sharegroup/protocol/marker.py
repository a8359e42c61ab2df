"""What a BatchMarker row says: how far the request log was applied when its batch was committed."""

from __future__ import annotations

from pydantic import Field

from sharegroup.protocol.messages import Message


class BatchMarkerPayload(Message):
    """Payload of a BatchMarker row."""

    checkpoint_id: str = Field(description="The streaming checkpoint that the batch belongs to.")
    row_count: int = Field(default=-1, description="Rows of the batch, this one included; -1 is unknown.")
    end_offsets: dict[int, int] = Field(description="Request partition to the offset after its last applied message.")
