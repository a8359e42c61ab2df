"""Records whose locks the application renews: away until the leader has answered, then for the next poll again."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.client.message import Message
from sharegroup.client.session_events import Acknowledged
from sharegroup.core.record_state import AcknowledgeType


class Renewals:
    """Messages of renewed records (KIP-1222): of a renewal that fails the record is lost to this consumer."""

    def __init__(self) -> None:
        self._asked: dict[PartitionKey, dict[int, Message]] = {}
        self._renewed: dict[PartitionKey, list[Message]] = {}

    @property
    def are_awaited(self) -> bool:
        """Whether a renewal is not answered yet."""
        return bool(self._asked)

    def ask(self, renewal: Acknowledgement, messages: dict[int, Message]) -> None:
        """Note that a renewal is sent; `messages` has one for each of its offsets."""
        asked = self._asked.setdefault(renewal.key, {})
        asked.update((offset, messages[offset]) for offset in renewal.offsets)

    def settle(self, results: Iterable[Acknowledged]) -> None:
        """Take what the leader answered."""
        for result in results:
            for acknowledgement in result.acknowledgements:
                if acknowledgement.acknowledge_type is AcknowledgeType.RENEW:
                    self._settle(acknowledgement, result.error is None)

    def take_renewed(self) -> dict[PartitionKey, list[Message]]:
        """Remove the messages whose renewal took effect."""
        renewed, self._renewed = self._renewed, {}
        return renewed

    def _settle(self, renewal: Acknowledgement, took_effect: bool) -> None:
        asked = self._asked.get(renewal.key, {})
        messages = [asked.pop(offset) for offset in renewal.offsets if offset in asked]
        if not asked:
            self._asked.pop(renewal.key, None)
        if took_effect and messages:
            self._renewed.setdefault(renewal.key, []).extend(messages)
