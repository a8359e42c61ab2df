"""The work of a coordinator from cut to cut: it costs with the changes, and starts again after a takeover."""

from __future__ import annotations

from sharegroup.actor.effects import Persist, Respond, Wake, WatchTopics
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import TimedReset
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_administration import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    DeleteGroupsRequest,
)
from sharegroup.protocol.group_messages import AlterGroupConfigRequest, ResumeShareGroupRequest
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import Message, RequestEnvelope, request
from tests.actor.coordinator_driver import GROUP_ID, CoordinatorDriver, with_orders

SESSION_TIMEOUT_MS = 45_000


def as_admin(api_key: ApiKey, body: Message, correlation_id: int = 7) -> RequestEnvelope:
    return request(
        api_key, GROUP_ID, body, member_id="admin", client_id="cli", correlation_id=correlation_id, reply_partition=3
    )


def alteration(offset: int = 5, topic: str = "orders") -> AlterShareGroupOffsetsRequest:
    partitions = [AlteredPartition(partition_index=0, start_offset=offset)]
    return AlterShareGroupOffsetsRequest(topics=[AlteredTopic(topic_name=topic, partitions=partitions)])


def tick(driver: CoordinatorDriver) -> RequestEnvelope:
    return driver.message(ApiKey.TICK, Tick())


class TestEffects:
    def test_a_heartbeat_that_changes_nothing_makes_its_response_only(self) -> None:
        driver = with_orders()
        for _ in range(3):
            driver.now_ms += 5_000
            assert [type(effect) for effect in driver.apply(driver.heartbeat("anna"))] == [Respond]

    def test_topics_are_watched_only_when_the_watch_changes(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(driver.join("anna"))
        assert [watch.topics for watch in driver.of_type(WatchTopics)] == [{"orders": ("", 0)}]
        driver.apply(driver.join("ben"))
        assert driver.of_type(WatchTopics) == []
        driver.apply(driver.lookup(1, "orders-id", 2))
        assert [watch.topics for watch in driver.of_type(WatchTopics)] == [{"orders": ("orders-id", 2)}]
        driver.apply(driver.initialized("orders-id", 2))
        assert driver.of_type(WatchTopics) == []

    def test_another_reset_by_time_changes_the_watch(self) -> None:
        driver = with_orders()
        body = AlterGroupConfigRequest(set={"share.auto.offset.reset": "by_duration:PT1H"})
        driver.apply(as_admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, body))
        assert [watch.reset for watch in driver.of_type(WatchTopics)] == [TimedReset(3_600_000)]

    def test_a_timer_that_comes_early_is_left_alone_and_asks_for_the_next_one(self) -> None:
        driver = with_orders()
        joined_ms = driver.now_ms - 2_000
        driver.now_ms = joined_ms + 10_000
        driver.apply(driver.heartbeat("anna"))
        assert driver.of_type(Wake) == []
        driver.now_ms = joined_ms + SESSION_TIMEOUT_MS
        driver.apply(tick(driver))
        expected = Wake(GROUP_ID, ActorRole.COORDINATOR, joined_ms + 10_000 + SESSION_TIMEOUT_MS)
        assert driver.effects == [expected]

    def test_a_tick_of_a_clock_that_is_ahead_is_asked_for_again(self) -> None:
        driver = with_orders()
        driver.apply(tick(driver))
        (wake,) = driver.of_type(Wake)
        assert wake.at_ms is not None
        driver.now_ms = wake.at_ms - 1
        assert driver.apply(tick(driver)) == [wake]

    def test_the_timer_is_given_up_when_nothing_is_due_any_more(self) -> None:
        driver = with_orders()
        driver.apply(driver.leave("anna"))
        assert [wake.at_ms for wake in driver.of_type(Wake)] == [None]

    def test_messages_and_responses_carry_the_leader_epoch(self) -> None:
        driver = with_orders()
        driver.take_over()
        driver.apply(driver.lookup(1, "other-id"))
        assert {envelope.leader_epoch for envelope in driver.sent} == {2}
        driver.apply(driver.join("ben"))
        assert [effect.response.leader_epoch for effect in driver.of_type(Respond)] == [2]


