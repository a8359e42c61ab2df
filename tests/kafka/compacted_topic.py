"""A topic on a broker that compacts it while a test waits."""

from __future__ import annotations

from uuid import uuid4

from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.logs.port import NewRecord


def compacted_topic(log: KafkaLog) -> str:
    """A new topic with twelve records of three keys; a segment is compacted soon after it is closed."""
    topic = log.create_topic(
        f"compacted-{uuid4().hex[:8]}",
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "max.compaction.lag.ms": "1",
            "segment.ms": "50",
        },
    ).name
    log.append(topic, 0, [NewRecord(b"%d" % (number % 3), b"%d" % number) for number in range(12)])
    return topic
