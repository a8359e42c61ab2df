"""LogOffsets messages: built from looks at the log, small enough for the request log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sharegroup.logs.port import Log, PartitionOffsets
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import (
    UNINITIALIZED_OFFSET,
    LogOffsets,
    PartitionLogOffsets,
    TopicLogOffsets,
)
from sharegroup.protocol.messages import RequestEnvelope, request

PARTITIONS_PER_MESSAGE = 50_000
"""They take 9 MB at most, and less than the request topic's 16 MiB."""


def log_offsets_messages(
    group_ids: Iterable[str], leader_epoch: int, topics: Iterable[TopicLogOffsets]
) -> list[RequestEnvelope]:
    """Build the messages that tell each of some groups the same; they share their bodies."""
    bodies = [LogOffsets(topics=portion) for portion in _portions(topics)]
    first_of = [request(ApiKey.LOG_OFFSETS, "", body, leader_epoch=leader_epoch) for body in bodies]
    return [first.model_copy(update={"group_id": group_id}) for group_id in group_ids for first in first_of]


def topic_log_offsets(
    topic: str,
    topic_id: str,
    partition_count: int,
    sequence: int,
    offsets: Mapping[int, PartitionOffsets] | None = None,
    reset_offsets: Mapping[int, int] | None = None,
) -> TopicLogOffsets:
    """Build what one look has seen of a topic."""
    return TopicLogOffsets(
        topic=topic,
        topic_id=topic_id,
        partition_count=partition_count,
        partitions=[
            PartitionLogOffsets(
                partition_index=partition,
                start_offset=seen.start_offset,
                end_offset=seen.end_offset,
                last_stable_offset=seen.last_stable_offset,
                reset_offset=(reset_offsets or {}).get(partition, UNINITIALIZED_OFFSET),
            )
            for partition, seen in sorted((offsets or {}).items())
        ],
        sequence=sequence,
    )


def _portions(topics: Iterable[TopicLogOffsets]) -> Iterator[list[TopicLogOffsets]]:
    """Yield the topics as lists that one message each has room for; large topics are divided."""
    portion: list[TopicLogOffsets] = []
    room = PARTITIONS_PER_MESSAGE
    for topic in topics:
        rest = topic.partitions
        while len(rest) > room:
            yield [*portion, topic.model_copy(update={"partitions": rest[:room]})]
            portion, rest, room = [], rest[room:], PARTITIONS_PER_MESSAGE
        portion.append(topic.model_copy(update={"partitions": rest}))
        room -= len(rest)
    if portion:
        yield portion


def reset_offsets(log: Log, topic: str, partitions: Iterable[int], duration_ms: int | None) -> dict[int, int]:
    """Return where `share.auto.offset.reset` by duration starts partitions, by the log's time; nothing without one.

    Raises:
        UnknownTopicError: the topic was deleted meanwhile.
        LogError: it cannot be looked at.
    """
    if duration_ms is None:
        return {}
    since_ms = log.now_ms() - duration_ms
    return {partition: log.offset_for_time(topic, partition, since_ms) for partition in partitions}
