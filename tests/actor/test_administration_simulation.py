"""Random lives of a group whose topics come and go, which administrators change, and which crashes: all must agree."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlterShareGroupOffsetsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
)
from sharegroup.protocol.messages import RequestEnvelope, decoded_request
from sharegroup.state.fold import fold
from tests.actor.group_harness import LogPartition, Member, PartitionKey, group_with
from tests.actor.simulated_group import LoggedBytes
from tests.support.examples import examples

TOPICS = ("orders", "payments")
NAMES = ("anna", "ben")
TOPIC = st.sampled_from(TOPICS)
MEMBER = st.sampled_from(NAMES)
RETENTION_MS = 60_000


class AdministeredGroup(RuleBasedStateMachine):
    """Two members, two topics, and an administrator; batches run when the machine says so."""

    def __init__(self) -> None:
        super().__init__()
        broker = BrokerConfig(
            share_coordinator_snapshot_update_records_per_snapshot=2, offsets_retention_minutes=RETENTION_MS // 60_000
        )
        self.group = group_with(10, 10, broker=broker)
        self.members = {name: Member(self.group, name, TOPICS) for name in NAMES}
        self.topic_number = 0
        self.epoch_begins = 0
        """Where in the request log the present processor began; messages of older ones do not reach the actors."""

    @rule(name=MEMBER, settles=st.booleans())
    def join(self, name: str, settles: bool) -> None:
        self.members[name].send_heartbeat(0, TOPICS)
        self.run(settles)

    @rule(name=MEMBER, settles=st.booleans())
    def leave(self, name: str, settles: bool) -> None:
        self.members[name].send_heartbeat(-1)
        self.run(settles)

    @rule(name=MEMBER, acknowledge_type=st.sampled_from([AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE]))
    def take_and_acknowledge(self, name: str, acknowledge_type: AcknowledgeType) -> None:
        member = self.members[name]
        fetched = member.fetch(self.all_partitions(), epoch=0, max_records=5, max_wait_ms=0)
        if fetched.response is not None and not fetched.error_code:
            member.acknowledge(
                {
                    key: [(first, last, acknowledge_type) for first, last, _ in ranges][:1]
                    for key, ranges in fetched.acquired.items()
                }
            )

    @rule(topic=TOPIC, partition=st.integers(0, 2), start_offset=st.integers(0, 15), settles=st.booleans())
    def alter(self, topic: str, partition: int, start_offset: int, settles: bool) -> None:
        partitions = [{"partition_index": partition, "start_offset": start_offset}]
        body = AlterShareGroupOffsetsRequest.model_validate(
            {"topics": [{"topic_name": topic, "partitions": partitions}]}
        )
        self.group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, body)
        self.run(settles)

    @rule(topic=TOPIC, settles=st.booleans())
    def delete_offsets(self, topic: str, settles: bool) -> None:
        body = DeleteShareGroupOffsetsRequest.model_validate({"topics": [{"topic_name": topic}]})
        self.group.send_as_admin(ApiKey.DELETE_SHARE_GROUP_OFFSETS, body)
        self.run(settles)

    @rule(settles=st.booleans())
    def delete_group(self, settles: bool) -> None:
        self.group.send_as_admin(ApiKey.DELETE_GROUPS, DeleteGroupsRequest())
        self.run(settles)

    @rule(topic=TOPIC, count=st.integers(1, 3))
    def create_topic(self, topic: str, count: int) -> None:
        """Another topic of the name, or one that is new."""
        self.topic_number += 1
        self.group.create_topic(topic, f"{topic}-{self.topic_number}", [LogPartition(end=10)] * count)

    @rule(topic=TOPIC)
    def delete_topic(self, topic: str) -> None:
        if topic in self.group.topics:
            self.group.delete_topic(topic)

    @rule(topic=TOPIC)
    def add_partition(self, topic: str) -> None:
        if topic in self.group.topics:
            topic_id, partitions = self.group.topics[topic]
            self.group.create_topic(topic, topic_id, [*partitions, LogPartition(end=4)])

    @rule(back=st.integers(1, 4))
    def repeat_internal_message(self, back: int) -> None:
        """As a log does that appends a message twice."""
        value = self.group.log[-min(back, len(self.group.log))].value
        if decoded_request(value).api_key in (ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.TICK, ApiKey.LOG_OFFSETS):
            self.group.append(value)

    @rule(back=st.integers(1, 40))
    def bring_a_late_lookup(self, back: int) -> None:
        """As when lookups of several threads overtake each other."""
        logged = self.group.log[self.epoch_begins :][-back:]
        lookups = [message.value for message in logged if _logged_request(message).api_key == ApiKey.LOG_OFFSETS]
        if lookups:
            self.group.append(lookups[0])

    @rule()
    def repeat_a_request_of_the_administrator(self) -> None:
        requests = [logged.value for logged in self.group.log if _logged_request(logged).member_id == "admin"]
        if requests:
            self.group.append(requests[-1])

    @rule(count=st.integers(1, 3))
    def run_batch(self, count: int) -> None:
        if self.group.pending_count:
            self.group.run_batch(count=count)

    @rule(duration_ms=st.sampled_from([500, 20_000, RETENTION_MS]))
    def let_time_pass(self, duration_ms: int) -> None:
        self.group.advance(duration_ms)

    @rule()
    def crash(self) -> None:
        """The processor ends before it sends the messages of the last cut."""
        if self.group.rows:
            self.group.drop_pending()
            self.group.restart()
            self.epoch_begins = len(self.group.log)

    def run(self, settles: bool) -> None:
        if settles:
            self.group.settle()

    def all_partitions(self) -> list[PartitionKey]:
        return [
            (topic_id, partition)
            for topic_id, partitions in self.group.topics.values()
            for partition in range(len(partitions))
        ]

    def teardown(self) -> None:
        group = self.group
        group.append_tick()
        group.settle()
        assert group.actors.failure == ""
        responses = Counter(response.correlation_id for response in group.responses if response.member_id == "admin")
        asked = Counter(
            request.correlation_id for request in map(_logged_request, group.log) if request.member_id == "admin"
        )
        assert all(responses[number] <= count for number, count in asked.items())
        rows = group.rows[::-1]
        assert verify(rows, group.context.broker).findings == []
        folded = fold(rows).groups.get(group.group_id)
        live = {} if folded is None else {key: led.share_partition for key, led in folded.partitions.items()}
        topics = group.coordinator.group.state.topics
        assert ([] if folded is None else folded.metadata.records()) == group.coordinator.group.state.records()
        assert not any(topic.deleting or topic.initializing for topic in topics.values())
        has_state = {(topic_id, partition) for topic_id, topic in topics.items() for partition in topic.initialized}
        led = {key: partition.share_partition for key, partition in group.leader.partitions.items()}
        assert live.keys() == led.keys() == has_state
        assert [share_partition.runs for share_partition in live.values()] == [led[key].runs for key in live]
        present = {topic_id for topic_id, _ in group.topics.values()}
        assert topics.keys() <= present


def _logged_request(logged: LoggedBytes) -> RequestEnvelope:
    return decoded_request(logged.value)


TestAdministeredGroup = pytest.mark.slow(AdministeredGroup.TestCase)
TestAdministeredGroup.settings = settings(
    max_examples=examples(40), stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