class TestTakeover:
    def test_topics_are_watched_again_and_members_have_fresh_sessions(self) -> None:
        driver = with_orders()
        driver.now_ms += 10 * SESSION_TIMEOUT_MS
        driver.take_over()
        assert [watch.topics for watch in driver.of_type(WatchTopics)] == [{"orders": ("", -1)}]
        assert [wake.at_ms for wake in driver.of_type(Wake)] == [driver.now_ms + SESSION_TIMEOUT_MS]
        assert set(driver.state.members) == {"anna"}

    def test_the_leader_is_asked_again_for_what_it_has_not_done(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(driver.join("anna"))
        driver.apply(driver.lookup(1, "orders-id"))
        assert [envelope.api_key for envelope in driver.sent] == [ApiKey.INITIALIZE_SHARE_GROUP_STATE]
        driver.apply(tick(driver))
        assert driver.sent == []
        driver.take_over()
        assert [envelope.api_key for envelope in driver.sent] == [ApiKey.INITIALIZE_SHARE_GROUP_STATE]
        driver.apply(driver.initialized("orders-id"), driver.lookup(1, ""))
        assert [envelope.api_key for envelope in driver.sent] == [ApiKey.DELETE_SHARE_GROUP_STATE]
        driver.take_over()
        assert [envelope.api_key for envelope in driver.sent] == [ApiKey.DELETE_SHARE_GROUP_STATE]

    def test_a_resumed_group_sends_the_leader_everything_again(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(driver.join("anna"))
        driver.apply(driver.lookup(1, "orders-id"))
        driver.apply(as_admin(ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest()))
        assert [envelope.api_key for envelope in driver.sent] == [
            ApiKey.SHARE_GROUP_CONFIG_CHANGED,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ]

    def test_the_successor_responds_to_a_request_that_waits_for_a_lookup(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration()))
        driver.take_over()
        assert [watch.topics for watch in driver.of_type(WatchTopics)] == [{"orders": ("", -1)}]
        driver.apply(driver.lookup(1, "orders-id"))
        driver.take_over()
        driver.apply(driver.initialized("orders-id"))
        (response,) = driver.of_type(Respond)
        assert (response.address.partition, response.response.correlation_id, response.response.member_id) == (
            3,
            7,
            "admin",
        )
        assert response.response.body["responses"][0]["topic_id"] == "orders-id"
        assert driver.state.waiting_requests == {}
        assert driver.folded.groups[GROUP_ID].metadata.records() == driver.state.records()

    def test_what_a_request_changes_is_not_changed_again_by_the_successor(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration()), driver.lookup(1, "orders-id"))
        epoch = driver.state.group_epoch
        driver.take_over()
        driver.apply(driver.lookup(1, "orders-id"))
        assert driver.state.group_epoch == epoch
        driver.apply(driver.initialized("orders-id"))
        assert [response.get("error_code", 0) for response in driver.responses] == [0]

    def test_a_request_times_out_counted_from_when_it_came(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration()))
        (wake,) = driver.of_type(Wake)
        assert wake.at_ms == driver.now_ms + 300_000
        driver.take_over()
        driver.now_ms = wake.at_ms
        driver.apply(tick(driver))
        assert [response["error_code"] for response in driver.responses] == [7]


