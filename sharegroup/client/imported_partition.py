"""The state of a share-partition in another system, as a group here begins with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sharegroup.client.group_results import TopicPartition
from sharegroup.core.state_batches import StateBatch
from sharegroup.protocol.imported_batches import imported_batch

_BATCHES_PER_REQUEST = 5_000
"""A batch takes up to 50 bytes of a request, which may have a megabyte."""


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """The state that a share-partition begins with.

    Attributes:
        state_batches: records above it that were delivered, ascending; all others begin with delivery count 0.
    """

    start_offset: int
    state_batches: tuple[StateBatch, ...] = ()

    def fields(self, partition: int) -> dict[str, Any]:
        """Return the fields of a request, for the partition of this number."""
        fields: dict[str, Any] = {"partition_index": partition, "start_offset": self.start_offset}
        if self.state_batches:
            fields["state_batches"] = [imported_batch(batch) for batch in self.state_batches]
        return fields


def request_parts(
    states: Mapping[TopicPartition, ImportedPartition],
) -> Iterator[dict[TopicPartition, ImportedPartition]]:
    """Yield the share-partitions in parts that each fit into a request."""
    part: dict[TopicPartition, ImportedPartition] = {}
    count = 0
    for key, state in states.items():
        if part and count + len(state.state_batches) > _BATCHES_PER_REQUEST:
            yield part
            part, count = {}, 0
        part[key] = state
        count += len(state.state_batches)
    if part:
        yield part
