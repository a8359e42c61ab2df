"""A group whose actors failed, while it is restored from its rows: which messages wait, and where it is quarantined."""

from __future__ import annotations

from dataclasses import dataclass, field

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.mailbox import ActorFailedError
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.rows import StateRow


@dataclass
class Rebuild:
    """A group that is being rebuilt.

    Attributes:
        group_id: the group.
        partition: its request partition.
        messages: messages that are not applied yet, in order, from the messages of the cut that failed on.
        bad: index of each message at which the group is quarantined → the actor that failed, and the reason.
        rows: the rows of the group in the state table, once they have been read.
    """

    group_id: str
    partition: int
    messages: list[LoggedRequest]
    bad: dict[int, tuple[ActorRole, str]] = field(default_factory=dict)
    rows: list[StateRow] | None = field(default=None)

    @property
    def reason(self) -> str:
        """Return the reason of the first failure."""
        return self.bad[min(self.bad)][1]

    def fail(self, failed: ActorFailedError) -> int:
        """Have the group quarantined at one more message, and return its index.

        A failure at the end of a cut has no single cause: the group stops before the first message, then before each
        that would resume it.

        Raises:
            ActorFailedError: no message is left; the actors fail without any.
        """
        if failed.message is not None:
            index = self.messages.index(failed.message)
        else:
            resuming = (i for i, m in enumerate(self.messages) if m.envelope.api_key == ApiKey.RESUME_SHARE_GROUP)
            index = next((i for i in (0, *resuming) if i not in self.bad), -1)
        if index < 0 or index in self.bad:
            raise failed
        self.bad[index] = failed.role, f"{type(failed.__cause__).__name__}: {failed.__cause__}"
        return index
