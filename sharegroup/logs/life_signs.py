"""The helper of a member, as the log port has it: another process, which shows that the member's process lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LifeSigns:
    """The messages that a helper process appends for a member.

    Attributes:
        topic: the request topic.
        partition: the partition of the member's group.
        key: key of both messages.
        alive: sign of life of a member that holds records.
        ended: report that the member's process has ended.
    """

    topic: str
    partition: int
    key: bytes
    alive: bytes
    ended: bytes


class MemberHelper(Protocol):
    """Another process, which speaks for a member while this one's interpreter is busy, and after its end."""

    def note(self, *, holds_records: bool, has_sent: bool) -> None:
        """Note, before the application gets any records, whether the member holds some.

        Args:
            has_sent: True if the member sends a request now, so that it needs no sign of life.
        """
        ...

    def close(self) -> None:
        """End the help: the member has left regularly. It may be called more than once."""
        ...
