"""Records that the application got from polls, until their acknowledgements are on their way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client.acknowledgements import Acknowledgement
from sharegroup.client.acquisition import HeldRange
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
    said: dict[int, Said | None] = field(default_factory=dict)


class DeliveredRecords:
    """Offset → what the application said of it, None as long as it said nothing."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], _DeliveredPartition] = {}

    @property
    def unacknowledged_count(self) -> int:
        """Records of which the application said nothing yet."""
        return sum(found is None for partition in self._partitions.values() for found in partition.said.values())

    def add(self, held: HeldRange, offsets: Iterable[int]) -> None:
        """Note that these records of a range went to the application."""
        key = (held.topic, held.partition)
        partition = self._partitions.get(key)
        if partition is None or partition.topic_id != held.topic_id:
            # Of a topic that was created again nothing earlier is there to be acknowledged.
            partition = self._partitions[key] = _DeliveredPartition(held.topic_id)
        partition.said.update(dict.fromkeys(offsets))

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
        """Remove the records that are acknowledged, as runs of which the same was said."""
        taken: list[Acknowledgement] = []
        for key, partition in list(self._partitions.items()):
            said = {offset: found for offset, found in sorted(partition.said.items()) if found is not None}
            taken += _runs(partition.topic_id, *key, list(said.items()))
            partition.said = {offset: found for offset, found in partition.said.items() if found is None}
            if not partition.said:
                del self._partitions[key]
        return taken


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
