"""A request of a share session on its way to the leader, which is sent again until it has a response."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.client.exchange import Request
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.protocol.share_fetch import (
    FINAL_EPOCH,
    SHORTEST_PATIENCE_MS,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)


@dataclass(slots=True, eq=False)
class SessionRequest:
    """A request of the session that has no response yet; a repetition is the same object.

    Attributes:
        sent_ms: time at which it was sent first; None if it did not reach the log.
        resend_at_ms: time at which it is sent again.
        since_ms: time since which the oldest of its acknowledgements has waited.
    """

    request: Request[ShareFetchRequest | ShareAcknowledgeRequest]
    acknowledgements: tuple[Acknowledgement, ...] = ()
    sent_ms: int | None = None
    resend_at_ms: int = 0
    since_ms: int = 0

    @property
    def is_final(self) -> bool:
        """True if it closes the session."""
        return self.request.body.share_session_epoch == FINAL_EPOCH

    @property
    def may_be_parked(self) -> bool:
        """True if the leader may let it wait for records; one with acknowledgements is completed at once."""
        body = self.request.body
        return isinstance(body, ShareFetchRequest) and body.max_wait_ms > 0 and not self.acknowledgements

    def sent(self, now_ms: int, timeout_ms: int) -> SessionRequest:
        """Note that it is sent, the first time or again."""
        self.sent_ms = now_ms if self.sent_ms is None else self.sent_ms
        self.resend_at_ms = now_ms + timeout_ms
        return self

    def latest_lock_start_ms(self, now_ms: int) -> int:
        """Return the latest time at which a lock that it acquired may have begun."""
        body = self.request.body
        wait_ms = max(body.max_wait_ms, SHORTEST_PATIENCE_MS) if isinstance(body, ShareFetchRequest) else 0
        return now_ms if self.sent_ms is None else min(self.sent_ms + wait_ms, now_ms)
