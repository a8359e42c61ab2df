"""Rows of the Delta state table: the durable state that recovery and audits fold."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from sharegroup.core.cause_rules import is_persisted_by_kafka
from sharegroup.core.record_state import TRANSITIONS, UNDECIDED_STATES, Cause, RecordState
from sharegroup.core.records import Transition
from sharegroup.core.run import NO_WRITE, Run
from sharegroup.core.state_batches import StateBatch
from sharegroup.protocol.messages import Message, constructed


class RecordType(StrEnum):
    """Kind of a row of the state table."""

    FENCE = "Fence"
    COMMIT_MARKER = "CommitMarker"
    SHARE_SNAPSHOT = "ShareSnapshot"
    SHARE_UPDATE = "ShareUpdate"
    SHARE_TRANSITIONS = "ShareTransitions"
    SHARE_TOMBSTONE = "ShareTombstone"
    GROUP_METADATA = "GroupMetadata"
    GROUP_STATUS = "GroupStatus"
    TABLE_SNAPSHOT = "TableSnapshot"
    PRUNED = "Pruned"


class StateBatchEntry(Message):
    """Offsets as Kafka persists them: no member, no deadline, never ACQUIRED."""

    first_offset: int = Field(description="First offset, inclusive.")
    last_offset: int = Field(description="Last offset, inclusive.")
    delivery_state: RecordState = Field(description="0 available, 2 acknowledged, 3 archiving, 4 archived.")
    delivery_count: int = Field(description="Delivery count.")

    @classmethod
    def of(cls, batch: StateBatch) -> StateBatchEntry:
        """Return the row entry of a state batch."""
        return constructed(
            cls,
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )

    @property
    def batch(self) -> StateBatch:
        """The state batch."""
        return StateBatch(self.first_offset, self.last_offset, self.delivery_count, self.delivery_state)


class TransitionEntry(Message):
    """One transition: member, time, cause, states, count, deadline, and the request behind it."""

    first_offset: int = Field(description="First offset, inclusive.")
    last_offset: int = Field(description="Last offset, inclusive.")
    from_state: RecordState | None = Field(description="State before; null when not in flight.")
    to_state: RecordState = Field(description="State after.")
    delivery_count: int = Field(description="Delivery count after.")
    member_id: str = Field(description="Member that holds or held the records; empty when none did.")
    deadline_ms: int = Field(
        description="Locked until (ACQUIRED), not before (AVAILABLE; RESOLVING, if not written), else 0; epoch ms."
    )
    cause: Cause = Field(description="Cause of the change.")
    is_suspect: bool = Field(
        default=False,
        description="True if the last delivery, or the one before this, ended without an acknowledgement.",
    )
    reason: str = Field(default="", description="Reason from the member, such as the cause of a gap.")
    time_ms: int = Field(description="Time of the change; epoch ms.")
    request_offset: int = Field(description="Offset of the message in the request log that caused it.")
    write_version: int = Field(default=NO_WRITE, description="Version of the open write after; -1 without one.")
    intended: Cause | None = Field(default=None, description="RESOLVING: the end if it is not written; else null.")

    @classmethod
    def of(cls, transition: Transition, time_ms: int, request_offset: int, reason: str) -> TransitionEntry:
        """Return the row entry of an engine's transition."""
        return constructed(
            cls,
            first_offset=transition.first_offset,
            last_offset=transition.last_offset,
            from_state=transition.from_state,
            to_state=transition.to_state,
            delivery_count=transition.delivery_count,
            member_id=transition.member_id,
            deadline_ms=transition.deadline_ms,
            cause=transition.cause,
            is_suspect=transition.is_suspect,
            reason=reason,
            time_ms=time_ms,
            request_offset=request_offset,
            write_version=transition.write_version,
            intended=transition.intended,
        )

    @property
    def is_persisted_by_kafka(self) -> bool:
        """True if Kafka's share coordinator would store it; see `Transition`."""
        return is_persisted_by_kafka(self.to_state, self.cause)

    @property
    def is_archived_at_limit(self) -> bool:
        """True if records were archived because their deliveries were used up."""
        if self.from_state not in UNDECIDED_STATES or self.to_state is RecordState.AVAILABLE:
            return False
        outcome = TRANSITIONS[self.from_state][self.cause]
        return outcome is not None and outcome.at_limit is not None

    @property
    def transition(self) -> Transition:
        """The engine's record of it."""
        return Transition(
            self.first_offset,
            self.last_offset,
            self.from_state,
            self.to_state,
            self.delivery_count,
            self.member_id,
            self.deadline_ms,
            self.cause,
            self.is_suspect,
            self.write_version,
            self.intended,
        )


