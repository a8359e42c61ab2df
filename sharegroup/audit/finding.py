"""What an audit finds: an invariant that does not hold, and where."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.invariants import Violation


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation, and the row that shows it.

    Attributes:
        place: group and share-partition, or batch, of the row.
        violation: what does not hold.
        request_offset: the row's message in the request log; -1 when it has none.
    """

    place: str
    violation: Violation
    request_offset: int = -1

    def __str__(self) -> str:
        where = self.place if self.request_offset < 0 else f"{self.place} at request offset {self.request_offset}"
        return f"{where}: {self.violation.invariant}: {self.violation.detail}"
