"""Sinks of members, and the writes into them (`core/open_writes.py`), in fetches and their responses; ours."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sharegroup.core.open_writes import OpenWrite
from sharegroup.protocol.messages import Int64, Message, Name, constructed

MAX_APP_ID_LENGTH = 4_096
"""Characters of an application id: it has the ids of the state, of the group and of the table."""

AppId = Annotated[str, Field(max_length=MAX_APP_ID_LENGTH)]
"""An application id of a sink's transactions."""


class Sink(Message):
    """A Delta table that a member writes its results to."""

    address: Name = Field(min_length=1, description="Path or URI.")
    table_id: Name = Field(min_length=1, description="Id of the table, from its metadata.")
    version: Int64 = Field(ge=0, description="Its version when the fetch was sent.")


class AcquisitionWrite(Message):
    """The write for the results of the records that a response acquires."""

    app_id: AppId = Field(description="Application id of its commits.")
    version: Int64 = Field(description="Offset of the fetch; it rises for ever.")


class UnresolvedWrite(Message):
    """A write that the receiver is to look up: it commits a fence with the write's transaction, then looks."""

    app_id: AppId = Field(description="Application id of its commits.")
    version: Int64 = Field(description="Offset of the fetch that acquired its records.")
    table_id: Name = Field(description="Id of the table; a table with another id has nothing of it.")
    address: Name = Field(description="Path or URI of the table.")
    sink_version: Int64 = Field(description="A commit of the write is later than this version of the table.")
    opened_ms: Int64 = Field(default=0, description="Time of the acquisition; epoch ms. 0 is just now.")

    @classmethod
    def of(cls, write: OpenWrite) -> UnresolvedWrite:
        """Return the message's form of an open write."""
        fields = write._asdict()
        return constructed(cls, **{name: fields[name] for name in cls.model_fields})
