"""A share consumer whose application may return records that nobody has seen."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.message import Message
from sharegroup.client.pending_acknowledgements import RecordAcknowledgement
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.core.record_state import AcknowledgeType


class ReturningShareConsumer(ShareConsumer):
    """A share consumer in explicit mode, for a program that knows which of the polled records nobody has seen."""

    def return_unread(self, messages: Iterable[Message], reason: str) -> None:
        """Return polled records with the next request, as if they had never been acquired.

        Args:
            reason: why, for the audit trail.
        """
        unread = RecordAcknowledgement(AcknowledgeType.UNREAD, reason=reason)
        with self._entered():
            for message in messages:
                key = message.topic() or "", message.partition() or 0, message.offset() or 0
                self._delivered.acknowledge(key, unread)
