"""Messages of the dead-letter writer to the leader of a group (KIP-1191): what is written, and if writing fails."""

from __future__ import annotations

from pydantic import Field

from sharegroup.protocol.messages import Int32, Int64, Message, Name

MAX_WRITTEN_RANGES = 1_000
"""Ranges of one message: each of them is looked for in the state."""


class WrittenDeadLetters(Message):
    """Records of one share-partition whose dead letters are in their topic."""

    topic_id: Name = Field(description="Topic id of the records.")
    partition_index: Int32 = Field(ge=0, description="Their partition.")
    first_offset: Int64 = Field(ge=0, description="First offset, inclusive.")
    last_offset: Int64 = Field(ge=0, description="Last offset, inclusive.")
    state_epoch: Int32 = Field(description="Epoch of the share-partition's state that gave the records up.")


class DlqWritten(Message):
    """Dead letters are written. Names its ranges, so a repeat does no harm: nothing there is ARCHIVING any more."""

    ranges: list[WrittenDeadLetters] = Field(max_length=MAX_WRITTEN_RANGES, description="Ranges of offsets.")


class DlqStatusChanged(Message):
    """Dead letters cannot be written although it was tried again and again, or can be again."""

    failure: Name = Field(default="", description="Why they cannot be written; empty when they can.")