class TestRequestsOfAdministrators:
    def test_one_that_comes_again_while_it_waits_gets_one_response(self) -> None:
        driver = CoordinatorDriver()
        envelope = as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration())
        driver.apply(envelope, envelope)
        assert driver.apply(envelope) == []
        driver.apply(driver.lookup(1, "orders-id"))
        driver.apply(driver.initialized("orders-id"))
        assert len(driver.responses) == 1

    def test_an_unknown_field_with_an_integer_above_64_bits_is_left_out_of_the_rows(self) -> None:
        driver = CoordinatorDriver()
        body = alteration().model_dump()
        body["later"] = 2**70
        body["topics"][0]["later"] = {"deep": [2**70]}
        envelope = as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration()).model_copy(update={"body": body})
        driver.apply(RequestEnvelope.model_validate_json(envelope.encoded()))
        (row,) = driver.of_type(Persist)
        assert "later" not in row.row.model_dump_json()
        driver.take_over()
        driver.apply(driver.lookup(1, "orders-id"))
        driver.apply(driver.initialized("orders-id"))
        assert [response.get("error_code", 0) for response in driver.responses] == [0]

    def test_a_group_is_removed_after_the_state_that_began_while_it_was_being_deleted(self) -> None:
        driver = with_orders()
        driver.apply(driver.leave("anna"))
        driver.apply(as_admin(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()))
        driver.apply(as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration(topic="payments"), correlation_id=8))
        driver.apply(driver.lookup(1, "payments-id", topic="payments"))
        assert driver.state.topics["payments-id"].partitions == {0}
        driver.apply(driver.deleted("orders-id"))
        assert driver.responses == []
        driver.apply(driver.deleted("payments-id"))
        assert [response.get("error_code", 0) for response in driver.responses] == [0, 0]
        assert driver.coordinator.is_empty

    def test_one_that_waits_for_a_dead_group_keeps_it_from_being_forgotten(self) -> None:
        driver = CoordinatorDriver()
        driver.apply(as_admin(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alteration()))
        assert (driver.state.name, driver.coordinator.is_empty) == ("Dead", False)
        assert driver.folded.groups[GROUP_ID].metadata.records() == driver.state.records()
        driver.apply(driver.lookup(1, ""))
        assert len(driver.responses) == 1
        assert (driver.coordinator.is_empty, driver.folded.groups) == (True, {})


class TestAnEmptyCoordinator:
    def test_a_group_that_was_only_named_leaves_nothing(self) -> None:
        driver = CoordinatorDriver()
        assert driver.coordinator.is_empty
        assert driver.apply(driver.lookup(1, "orders-id"), tick(driver)) == []
        assert driver.coordinator.is_empty

    def test_a_deleted_group_gives_up_its_watches_and_its_timer(self) -> None:
        driver = with_orders()
        driver.apply(driver.leave("anna"))
        driver.apply(as_admin(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()))
        assert not driver.coordinator.is_empty
        assert [watch.topics for watch in driver.of_type(WatchTopics)] == [{}]
        driver.apply(driver.deleted("orders-id"))
        assert driver.coordinator.is_empty
        assert [wake.at_ms for wake in driver.of_type(Wake)] == [None]

    def test_one_with_a_configuration_is_kept(self) -> None:
        driver = CoordinatorDriver()
        change = AlterGroupConfigRequest(set={"share.delivery.count.limit": "7"})
        driver.apply(as_admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, change))
        assert not driver.coordinator.is_empty
        back = AlterGroupConfigRequest(delete=["share.delivery.count.limit"])
        driver.apply(as_admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, back))
        assert driver.coordinator.is_empty


class TestEpochs:
    def test_a_new_group_begins_above_the_epochs_of_removed_ones(self) -> None:
        driver = CoordinatorDriver(group_epoch_floor=40)
        driver.apply(driver.join("anna"))
        assert driver.state.group_epoch == 41
        driver.apply(driver.lookup(1, "orders-id"))
        assert driver.state.topics["orders-id"].initializing[0].state_epoch == 42

    def test_a_group_that_comes_back_goes_on_above_its_former_life(self) -> None:
        driver = CoordinatorDriver(BrokerConfig(offsets_retention_minutes=1))
        driver.apply(driver.join("anna"))
        driver.apply(driver.leave("anna"))
        last = driver.state.group_epoch
        driver.now_ms += 60_000
        driver.apply(tick(driver))
        (row,) = driver.of_type(Persist)
        assert row.row.payload["records"] == [{"type": "ShareGroupRemoved", "reason": "expired", "epoch": last}]
        driver.apply(driver.join("anna"))
        assert driver.state.group_epoch == last + 1

    def test_a_group_that_lives_goes_on_by_one_whatever_others_had(self) -> None:
        driver = CoordinatorDriver(group_epoch_floor=40)
        driver.apply(driver.join("anna"), driver.join("ben"))
        assert driver.state.group_epoch == 42
