"""Kafka's own share groups: confluent-kafka's ShareConsumer, and the state that the broker keeps of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.protocol.share_state_records import ShareStateRecord, decoded
from tests.kafka.side_by_side.member import ShareConsumer
from tests.kafka.side_by_side.outcome import PartitionState
from tests.support.eventually import DEADLINE_S

STATE_TOPIC = TopicPartition("__share_group_state", 0)


class BrokerSide:
    """The share groups of a broker whose state topic has one partition."""

    name = "kafka"
    consumer_class = "confluent_kafka:ShareConsumer"

    def __init__(self, bootstrap_servers: str, log: KafkaLog) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.log = log
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def configure(self, group_id: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=entries)
        for altered in self._admin.incremental_alter_configs([resource]).values():
            altered.result(DEADLINE_S)

    def consumer(self, config: dict[str, Any]) -> ShareConsumer:
        return confluent_kafka.ShareConsumer(self.consumer_config(config))

    def consumer_config(self, config: dict[str, Any]) -> dict[str, Any]:
        # Otherwise each consumer says that its class is a preview.
        return {"log_level": 3, **config}

    def states(self, group_id: str, topic_id: str, partition_count: int) -> dict[int, PartitionState]:
        """Read from the state topic, whose records nobody deletes in a test."""
        states = {partition: PartitionState() for partition in range(partition_count)}
        for record in self._state_records():
            if (record.key.group_id, record.key.topic_id) == (group_id, topic_id):
                _advance(states[record.key.partition], record)
        return states

    def _state_records(self) -> list[ShareStateRecord]:
        config = {"bootstrap.servers": self.bootstrap_servers, "group.id": uuid4().hex, "enable.auto.commit": False}
        consumer = Consumer({**config, "auto.offset.reset": "earliest"})
        try:
            _, end_offset = consumer.get_watermark_offsets(STATE_TOPIC, DEADLINE_S)
            consumer.assign([TopicPartition(STATE_TOPIC.topic, STATE_TOPIC.partition, 0)])
            records = []
            while consumer.position([STATE_TOPIC])[0].offset < end_offset:
                for message in consumer.consume(1_000, 0.5):
                    assert message.error() is None, message.error()
                    key = message.key()
                    assert key is not None
                    records.append(decoded(key, message.value()))
            return records
        finally:
            consumer.close()


def _advance(state: PartitionState, record: ShareStateRecord) -> None:
    assert record.value is not None
    if record.value.start_offset >= 0:
        state.start_offset = record.value.start_offset
    for batch in record.value.state_batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            state.records[offset] = batch.delivery_state, batch.delivery_count
