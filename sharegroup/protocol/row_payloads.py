"""Payloads of the rows of the state table; that of a CommitMarker is in `marker.py`.

A table snapshot is the state of all groups, as of one commit: a first row, then a row for each group and for each
share-partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from sharegroup.core.open_writes import OpenWrite, WriteOpened
from sharegroup.protocol.api_key import ActorRole
from sharegroup.protocol.group_records import GroupRecord
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import Message, constructed

IMPORTED_FROM = "imported_from"
"""Key of the Fence row's payload in a table that an import has made: where its history comes from."""


class EarlierState(Message):
    """A state from which messages and commits are lost, since a later one began with an older copy of its table."""

    state_id: str = Field(description="Its id.")
    ended_ms: int = Field(description="Time of the copy's last commit; epoch ms. What came later is lost.")
    followed_by: str = Field(default="", description="Id of the state that began with the copy.")
    end_offsets: dict[int, int] = Field(
        default_factory=dict,
        description="Request partition to the offset up to which the copy has applied messages; without one any may be "
        "lost.",
    )


class FencePayload(Message):
    """Payload of a Fence row: the process that took over, and the permanent values of its configuration, by key."""

    model_config = ConfigDict(extra="allow")

    pid: int = Field(description="Process id.")
    host: str = Field(description="Host name.")
    broker: dict[str, Any] | None = Field(
        default=None,
        description="Defaults and bounds of all groups where they differ from the release's own, by key, so that an "
        "audit applies requests under the same ones; null is unknown.",
    )
    group_pattern: str = Field(
        default=".*",
        description="`processor.group.pattern` of the processor, so that an audit refuses the same requests.",
    )
    state_id: str = Field(
        default="",
        description="Id of the state since an older copy of the table was accepted; without one, the table's own id.",
    )
    accepted_commit_id: int = Field(
        default=-1,
        description="Last commit of the table when an administrator accepted that earlier ones are missing; -1 when "
        "none were.",
    )
    earlier_states: list[EarlierState] = Field(
        default_factory=list, description="The states before, each of which ended when an older copy was accepted."
    )


class StateOrigin(Message):
    """The other system that a row's state comes from; the values are those of its record, -1 where it has none."""

    source: str = Field(description="Kafka's record, as topic-partition@offset; or the client that imported the state.")
    start_offset: int = Field(default=-1, description="Start offset; the row's own one has passed finished records.")
    delivery_complete_count: int = Field(
        default=-1, description="Finished records at or above that offset, those of aborted transactions included."
    )
    leader_epoch: int = Field(default=-1, description="Epoch of the share-partition's leader.")
    is_new_state: bool = Field(
        default=False, description="ShareSnapshot only: True if it replaces any state before it."
    )


class GroupMetadataPayload(Message):
    """Payload of a GroupMetadata row: the changes, in order."""

    records: list[Annotated[GroupRecord, Field(discriminator="type")]] = Field(
        description="Records, each replacing the entity that it names."
    )
    origin: StateOrigin | None = Field(default=None, description="Where an imported row comes from.")


class LastRequest(Message):
    """A member's last request with a durable effect: sent again after a takeover, it only gets its response."""

    member_id: str = Field(description="The member.")
    share_session_epoch: int = Field(description="Epoch of the share session that the request had.")
    correlation_id: int = Field(description="Its correlation id.")
    refused: list[tuple[str, int, int]] = Field(
        default_factory=list,
        description="Topic id, partition and error code where its acknowledgements were refused; others succeeded.",
    )


class OpenWriteEntry(Message):
    """A write that is open in a share-partition: its records are within these offsets, and name its version."""

    version: int = Field(description="Offset of the fetch in the request log.")
    app_id: str = Field(description="Application id of its commits in the sink.")
    table_id: str = Field(description="Id of the sink's table.")
    address: str = Field(description="Path or URI of the sink.")
    sink_version: int = Field(description="Version of the sink at the fetch.")
    opened_ms: int = Field(description="Time of the acquisition; epoch ms.")
    first_offset: int = Field(description="First offset, inclusive.")
    last_offset: int = Field(description="Last offset, inclusive.")

    @classmethod
    def of(cls, opened: WriteOpened) -> OpenWriteEntry:
        """Return the entry of an engine's open write."""
        return constructed(
            cls, **opened.write._asdict(), first_offset=opened.first_offset, last_offset=opened.last_offset
        )

    @property
    def opened(self) -> WriteOpened:
        """The engine's record of it."""
        write = OpenWrite(*(getattr(self, name) for name in OpenWrite._fields))
        return WriteOpened(write, self.first_offset, self.last_offset)


class SharePartitionPayload(Message):
    """Payload of a ShareSnapshot, ShareUpdate or ShareTransitions row."""

    log_start_offset: int = Field(
        default=-1,
        description="The log start that the SPSO followed; in an imported row, the start offset of the other system "
        "that finished records do not explain. -1 is none.",
    )
    rejected: list[tuple[int, int]] = Field(
        default_factory=list,
        description="ShareSnapshot only: first and last offset of each range that is ARCHIVING since it was rejected.",
    )
    last_requests: list[LastRequest] = Field(
        default_factory=list, description="The last requests of the members that caused the row's transitions."
    )
    origin: StateOrigin | None = Field(default=None, description="Where an imported row comes from.")
    open_writes: list[OpenWriteEntry] = Field(
        default_factory=list, description="Writes that the row opens; in a ShareSnapshot, all that are open after it."
    )
    closed_writes: list[int] = Field(default_factory=list, description="Versions of the writes that the row closes.")


def opened_writes(payload: Mapping[str, Any]) -> list[WriteOpened]:
    """Return the open writes in the payload of a share-partition's row; most have none."""
    return [OpenWriteEntry.model_validate(fields).opened for fields in payload.get("open_writes", ())]


class GroupStatus(StrEnum):
    """Working status of an actor of a group."""

    ACTIVE = "ACTIVE"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"


class GroupStatusPayload(Message):
    """Payload of a GroupStatus row."""

    role: ActorRole = Field(description="The actor that it is about.")
    status: GroupStatus = Field(
        description="FAILED until an administrator resumes the group; DEGRADED while no dead-letter record is written."
    )
    reason: str = Field(default="", description="The failure, or the reason why it works again.")


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
        default_factory=list, description="First and last offset of each range that is ARCHIVING since it was rejected."
    )
    open_writes: list[OpenWriteEntry] = Field(default_factory=list, description="Its open writes.")


class PrunedPayload(Message):
    """Payload of a Pruned row: commits up to this one remain only in its table snapshot."""

    leader_epoch: int = Field(description="Leader epoch of the last commit whose rows were deleted.")
    commit_id: int = Field(description="Its id.")
    before_ms: int = Field(description="End of the audit retention when it was done; epoch ms.")
    row_count_by_type: dict[str, int] = Field(description="Record type to deleted rows.")