class RunEntry(Message):
    """A run with its member and deadline, so that a snapshot shows locks."""

    first_offset: int = Field(description="First offset, inclusive.")
    last_offset: int = Field(description="Last offset, inclusive.")
    state: RecordState = Field(description="Delivery state.")
    delivery_count: int = Field(description="Delivery count.")
    member_id: str = Field(default="", description="Holder, or the last one of a RESOLVING record; else empty.")
    deadline_ms: int = Field(
        default=0, description="Locked until (ACQUIRED), not before (AVAILABLE; RESOLVING, if not written), else 0."
    )
    is_suspect: bool = Field(
        default=False,
        description="True if the last delivery, or the one before this, ended without an acknowledgement.",
    )
    write_version: int = Field(default=NO_WRITE, description="Version of the open write; -1 without one.")
    intended: Cause | None = Field(default=None, description="RESOLVING: the end if it is not written; else null.")

    @classmethod
    def of(cls, run: Run) -> RunEntry:
        """Return the row entry of an engine's run."""
        return constructed(
            cls,
            first_offset=run.first_offset,
            last_offset=run.last_offset,
            state=run.state,
            delivery_count=run.delivery_count,
            member_id=run.member_id,
            deadline_ms=run.deadline_ms,
            is_suspect=run.is_suspect,
            write_version=run.write_version,
            intended=run.intended,
        )

    @property
    def run(self) -> Run:
        """The engine's run."""
        return Run(
            self.first_offset,
            self.last_offset,
            self.state,
            self.delivery_count,
            self.member_id,
            self.deadline_ms,
            self.is_suspect,
            self.write_version,
            self.intended,
        )


class StateRow(Message):
    """One row of the append-only state table.

    A cut makes at most one row for each state of a share-partition that it touched, and one GroupMetadata row for
    each group whose metadata changed. A commit has the rows of its cuts and one CommitMarker. Rows of a group are in
    the order of `request_offset`.
    """

    record_type: RecordType = Field(description="Kind of the row.")
    date: str = Field(default="", description="UTC date of time_ms, the table's partition column.")
    commit_id: int = Field(default=-1, description="The commit; rises for the table's life; -1 outside of commits.")
    leader_epoch: int = Field(default=-1, description="Epoch of the processor that wrote the row.")
    group_id: str = Field(default="", description="Share group; empty for Fence and CommitMarker.")
    topic_id: str = Field(default="", description="Topic id of the share-partition.")
    topic: str = Field(default="", description="Topic name of the share-partition.")
    partition: int = Field(default=-1, description="Partition of the share-partition.")
    request_partition: int = Field(default=-1, description="Partition of the request log.")
    request_offset: int = Field(default=-1, description="Last message of the cut that the actor applied.")
    time_ms: int = Field(default=0, description="Time of the row: the time of the cut; epoch ms.")
    state_epoch: int = Field(default=-1, description="Fencing epoch of the share-partition's state.")
    snapshot_epoch: int = Field(default=-1, description="Snapshots of the share-partition so far, from 0.")
    start_offset: int = Field(default=-1, description="SPSO after the effect.")
    delivery_complete_count: int = Field(default=-1, description="Finished records at or above the SPSO.")
    state_batches: list[StateBatchEntry] = Field(
        default_factory=list,
        description="Batches that Kafka would persist; an update has the changed ones.",
    )
    transitions: list[TransitionEntry] = Field(default_factory=list, description="Changes, in order.")
    runs: list[RunEntry] = Field(default_factory=list, description="Snapshots only: all records in flight.")
    payload: dict[str, Any] = Field(default_factory=dict, description="The rest, by record type; JSON.")

    @property
    def is_imported(self) -> bool:
        """True if another system made the state in the row."""
        return self.payload.get("origin") is not None

    @property
    def begins_imported_state(self) -> bool:
        """True if the row is the first one of a state that another system made."""
        return self.is_imported and bool(self.payload["origin"].get("is_new_state", False))

    def replaces_state(self, state_epoch: int) -> bool:
        """Return True if the row begins a new state of a share-partition, whose present one has this epoch."""
        is_new = self.state_epoch > state_epoch or self.begins_imported_state
        return self.record_type is RecordType.SHARE_SNAPSHOT and is_new
