"""Payloads of the rows of a table snapshot: the whole state of all groups, as of one commit."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sharegroup.protocol.group_status import GroupStatusPayload
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import Message
from sharegroup.protocol.row_payloads import LastRequest


class TableSnapshotPayload(Message):
    """Payload of the snapshot's first row, which belongs to no group: the last commit that is in the snapshot."""

    leader_epoch: int = Field(description="Leader epoch of the commit.")
    commit_id: int = Field(description="Its id.")
    commit_time_ms: int = Field(description="Its time; epoch ms.")
    marker: CommitMarkerPayload = Field(description="Payload of its marker.")


class GroupSnapshotPayload(Message):
    """Payload of a group's row."""

    records: list[dict[str, Any]] = Field(description="Records that make the group's metadata from nothing.")
    status: list[GroupStatusPayload] = Field(default_factory=list, description="Last status of each actor.")
    last_requests: list[LastRequest] = Field(
        default_factory=list, description="The last request with a durable effect of each member."
    )


class PartitionSnapshotPayload(Message):
    """Payload of a share-partition's row; its columns hold the rest, as those of a ShareSnapshot do."""

    updates_since_snapshot: int = Field(description="ShareUpdate rows since the last ShareSnapshot.")
    request_offset: int = Field(description="The last message that its last row reflects.")
    snapshot_time_ms: int = Field(default=0, description="Time of its last ShareSnapshot; epoch ms.")
    rejected: list[tuple[int, int]] = Field(
        default_factory=list, description="First and last offset of what is ARCHIVING because it was rejected."
    )


class PrunedPayload(Message):
    """Payload of a Pruned row: commits up to this one are known by the table snapshot of it only."""

    leader_epoch: int = Field(description="Leader epoch of the last commit whose rows were deleted.")
    commit_id: int = Field(description="Its id.")
    before_ms: int = Field(description="End of the audit retention when it was done; epoch ms.")
    row_count_by_type: dict[str, int] = Field(description="Record type to deleted rows.")
