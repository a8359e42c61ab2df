"""Requests of administrators to a group: altering and deleting its start offsets, and deleting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sharegroup.actor.administration import MAX_WAIT_MS, MAX_WAITING_REQUESTS
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    InvalidRecordStateError,
    InvalidRequestError,
    NonEmptyGroupError,
    RequestTimedOutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
)
from sharegroup.protocol.group_messages import PauseShareGroupRequest
from sharegroup.protocol.messages import Message
from sharegroup.protocol.rows import RecordType
from sharegroup.state.fold import fold
from tests.actor.group_harness import (
    Group,
    LogPartition,
    Member,
    PartitionKey,
    group_with,
    joined,
    metadata,
    start_offsets,
)

ORDERS_0, ORDERS_1 = ("orders-id", 0), ("orders-id", 1)
UNKNOWN = UnknownTopicOrPartitionError.code


def alteration(offsets: Mapping[str, Mapping[int, int]]) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest.model_validate(
        {
            "topics": [
                {
                    "topic_name": topic,
                    "partitions": [{"partition_index": p, "start_offset": offset} for p, offset in partitions.items()],
                }
                for topic, partitions in offsets.items()
            ]
        }
    )


def deletion(*topics: str) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest.model_validate({"topics": [{"topic_name": topic} for topic in topics]})


def altered(group: Group, offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    """Topic → partition → error code."""
    response = group.response_to(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration(offsets))
    assert not response.get("error_code"), response
    return {
        topic["topic_name"]: {p["partition_index"]: p.get("error_code", 0) for p in topic["partitions"]}
        for topic in response["responses"]
    }


def deleted(group: Group, *topics: str) -> dict[str, tuple[int, str]]:
    """Topic → error code and message."""
    response = group.response_to(ApiKey.DELETE_SHARE_GROUP_OFFSETS, deletion(*topics))
    assert not response.get("error_code"), response
    return {
        topic["topic_name"]: (topic.get("error_code", 0), topic.get("error_message", ""))
        for topic in response["responses"]
    }


def state_epochs(group: Group) -> dict[PartitionKey, int]:
    return {key: led.share_partition.state_epoch for key, led in group.leader.partitions.items()}


def empty_group(*partitions: LogPartition | int, broker: BrokerConfig | None = None) -> Group:
    """A group that has read from its topic and has no members any more; 4 records of partition 0 are in flight."""
    group = group_with(*partitions, broker=broker)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=8)
    anna.acknowledge({ORDERS_0: [(0, 3, AcknowledgeType.ACCEPT)]})
    anna.leave()
    return group


def check_rows(group: Group) -> None:
    """The rows add up to what is live, and break no invariant, wherever they lie in the table."""
    rows = group.rows[::-1]
    assert verify(rows, group.context.broker).findings == []
    folded = fold(rows).groups.get(group.group_id)
    live = (
        {} if folded is None else {key: partition.share_partition.runs for key, partition in folded.partitions.items()}
    )
    assert live == {key: led.share_partition.runs for key, led in group.leader.partitions.items()}
    assert ([] if folded is None else folded.metadata.records()) == metadata(group).records()


class TestAlteringOffsets:
    def test_a_new_state_takes_the_place_of_the_old_one(self) -> None:
        group = empty_group(20)
        before, epochs = state_epochs(group)[ORDERS_0], group.leader.partitions[ORDERS_0].epochs
        assert altered(group, {"orders": {0: 2}}) == {"orders": {0: 0}}
        led = group.leader.partitions[ORDERS_0]
        assert (led.share_partition.start_offset, list(led.share_partition.runs)) == (2, [])
        assert led.share_partition.state_epoch == metadata(group).group_epoch - 1 > before
        assert led.epochs.snapshot_epoch == epochs.snapshot_epoch + 1
        row = group.rows_of(RecordType.SHARE_SNAPSHOT)[-1]
        assert (row.start_offset, row.delivery_complete_count, row.state_batches, row.runs) == (2, 0, [], [])
        check_rows(group)

    def test_members_that_come_back_begin_there_with_the_first_delivery(self) -> None:
        group = empty_group(20, 20)
        altered(group, {"orders": {0: 2}})
        (ben,) = joined(group, "ben")
        assert ben.fetch(max_records=3).acquired == {ORDERS_0: [(2, 4, 1)]}
        check_rows(group)

    def test_each_share_partition_fails_by_itself(self) -> None:
        group = empty_group(20, 20)
        assert altered(group, {"orders": {0: 5, 9: 0}, "nothing": {0: 1}, "?": {0: 1}}) == {
            "orders": {0: 0, 9: UNKNOWN},
            "nothing": {0: UNKNOWN},
            "?": {0: UNKNOWN},
        }
        assert start_offsets(group) == {ORDERS_0: 5, ORDERS_1: 0}

    def test_a_group_is_made_by_it(self) -> None:
        group = group_with(20, 20, earliest=False)
        assert altered(group, {"orders": {1: 7}}) == {"orders": {1: 0}}
        assert (metadata(group).name, start_offsets(group)) == ("Empty", {ORDERS_1: 7})
        check_rows(group)

    def test_what_was_not_altered_begins_where_the_log_ends_when_a_member_comes(self) -> None:
        group = group_with(20, 20, earliest=False)
        altered(group, {"orders": {1: 7}})
        group.grow("orders", 0, 5)
        joined(group, "anna")
        assert start_offsets(group) == {ORDERS_0: 25, ORDERS_1: 7}

    def test_an_offset_past_the_end_waits_for_the_log(self) -> None:
        group = empty_group(20)
        altered(group, {"orders": {0: 30}})
        (ben,) = joined(group, "ben")
        parked = ben.send_fetch(max_wait_ms=40_000)
        group.settle()
        group.grow("orders", 0, 12)
        assert ben.fetched(parked).acquired == {ORDERS_0: [(30, 31, 1)]}

    def test_a_group_with_members_stays_as_it_is(self) -> None:
        group = group_with(20)
        joined(group, "anna")
        before = start_offsets(group), len(group.rows)
        assert group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration({"orders": {0: 5}})) == NonEmptyGroupError.code
        assert (start_offsets(group), len(group.rows)) == before

    def test_a_member_that_joins_while_topics_are_looked_up_comes_first(self) -> None:
        group = group_with(20)
        asked = group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration({"orders": {0: 5}}))
        group.run_batch()
        Member(group, "anna").join()
        (response,) = group.responses_to_admin(asked)
        assert response["error_code"] == NonEmptyGroupError.code

    def test_a_late_acknowledgement_of_the_old_state_is_refused(self) -> None:
        group = group_with(20)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=8)
        anna.leave()
        altered(group, {"orders": {0: 2}})
        acknowledgements = {ORDERS_0: [(4, 7, AcknowledgeType.ACCEPT)]}
        assert anna.acknowledge(acknowledgements).acknowledge_errors == {ORDERS_0: InvalidRecordStateError.code}

    def test_what_happened_in_the_same_batch_is_kept(self) -> None:
        group = group_with(20)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=8)
        anna.send_heartbeat(-1)
        group.settle()
        group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration({"orders": {0: 6}}))
        anna.send_acknowledge({ORDERS_0: [(0, 3, AcknowledgeType.ACCEPT)]})
        group.run_batch(count=1)
        rows = group.run_batch().rows
        assert [(row.record_type, row.start_offset, len(row.transitions)) for row in rows] == [
            (RecordType.SHARE_UPDATE, 4, 1),
            (RecordType.SHARE_SNAPSHOT, 6, 0),
        ]
        group.settle()
        check_rows(group)

    @pytest.mark.parametrize("start_offset", [-1, 2**63])
    def test_an_offset_that_is_none_is_refused(self, start_offset: int) -> None:
        group = empty_group(20)
        partition = AlteredPartition.model_construct(partition_index=0, start_offset=start_offset)
        topic = AlteredTopic.model_construct(topic_name="orders", partitions=[partition])
        wrong = AlterShareGroupOffsetsRequest.model_construct(topics=[topic])
        assert group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, wrong) == InvalidRequestError.code

    def test_twice_in_one_batch_the_last_one_counts(self) -> None:
        group = empty_group(20)
        asked = [
            group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration({"orders": {0: offset}}))
            for offset in (5, 6)
        ]
        group.settle()
        assert all(group.responses_to_admin(number) for number in asked)
        assert start_offsets(group) == {ORDERS_0: 6}
        check_rows(group)


class TestDeletingOffsets:
    def test_a_tombstone_ends_the_state(self) -> None:
        group = empty_group(20, 20)
        assert deleted(group, "orders") == {"orders": (0, "")}
        assert start_offsets(group) == {}
        assert metadata(group).topics == {}
        tombstones = group.rows_of(RecordType.SHARE_TOMBSTONE)
        assert [(row.topic_id, row.topic, row.partition) for row in tombstones] == [
            ("orders-id", "orders", 0),
            ("orders-id", "orders", 1),
        ]
        check_rows(group)

    def test_the_next_member_starts_again_with_a_higher_state_epoch(self) -> None:
        group = empty_group(20)
        before = state_epochs(group)[ORDERS_0]
        deleted(group, "orders")
        (ben,) = joined(group, "ben")
        assert ben.fetch(max_records=3).acquired == {ORDERS_0: [(0, 2, 1)]}
        assert state_epochs(group)[ORDERS_0] > before
        assert group.leader.partitions[ORDERS_0].epochs.snapshot_epoch == 0
        check_rows(group)

    def test_a_late_acknowledgement_and_a_late_fetch_find_nothing(self) -> None:
        group = group_with(20)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=8)
        anna.leave()
        deleted(group, "orders")
        acknowledgements = {ORDERS_0: [(4, 7, AcknowledgeType.ACCEPT)]}
        assert anna.acknowledge(acknowledgements).acknowledge_errors == {ORDERS_0: UnknownTopicIdError.code}
        assert anna.fetch([ORDERS_0]).partitions[ORDERS_0].error_code == UnknownTopicIdError.code

    def test_each_topic_fails_by_itself(self) -> None:
        group = empty_group(20)
        group.create_topic("payments", "payments-id", [LogPartition(end=3)])
        assert deleted(group, "payments", "orders", "nothing") == {
            "payments": (UNKNOWN, "There is no offset information to delete."),
            "orders": (0, ""),
            "nothing": (UNKNOWN, "This server does not host this topic-partition."),
        }

    @pytest.mark.parametrize(
        ("group", "error"),
        [
            pytest.param(Group(), GroupIdNotFoundError, id="no group"),
            pytest.param(group_with(5), NonEmptyGroupError, id="members"),
        ],
    )
    def test_who_is_refused(self, group: Group, error: type[ApiError]) -> None:
        if error is NonEmptyGroupError:
            joined(group, "anna")
        assert group.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, deletion("orders")) == error.code
        assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == error.code

    def test_a_member_that_joins_meanwhile_gets_a_new_state(self) -> None:
        group = empty_group(20)
        asked = group.send_as_admin(ApiKey.DELETE_SHARE_GROUP_OFFSETS, deletion("orders"))
        group.run_batch()
        (ben,) = joined(group, "ben")
        assert group.responses_to_admin(asked)
        assert ben.fetch(max_records=3).acquired == {ORDERS_0: [(0, 2, 1)]}
        check_rows(group)

    def test_a_repeated_request_to_the_leader_deletes_no_newer_state(self) -> None:
        group = empty_group(20)
        deleted(group, "orders")
        repeated = [record.value for record in group.log if b'"api_key":86' in record.value]
        joined(group, "ben")
        for value in repeated:
            group.append(value)
        group.settle()
        assert start_offsets(group) == {ORDERS_0: 0}


class TestDeletingAGroup:
    def test_nothing_is_left_of_it(self) -> None:
        group = empty_group(20, 20)
        assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
        assert (metadata(group).name, metadata(group).config_overrides) == ("Dead", {})
        assert group.leader.overrides == {}
        assert fold(group.rows).groups == {}
        assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == GroupIdNotFoundError.code
        check_rows(group)

    def test_another_one_of_its_name_starts_again(self) -> None:
        group = empty_group(20)
        group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest())
        group.alter_config(share_auto_offset_reset="earliest")
        (ben,) = joined(group, "ben")
        assert ben.fetch(max_records=3).acquired == {ORDERS_0: [(0, 2, 1)]}
        check_rows(group)

    def test_a_member_that_joins_meanwhile_keeps_it_alive(self) -> None:
        group = empty_group(20)
        asked = group.send_as_admin(ApiKey.DELETE_GROUPS, DeleteGroupsRequest())
        group.run_batch()
        (ben,) = joined(group, "ben")
        (response,) = group.responses_to_admin(asked)
        assert response["error_code"] == NonEmptyGroupError.code
        assert (metadata(group).name, ben.assigned) == ("Stable", {ORDERS_0})


class TestExpiry:
    BROKER = BrokerConfig(offsets_retention_minutes=1)

    def test_a_group_without_members_and_state_is_dead_after_its_time(self) -> None:
        group = Group(self.BROKER)
        (anna,) = joined(group, "anna")
        anna.leave()
        left_ms = group.now_ms
        group.advance(59_999)
        assert metadata(group).name == "Empty"
        group.advance(1)
        assert metadata(group).name == "Dead"
        assert group.now_ms == left_ms + 60_000
        assert fold(group.rows).groups == {}
        assert group.wakes == {}
        check_rows(group)

    def test_one_with_state_lives_until_its_state_is_deleted(self) -> None:
        group = group_with(20, broker=self.BROKER)
        (anna,) = joined(group, "anna")
        anna.close()
        anna.leave()
        group.alter_config(delete=["share.auto.offset.reset"])
        group.advance(600_000)
        assert (metadata(group).name, set(start_offsets(group))) == ("Empty", {ORDERS_0})
        deleted(group, "orders")
        group.advance(60_000)
        assert metadata(group).name == "Dead"

    def test_a_paused_one_stays_until_it_is_resumed(self) -> None:
        group = Group(self.BROKER)
        (anna,) = joined(group, "anna")
        anna.leave()
        assert group.ask(ApiKey.PAUSE_SHARE_GROUP, PauseShareGroupRequest()) == 0
        group.advance(600_000)
        assert metadata(group).pause is not None
        assert group.resume() == 0
        group.advance(60_000)
        assert metadata(group).name == "Dead"

    def test_one_that_somebody_configured_stays(self) -> None:
        group = group_with(20, broker=self.BROKER)
        group.append_tick()
        group.settle()
        group.advance(600_000)
        assert metadata(group).config_overrides == {"share.auto.offset.reset": "earliest"}


REQUESTS: list[tuple[ApiKey, Message]] = [
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration({"orders": {0: 6, 1: 9}})),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, deletion("orders")),
    (ApiKey.DELETE_GROUPS, DeleteGroupsRequest()),
]


class TestACrash:
    @pytest.mark.parametrize("batches", range(5))
    @pytest.mark.parametrize(("api_key", "body"), REQUESTS)
    def test_what_was_recorded_is_done(self, api_key: ApiKey, body: Message, batches: int) -> None:
        """The checkpoint is lost after some batches, and with it all messages on their way to the actors."""
        group = empty_group(20, 20)
        group.send_as_admin(api_key, body)
        for _ in range(batches):
            if group.pending_count:
                group.run_batch()
        was_recorded = any(topic.deleting or topic.initializing for topic in metadata(group).topics.values())
        group.drop_pending()
        group.restart()
        group.settle()
        topics = metadata(group).topics.values()
        assert not any(topic.initializing or topic.deleting for topic in topics)
        if was_recorded:
            expected = {ORDERS_0: 6, ORDERS_1: 9} if api_key == ApiKey.ALTER_SHARE_GROUP_OFFSETS else {}
            assert start_offsets(group) == expected
        check_rows(group)

    @pytest.mark.parametrize(("api_key", "body"), REQUESTS)
    def test_a_request_that_waits_is_part_of_the_state(self, api_key: ApiKey, body: Message) -> None:
        group = empty_group(20, 20)
        asked = group.send_as_admin(api_key, body)
        batches = 0
        while not group.responses_to_admin(asked):
            group.run_batch()
            batches += 1
        assert batches > 2
        assert not group.responses_to_admin(asked)[0].get("error_code")


def test_so_many_requests_wait_at_once() -> None:
    group = Group()
    body = alteration({"orders": {0: 1}})
    asked = [group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, body) for _ in range(MAX_WAITING_REQUESTS + 1)]
    group.settle()
    responses: list[dict[str, Any]] = [response for number in asked for response in group.responses_to_admin(number)]
    assert [response.get("error_code", 0) for response in responses[-1:]] == [CoordinatorLoadInProgressError.code]
    assert len(responses) == MAX_WAITING_REQUESTS + 1


def test_a_request_that_the_driver_leaves_alone_times_out() -> None:
    group = Group()
    asked = group.send_as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration({"orders": {0: 1}}))
    group.run_batch()
    group.drop_pending()
    group.now_ms += MAX_WAIT_MS
    group.append_tick()
    group.run_batch()
    (response,) = group.responses_to_admin(asked)
    assert response["error_code"] == RequestTimedOutError.code
