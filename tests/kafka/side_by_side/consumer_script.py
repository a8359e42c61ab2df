"""Works through the numbers of a topic, once each: `consumer_script.py ADDRESS GROUP TOPIC COUNT`."""

import sys

from confluent_kafka import AcknowledgeType, ShareConsumer

address, group_id, topic, count = sys.argv[1:]
config = {
    "bootstrap.servers": address,
    "group.id": group_id,
    "share.acknowledgement.mode": "explicit",
    "max.poll.records": 100,
}
committed = set()


def on_commit(offsets, exception):
    for partition, found in offsets.items():
        committed.update((partition.topic, partition.partition, offset) for offset in found if exception is None)


finished = {}
with ShareConsumer(config) as consumer:
    consumer.set_acknowledgement_commit_callback(on_commit)
    consumer.subscribe([topic])
    while len(finished) < int(count):
        for message in consumer.poll(timeout=1.0):
            if message.error():
                raise SystemExit(str(message.error()))
            number = int(message.value())
            if number % 5 == 4:
                finished[number] = f"rejected at delivery {message.delivery_count()}"
                consumer.acknowledge(message, AcknowledgeType.REJECT)
            elif number % 5 > message.delivery_count():
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                finished[number] = f"accepted at delivery {message.delivery_count()}"
                consumer.acknowledge_offset(message.topic(), message.partition(), message.offset())
        for partition, error in consumer.commit_sync(timeout=60).items():
            if error is not None:
                raise SystemExit(f"{partition.topic} {partition.partition}: {error}")
    print("subscribed to", *consumer.subscription())
for number in sorted(finished):
    print(number, finished[number])
print(len(committed), "records answered")
