"""The division of long messages to the processor: each is below the megabyte that a topic takes by default.

The processor creates the request topic for larger messages, but an administrator may have created it before, and a
message that the topic does not take ends each processor again. Sizes are upper bounds by the digits of numbers, not
measured. One share-partition is never divided: with the most batches that can be imported it has half a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from sharegroup.protocol.internal_messages import PartitionLogOffsets, StatePartition, StateTopic, TopicLogOffsets

MAX_PORTION_BYTES = 700_000
TOPIC_BYTES = 400
"""Bytes of a topic without its partitions."""
LOG_OFFSETS_BYTES = 175
STATE_BYTES = 75
_BATCH_BYTES = 55
_TOPIC_ID_BYTES = 30

Topic = TypeVar("Topic", TopicLogOffsets, StateTopic)
Item = TypeVar("Item")


def topic_portions(topics: Iterable[Topic]) -> Iterator[list[Topic]]:
    """Yield topics in portions of one message each; large topics are divided."""
    return _portions((part for topic in topics for part in _parts(topic)), MAX_PORTION_BYTES)


def topic_id_portions(topic_ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield topic ids in portions of one message each."""
    return _portions(((topic_id, _TOPIC_ID_BYTES) for topic_id in topic_ids), MAX_PORTION_BYTES)


def _parts(topic: Topic) -> Iterator[tuple[Topic, int]]:
    """Yield a topic with some of its partitions at a time, and the bytes of each part."""
    sized = [(partition, _bytes_of(partition)) for partition in topic.partitions]
    if not sized:
        yield topic, TOPIC_BYTES
    for portion in _portions(((each, each[1]) for each in sized), MAX_PORTION_BYTES - TOPIC_BYTES):
        partitions = [partition for partition, _ in portion]
        yield topic.model_copy(update={"partitions": partitions}), TOPIC_BYTES + sum(size for _, size in portion)


def _portions(sized: Iterable[tuple[Item, int]], max_bytes: int) -> Iterator[list[Item]]:
    portion: list[Item] = []
    portion_bytes = 0
    for item, item_bytes in sized:
        if portion and portion_bytes + item_bytes > max_bytes:
            yield portion
            portion, portion_bytes = [], 0
        portion.append(item)
        portion_bytes += item_bytes
    if portion:
        yield portion


def _bytes_of(partition: PartitionLogOffsets | StatePartition) -> int:
    if isinstance(partition, PartitionLogOffsets):
        return LOG_OFFSETS_BYTES
    return STATE_BYTES + _BATCH_BYTES * len(partition.state_batches)
