"""Runs of offsets that share one state. A named tuple, as all values that each request creates (`records.py`)."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.core.record_state import Cause, RecordState

NO_WRITE = -1
"""The version of the write of a record that has no open write."""


class Run(NamedTuple):
    """Touching offsets that share one state.

    Attributes:
        first_offset: first offset, inclusive.
        last_offset: last offset, inclusive.
        member_id: the member that holds the records, or held them until they were RESOLVING; else "".
        deadline_ms: "locked until" when ACQUIRED, "not before" when AVAILABLE, and when RESOLVING that of the records
            if they are not written; else 0.
        is_suspect: the last delivery that was not taken back ended without an acknowledgement of the application.
            Records that wait for a delivery may be suspects, and those on their next one.
        write_version: version of the open write to which the result of these records belongs; NO_WRITE without one.
        intended: the end of their delivery that applies if they are not written; None unless RESOLVING.
    """

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    member_id: str = ""
    deadline_ms: int = 0
    is_suspect: bool = False
    write_version: int = NO_WRITE
    intended: Cause | None = None

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1

    def cut(self, first_offset: int, last_offset: int) -> Run:
        """Return the run with other offsets."""
        return Run(first_offset, last_offset, *self[2:])

    def is_alike(self, other: Run) -> bool:
        """Return True if the two differ in nothing but their offsets."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
            and self.is_suspect is other.is_suspect
            and self.write_version == other.write_version
            and self.intended is other.intended
        )
