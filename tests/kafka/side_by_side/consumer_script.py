"""Works through the numbers of a topic, once each: `consumer_script.py ADDRESS GROUP TOPIC COUNT`."""

import sys
from typing import TypeVar

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer, TopicPartition

T = TypeVar("T")

address, group_id, topic, count = sys.argv[1:]
config = {
    "bootstrap.servers": address,
    "group.id": group_id,
    "share.acknowledgement.mode": "explicit",
    "max.poll.records": 100,
}
committed: set[tuple[str, int, int]] = set()


def on_commit(offsets: dict[TopicPartition, set[int]], exception: KafkaException | None) -> None:
    for partition, acknowledged in offsets.items():
        committed.update((partition.topic, partition.partition, offset) for offset in acknowledged if exception is None)


def known(field: T | None) -> T:
    """A field of a record that was delivered, which has them all."""
    assert field is not None
    return field


finished: dict[int, str] = {}
with ShareConsumer(config) as consumer:
    consumer.set_acknowledgement_commit_callback(on_commit)
    consumer.subscribe([topic])
    while len(finished) < int(count):
        for message in consumer.poll(timeout=1.0):
            if message.error():
                raise SystemExit(str(message.error()))
            number, delivery_count = int(known(message.value())), known(message.delivery_count())
            if number % 5 == 4:
                finished[number] = f"rejected at delivery {delivery_count}"
                consumer.acknowledge(message, AcknowledgeType.REJECT)
            elif number % 5 > delivery_count:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                finished[number] = f"accepted at delivery {delivery_count}"
                consumer.acknowledge_offset(known(message.topic()), known(message.partition()), known(message.offset()))
        for partition, error in consumer.commit_sync(timeout=60).items():
            if error is not None:
                raise SystemExit(f"{partition.topic} {partition.partition}: {error}")
    print("subscribed to", *consumer.subscription())
for number in sorted(finished):
    print(number, finished[number])
print(len(committed), "records reported")
