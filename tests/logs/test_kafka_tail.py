"""The tail of a topic whose brokers lag behind in their metadata."""

from __future__ import annotations

from contextlib import closing

import pytest

from sharegroup.config.kafka import KafkaConfig
from sharegroup.errors import UnknownTopicError
from sharegroup.logs.kafka_clients import KafkaClients
from sharegroup.logs.kafka_tail import KafkaTail
from sharegroup.logs.kafka_topics import KafkaTopics
from sharegroup.logs.log_clock import LogClock
from sharegroup.logs.missing_topic import MISSING_LOOKUPS
from sharegroup.logs.port import NewRecord, TopicIdentity
from tests.support.eventually import eventually
from tests.support.kafka_broker import KafkaBroker


class StaleTopics(KafkaTopics):
    """Topics as brokers see them that do not know them yet, for some lookups."""

    stale_lookups = 0
    lookups = 0

    def identity(self, name: str) -> TopicIdentity:
        self.lookups += 1
        if self.stale_lookups:
            self.stale_lookups -= 1
            raise UnknownTopicError(f"There is no topic {name}.")
        return super().identity(name)


@pytest.mark.long("a missing topic is certain after seconds only")
def test_lookups_that_do_not_find_the_topic_prove_nothing_before_some_in_a_row_over_seconds(
    kafka_4_3_1: KafkaBroker,
) -> None:
    clients = KafkaClients(KafkaConfig(bootstrap_servers=kafka_4_3_1.bootstrap_servers), 60_000)
    topics = StaleTopics(clients)
    with kafka_4_3_1.open_log() as log:
        log.create_topic("stale", 1)
        with closing(KafkaTail(clients, topics, LogClock(), "stale", {0: 0})) as tail:
            topics.stale_lookups = MISSING_LOOKUPS - 1
            before = topics.lookups
            eventually(lambda: tail.fetch() or topics.lookups > before + MISSING_LOOKUPS, "the topic is found again")
            log.append("stale", 0, [NewRecord(None, b"value")])
            assert [record.value for record in eventually(tail.fetch, "the record is fetched")] == [b"value"]
            topics.stale_lookups = 1_000
            with pytest.raises(UnknownTopicError):
                eventually(tail.fetch, "the topic counts as deleted")
            assert topics.stale_lookups <= 1_000 - MISSING_LOOKUPS
