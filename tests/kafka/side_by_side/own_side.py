"""The share groups of this package: its ShareConsumer, and its state table, with the processor's actors behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharegroup.client import share_consumer
from sharegroup.client.admin import AdminClient
from sharegroup.logs.kafka_log import KafkaLog
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from tests.kafka.side_by_side.member import ShareConsumer
from tests.kafka.side_by_side.outcome import PartitionState

FETCH_MAX_WAIT_MS = 500
"""That of Kafka's consumers, where our default is longer: a fetch of a killed member must not outlive its locks."""


class OwnSide:
    """Groups whose processor runs, and keeps its rows in a table."""

    name = "here"
    consumer_class = "sharegroup.client.share_consumer:ShareConsumer"

    def __init__(self, bootstrap_servers: str, log: KafkaLog, table: StateTableReader) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.log = log
        self.table = table

    def configure(self, group_id: str, config: Mapping[str, str]) -> None:
        AdminClient(self.log).alter_group_config(group_id, config)

    def consumer(self, config: dict[str, Any]) -> ShareConsumer:
        return share_consumer.ShareConsumer(self.consumer_config(config))

    def consumer_config(self, config: dict[str, Any]) -> dict[str, Any]:
        # Where the default is not set, polls would begin with one record.
        return {"fetch.max.wait.ms": FETCH_MAX_WAIT_MS, "max.poll.records": 500, **config}

    def states(self, group_id: str, topic_id: str, partition_count: int) -> dict[int, PartitionState]:
        rows = self.table.rows(None, group_id)
        states = {partition: PartitionState() for partition in range(partition_count)}
        for (folded_id, partition), folded in fold(rows).groups[group_id].partitions.items():
            assert folded_id == topic_id
            states[partition].start_offset = folded.share_partition.start_offset
        for row in rows:
            for entry in row.transitions:
                if entry.to_state.is_persisted:
                    for offset in range(entry.first_offset, entry.last_offset + 1):
                        states[row.partition].records[offset] = entry.to_state, entry.delivery_count
        return states
