"""Records that the application got from polls, until their acknowledgements are on their way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.message import Message
from sharegroup.client.renewals import Renewals
from sharegroup.client.session_events import Acknowledged
from sharegroup.core.record_state import AcknowledgeType


class Said(NamedTuple):
    """What an application says of a record.

    Attributes:
        acknowledge_type: what is to become of it.
        redelivery_delay_ms: how long it stays away from everybody when it is released; None = as the group says.
    """

    acknowledge_type: AcknowledgeType
    redelivery_delay_ms: int | None = None


@dataclass(slots=True)
class _DeliveredPartition:
    topic_id: str
    messages: dict[int, Message] = field(default_factory=dict)
    said: dict[int, Said | None] = field(default_factory=dict)


class DeliveredRecords:
    """Offset → what the application said of it, None as long as it said nothing."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], _DeliveredPartition] = {}
        self._renewals = Renewals()

    @property
    def unacknowledged_count(self) -> int:
        """Records of which the application said nothing yet."""
        return sum(found is None for partition in self._partitions.values() for found in partition.said.values())

    @property
    def awaits_renewals(self) -> bool:
        """Whether a renewal is on its way and not answered yet."""
        return self._renewals.are_awaited

    def add(self, topic_id: str, topic: str, partition: int, messages: dict[int, Message]) -> None:
        """Note that these records, by offset, go to the application."""
        found = self._partitions.get((topic, partition))
        if found is None or found.topic_id != topic_id:
            # Of a topic that was created again nothing earlier is there to be acknowledged.
            found = self._partitions[topic, partition] = _DeliveredPartition(topic_id)
        found.messages.update(messages)
        found.said.update(dict.fromkeys(messages))

    def acknowledge(self, topic: str, partition: int, offset: int, said: Said) -> bool:
        """Note what the application says; the last word counts. False when the record is not delivered (any more)."""
        found = self._partitions.get((topic, partition))
        if found is None or offset not in found.said:
            return False
        found.said[offset] = said
        return True

    def accept_all(self) -> None:
        """Accept every record of which the application said nothing."""
        for partition in self._partitions.values():
            for offset, said in partition.said.items():
                if said is None:
                    partition.said[offset] = Said(AcknowledgeType.ACCEPT)

    def take_acknowledged(self) -> list[Acknowledgement]:
        """Remove the records that are acknowledged, as runs of which the same was said.

        Those to be renewed cannot be acknowledged until `take_renewed` has given them back.
        """
        taken: list[Acknowledgement] = []
        for key, partition in list(self._partitions.items()):
            said = {offset: found for offset, found in sorted(partition.said.items()) if found is not None}
            runs = _runs(partition.topic_id, *key, list(said.items()))
            for run in runs:
                if run.acknowledge_type is AcknowledgeType.RENEW:
                    self._renewals.ask(run, partition.messages)
            taken += runs
            partition.said = {offset: None for offset, found in partition.said.items() if found is None}
            partition.messages = {offset: partition.messages[offset] for offset in partition.said}
            if not partition.said:
                del self._partitions[key]
        return taken

    def settle(self, results: Iterable[Acknowledged]) -> None:
        """Take what the leader answered to acknowledgements."""
        self._renewals.settle(results)

    def take_renewed(self) -> list[Message]:
        """Records whose locks were renewed since the last call; they can be acknowledged again."""
        renewed: list[Message] = []
        for (topic_id, partition), messages in self._renewals.take_renewed().items():
            self.add(topic_id, messages[0].topic() or "", partition, {m.offset() or 0: m for m in messages})
            renewed += messages
        return renewed


def _runs(topic_id: str, topic: str, partition: int, said: list[tuple[int, Said]]) -> list[Acknowledgement]:
    runs: list[Acknowledgement] = []
    start = 0
    for index, (offset, (acknowledge_type, delay_ms)) in enumerate(said):
        if index + 1 == len(said) or said[index + 1] != (offset + 1, said[index][1]):
            first_offset = said[start][0]
            runs.append(
                Acknowledgement(
                    topic_id, partition, first_offset, offset, acknowledge_type, "", topic, redelivery_delay_ms=delay_ms
                )
            )
            start = index + 1
    return runs
