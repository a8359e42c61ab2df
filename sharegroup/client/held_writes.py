"""The write of an acquisition as its member holds it: which commit of its sink has the results of its records."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.protocol.messages import constructed
from sharegroup.protocol.sink_writes import AcquisitionWrite, Sink, UnresolvedWrite


class HeldWrite(NamedTuple):
    """The write for the results of the records of one acquisition.

    Attributes:
        app_id: application id of its commits.
        version: offset of the fetch; it rises for ever.
        table_id: id of the table that the fetch named; a table with another id gets nothing of the write.
        address: path or URI of the table.
        sink_version: version of the table at the fetch: a commit of the write is a later one.
        record_count: offsets of the acquisition; a commit that has all of them need not name those that it accepts.
    """

    app_id: str
    version: int
    table_id: str
    address: str
    sink_version: int
    record_count: int

    @classmethod
    def of(cls, write: AcquisitionWrite, sink: Sink, record_count: int) -> HeldWrite:
        """Return the write of a response to a fetch.

        Args:
            sink: the table that the fetch named.
            record_count: offsets that the response acquires.
        """
        return cls(write.app_id, write.version, sink.table_id, sink.address, sink.version, record_count)

    @property
    def unresolved(self) -> UnresolvedWrite:
        """The write as one that is to be looked up."""
        return constructed(
            UnresolvedWrite,
            app_id=self.app_id,
            version=self.version,
            table_id=self.table_id,
            address=self.address,
            sink_version=self.sink_version,
        )
