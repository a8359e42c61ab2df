"""The locks of members, as the log port has them: they end with a member's process, so that its end is detected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class MemberLock(Protocol):
    """A lock that a member holds while its process lives."""

    def close(self) -> None:
        """Release the lock: the member has left regularly."""
        ...


@dataclass(frozen=True, slots=True)
class EndedMember:
    """A member whose process has ended without leaving its group.

    Attributes:
        key: the key for `MemberLocks.forget`.
    """

    group_id: str
    member_id: str
    key: str


class MemberLocks(Protocol):
    """The locks of all members of a log, for one thread that waits for ended members."""

    def ended(self) -> list[EndedMember]:
        """Return the members whose process has ended, and that were not forgotten."""
        ...

    def forget(self, member: EndedMember) -> None:
        """Remove the files of an ended member."""
        ...

    def wait(self, timeout_ms: float) -> None:
        """Block until a member may have ended, `wake` is called, or the time is over."""
        ...

    def wake(self) -> None:
        """End the current or the next wait; any thread may call it."""
        ...

    def close(self) -> None:
        """Release all resources; no wait may be under way."""
        ...
