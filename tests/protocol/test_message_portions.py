"""Long internal messages are divided, so that each is below the megabyte that a topic takes by default."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharegroup.core.record_state import RecordState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.imported_batches import MAX_IMPORTED_BATCHES
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    LogOffsets,
    PartitionLogOffsets,
    StatePartition,
    StateTopic,
    TopicLogOffsets,
)
from sharegroup.protocol.message_portions import topic_id_portions, topic_portions
from sharegroup.protocol.messages import MAX_NAME_LENGTH, Message, request

WELL_BELOW_BYTES = 800_000
"""Kafka's default limit of a topic is 1,048,588 bytes."""
LARGEST = 2**63 - 1
ID = "x" * 22
NAME = "n" * 249


def size_bytes(api_key: ApiKey, body: Message) -> int:
    return len(request(api_key, "g" * MAX_NAME_LENGTH, body, leader_epoch=2**31 - 1).encoded())


def log_offsets(count: int) -> TopicLogOffsets:
    partitions = [
        PartitionLogOffsets(
            partition_index=100_000 + index,
            start_offset=LARGEST,
            end_offset=LARGEST,
            last_stable_offset=LARGEST,
            reset_offset=LARGEST,
        )
        for index in range(count)
    ]
    return TopicLogOffsets(topic=NAME, topic_id=ID, partition_count=count, partitions=partitions, sequence=LARGEST)


def state_topic(count: int, batch_count: int = 0) -> StateTopic:
    batches = [
        (LARGEST - 100_000 + offset, LARGEST - 100_000 + offset, RecordState.ACKNOWLEDGED, 30_000)
        for offset in range(batch_count)
    ]
    partitions = [
        StatePartition(partition_index=100_000 + index, start_offset=LARGEST - 200_000, state_batches=batches)
        for index in range(count)
    ]
    return StateTopic(topic_id=ID, topic=NAME, partitions=partitions)


@pytest.mark.parametrize(
    ("made", "least"),
    [
        pytest.param(lambda: [log_offsets(20_000)], 4, id="a topic of many partitions"),
        pytest.param(lambda: [log_offsets(1)] * 10_000, 4, id="many topics of a partition"),
        pytest.param(lambda: [log_offsets(0)] * 10_000, 4, id="many topics without one"),
        pytest.param(
            lambda: [log_offsets(3_000), log_offsets(0), log_offsets(6_000), log_offsets(10)], 3, id="several"
        ),
        pytest.param(lambda: [log_offsets(3)], 1, id="few"),
    ],
)
def test_log_offsets(made: Callable[[], list[TopicLogOffsets]], least: int) -> None:
    topics = made()
    portions = list(topic_portions(topics))
    assert least <= len(portions) <= 3 * least
    assert max(size_bytes(ApiKey.LOG_OFFSETS, LogOffsets(topics=portion)) for portion in portions) < WELL_BELOW_BYTES
    parts = [part for portion in portions for part in portion]
    assert {(part.topic, part.partition_count, part.sequence) for part in parts} == {
        (topic.topic, topic.partition_count, topic.sequence) for topic in topics
    }
    assert [partition for part in parts for partition in part.partitions] == [
        partition for topic in topics for partition in topic.partitions
    ]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: [state_topic(30_000)], id="a topic of many partitions"),
        pytest.param(lambda: [state_topic(1)] * 10_000, id="many topics of a partition"),
        pytest.param(lambda: [state_topic(1_000, batch_count=30)], id="imported batches"),
        pytest.param(lambda: [state_topic(3, batch_count=MAX_IMPORTED_BATCHES)], id="the most batches"),
    ],
)
def test_states(made: Callable[[], list[StateTopic]]) -> None:
    topics = made()
    portions = list(topic_portions(topics))
    assert len(portions) > 1
    sizes = [
        size_bytes(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupState(state_epoch=9, topics=portion))
        for portion in portions
    ]
    assert max(sizes) < WELL_BELOW_BYTES
    assert [partition for portion in portions for part in portion for partition in part.partitions] == [
        partition for topic in topics for partition in topic.partitions
    ]


def test_topic_ids() -> None:
    topic_ids = [f"{number:022}" for number in range(60_000)]
    portions = list(topic_id_portions(topic_ids))
    assert [topic_id for portion in portions for topic_id in portion] == topic_ids
    bodies = [DeleteShareGroupState(state_epoch=9, topic_ids=portion) for portion in portions]
    assert max(size_bytes(ApiKey.DELETE_SHARE_GROUP_STATE, body) for body in bodies) < WELL_BELOW_BYTES


def test_nothing_is_no_message() -> None:
    assert list(topic_portions(list[StateTopic]())) == []
    assert list(topic_id_portions([])) == []
