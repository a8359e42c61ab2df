"""A group that writes into sinks exactly once: its members, the writes that it opens, and how each is decided."""

from __future__ import annotations

import pytest

from sharegroup.actor.group_writes import HAND_OUT_INTERVAL_MS
from sharegroup.core.record_state import RecordState
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    DeletedTopic,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
)
from sharegroup.protocol.group_description import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from sharegroup.protocol.group_messages import PauseShareGroupRequest
from sharegroup.protocol.internal_messages import InitializeShareGroupState, StatePartition, StateTopic
from sharegroup.protocol.messages import Message
from sharegroup.protocol.sink_writes import Sink
from tests.actor.group_harness import (
    START_MS,
    Group,
    LogPartition,
    Member,
    findings,
    group_with,
    metadata,
    start_offsets,
)
from tests.actor.sink_group import (
    ACCEPT,
    LOCK_MS,
    ORDERS,
    ORDERS_1,
    OTHER_TABLE,
    REJECT,
    RELEASE,
    TABLE,
    UNREAD,
    acknowledge,
    acquire,
    is_same_after_a_takeover,
    new_group,
    open_versions,
    resolve,
    response,
    states,
    unresolved,
    writer,
)


@pytest.fixture
def group() -> Group:
    return new_group()


class TestMembers:
    def test_a_member_with_a_sink_makes_a_new_group_exactly_once(self) -> None:
        group = group_with(10, earliest=False)
        writer(group)
        assert metadata(group).config_overrides == {"share.exactly.once.enable": "true"}
        assert group.leader.overrides == {"share.exactly.once.enable": "true"}

    @pytest.mark.parametrize(
        ("is_enabled", "sink", "words"),
        [("true", None, "has no sink"), ("false", TABLE, "--add-config share.exactly.once.enable=true")],
    )
    def test_a_member_of_the_other_kind_is_refused_with_the_remedy(
        self, is_enabled: str, sink: Sink | None, words: str
    ) -> None:
        group = group_with(10)
        group.alter_config(share_exactly_once_enable=is_enabled)
        body = Member(group, "bob", sink=sink).join()
        assert (body.error_code, words in body.error_message) == (InvalidRequestError.code, True)

    def test_a_fetch_of_the_other_kind_is_refused_but_still_acknowledges(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna)
        anna.sink = None
        assert anna.fetch().error_code == InvalidRequestError.code
        anna.session_epoch -= 1
        assert acknowledge(anna, 0, 9, RELEASE, write.version) == 0

    def test_a_fetch_that_waits_while_the_group_is_switched_gets_no_record_without_a_write(self) -> None:
        group = group_with(0)
        writer(group, sink=None).send_fetch([ORDERS], max_wait_ms=60_000)
        group.settle()
        assert group.alter_config(share_exactly_once_enable="true") == 0
        group.grow("orders", 0, 5)
        group.tell_offsets("orders")
        group.settle()
        assert states(group) == []
        write = acquire(writer(group, "bob"))
        assert open_versions(group) == {write.version}

    def test_members_of_a_group_without_the_switch_get_no_write(self) -> None:
        group = group_with(10)
        fetched = response(writer(group, sink=None).fetch())
        assert (fetched.write, fetched.unresolved, open_versions(group)) == (None, [], set())


class TestOpenWrites:
    def test_one_acquisition_is_one_write_over_all_its_share_partitions(self) -> None:
        group = new_group(5, 5)
        write = acquire(writer(group), ORDERS, ORDERS_1)
        assert write.app_id == f"sharegroup/{group.context.state_id}/{group.group_id}/totals/0"
        assert [list(led.share_partition.open_writes) for led in group.leader.partitions.values()] == [
            [write.version],
            [write.version],
        ]
        assert is_same_after_a_takeover(group)

    def test_versions_rise_and_application_ids_are_used_again(self, group: Group) -> None:
        anna = writer(group)
        first, second = acquire(anna, max_records=2), acquire(anna, max_records=2)
        resolve(group, first, ACCEPT)
        third = acquire(anna, max_records=2)
        assert first.version < second.version < third.version
        assert [write.app_id.rpartition("/")[2] for write in (first, second, third)] == ["0", "1", "0"]

    def test_a_takeover_keeps_the_ids_that_are_in_use(self, group: Group) -> None:
        first = acquire(writer(group), max_records=2)
        group.restart()
        group.settle()
        second = acquire(writer(group, "bob"), max_records=2)
        assert first.version < second.version
        assert first.app_id != second.app_id

    def test_sinks_have_ids_of_their_own(self, group: Group) -> None:
        first = acquire(writer(group), max_records=2)
        second = acquire(writer(group, "bob", OTHER_TABLE), max_records=2)
        assert [write.app_id.rsplit("/", 2)[1:] for write in (first, second)] == [["totals", "0"], ["other", "0"]]

    def test_nothing_is_acquired_beyond_the_bound_of_a_sink(self) -> None:
        group = new_group(share_exactly_once_max_writes="1")
        anna, bob, carl = writer(group), writer(group, "bob"), writer(group, "carl", OTHER_TABLE)
        write = acquire(anna, max_records=2)
        waiting = bob.send_fetch([ORDERS], max_records=2)
        group.settle()
        assert bob.response_to(waiting).is_parked
        assert acquire(carl, max_records=2)
        resolve(group, write, ACCEPT)
        assert bob.fetched(waiting).record_count == 2

    def test_a_sink_that_the_group_does_not_list_is_refused(self) -> None:
        group = new_group(share_exactly_once_sinks="/tables/totals, /tables/more")
        assert acquire(writer(group), max_records=2)
        refused = writer(group, "bob", OTHER_TABLE).fetch([ORDERS])
        assert refused.error_code == InvalidRequestError.code
        assert refused.response is not None
        assert "share.exactly.once.sinks of group" in refused.response.error_message

    def test_what_is_committed_with_the_write_is_accepted_by_its_resolution(self, group: Group) -> None:
        write = acquire(writer(group))
        answer = resolve(group, write, ACCEPT, {ORDERS: [(3, 3, REJECT), (4, 4, RELEASE)]})
        assert answer["record_count"] == 10
        assert states(group) == [
            (4, 4, RecordState.AVAILABLE, 1),
            (5, 9, RecordState.ACKNOWLEDGED, 1),
        ]
        assert open_versions(group) == set()
        assert is_same_after_a_takeover(group)
        assert findings(group) == []

    def test_a_resolution_needs_no_session_and_may_come_twice_and_late(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna)
        anna.close()
        assert resolve(group, write, ACCEPT)["record_count"] == 10
        assert resolve(group, write).get("record_count", 0) == 0
        assert resolve(group, write, ACCEPT).get("record_count", 0) == 0
        assert start_offsets(group) == {ORDERS: 10}

    @pytest.mark.parametrize(("app_id", "table_id"), [("another", "totals"), (None, "another")])
    def test_a_resolution_from_another_table_is_refused(self, group: Group, app_id: str | None, table_id: str) -> None:
        write = acquire(writer(group))
        answer = resolve(group, write, ACCEPT, app_id=app_id, table_id=table_id)
        assert (answer["error_code"], "'another'" in answer["error_message"]) == (InvalidRequestError.code, True)
        assert open_versions(group) == {write.version}

    def test_an_accepted_record_is_never_one_by_an_acknowledgement(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna)
        assert acknowledge(anna, 0, 9, ACCEPT, write.version) == InvalidRecordStateError.code
        assert acknowledge(anna, 0, 9, RELEASE, -1) == InvalidRecordStateError.code
        assert acknowledge(anna, 0, 9, RELEASE, write.version) == 0
        assert open_versions(group) == set()


class TestLookups:
    def test_a_write_in_doubt_is_handed_to_the_next_member_with_its_sink(self, group: Group) -> None:
        anna, bob, carl = writer(group), writer(group, "bob"), writer(group, "carl", OTHER_TABLE)
        write = acquire(anna)
        anna.close()
        assert states(group) == [(0, 9, RecordState.RESOLVING, 1)]
        assert carl.fetch(max_wait_ms=0).record_count == 0
        (handed,) = response(bob.fetch()).unresolved
        assert handed.model_dump() == {
            "app_id": write.app_id,
            "version": write.version,
            "table_id": "totals",
            "address": "/tables/totals",
            "sink_version": 7,
            "opened_ms": START_MS,
        }
        resolve(group, write)
        assert states(group) == [(0, 9, RecordState.AVAILABLE, 1)]
        assert findings(group) == []

    def test_a_fetch_that_waits_gets_it_at_once(self, group: Group) -> None:
        anna, bob = writer(group), writer(group, "bob")
        write = acquire(anna)
        waiting = bob.send_fetch(max_wait_ms=60_000)
        group.settle()
        assert bob.response_to(waiting).is_parked
        anna.close()
        assert unresolved(bob.response_to(waiting)) == [write.version]

    def test_it_is_handed_out_again_when_nobody_resolves_it(self, group: Group) -> None:
        anna, bob = writer(group), writer(group, "bob")
        write = acquire(anna)
        anna.close()
        assert unresolved(bob.fetch()) == [write.version]
        waiting = bob.send_fetch(max_wait_ms=60_000)
        group.settle()
        assert bob.response_to(waiting).is_parked
        group.advance(HAND_OUT_INTERVAL_MS)
        assert unresolved(bob.response_to(waiting)) == [write.version]

    @pytest.mark.parametrize("state", ["paused", "draining", "empty-handed", "without a free id", "switched off"])
    def test_somebody_always_gets_it(self, state: str) -> None:
        group = new_group(share_exactly_once_max_writes="1")
        anna, bob = writer(group), writer(group, "bob")
        write = acquire(anna, max_records=2)
        if state == "paused":
            group.ask(ApiKey.PAUSE_SHARE_GROUP, PauseShareGroupRequest())
        elif state == "draining":
            group.alter_config(share_drain_enable="true")
        elif state == "switched off":
            group.alter_config(share_exactly_once_enable="false")
        anna.close()
        max_records = 0 if state == "empty-handed" else 5
        assert unresolved(bob.fetch(max_records=max_records)) == [write.version]

    def test_a_takeover_hands_it_out_again(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna)
        anna.close()
        group.restart()
        group.settle()
        assert unresolved(writer(group, "bob").fetch()) == [write.version]

    def test_a_write_without_a_record_is_looked_up_until_it_is_closed(self, group: Group) -> None:
        anna, bob = writer(group), writer(group, "bob")
        write = acquire(anna)
        resolve(group, write, named={ORDERS: [(0, 9, ACCEPT)]}, is_closed=False)
        assert start_offsets(group) == {ORDERS: 10}
        assert unresolved(bob.fetch(max_wait_ms=0)) == [write.version]
        resolve(group, write, named={ORDERS: [(0, 9, ACCEPT)]})
        assert open_versions(group) == set()
        assert findings(group) == []

    def test_a_sink_that_is_away_uses_no_delivery_up(self) -> None:
        group = new_group(share_delivery_count_limit="2")
        anna = writer(group)
        for _ in range(5):
            write = acquire(anna)
            assert acknowledge(anna, 0, 9, UNREAD, write.version, is_begun=True) == 0
            assert states(group) == [(0, 9, RecordState.RESOLVING, 1)]
            resolve(group, write)
        assert states(group) == [(0, 9, RecordState.AVAILABLE, 0)]
        assert findings(group) == []


class TestForgetting:
    REQUESTS = (
        (
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            AlterShareGroupOffsetsRequest(
                topics=[
                    AlteredTopic(topic_name="orders", partitions=[AlteredPartition(partition_index=0, start_offset=0)])
                ]
            ),
        ),
        (
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            DeleteShareGroupOffsetsRequest(topics=[DeletedTopic(topic_name="orders")]),
        ),
        (ApiKey.DELETE_GROUPS, DeleteGroupsRequest()),
    )

    @pytest.mark.parametrize(("api_key", "body"), REQUESTS, ids=[request[0].name for request in REQUESTS])
    def test_it_is_refused_with_the_command_while_a_write_is_open(
        self, group: Group, api_key: ApiKey, body: Message
    ) -> None:
        anna = writer(group)
        write = acquire(anna)
        anna.close()
        anna.leave()
        answer = group.response_to(api_key, body)
        assert answer["error_code"] == InvalidRequestError.code
        assert f"sharegroup groups resolve --group {group.group_id}" in answer["error_message"]
        assert open_versions(group) == {write.version}
        resolve(group, write)
        assert group.response_to(api_key, body).get("error_code", 0) == 0

    def test_the_state_of_a_deleted_topic_stays_until_its_writes_are_decided(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna, max_records=5)
        group.delete_topic("orders")
        group.settle()
        assert open_versions(group) == {write.version}
        assert anna.fetch(max_wait_ms=0).record_count == 0
        resolve(group, write, ACCEPT)
        group.settle()
        assert dict(group.leader.partitions) == {}
        assert findings(group) == []

    def test_a_new_state_waits_until_the_writes_of_the_old_one_are_decided(self, group: Group) -> None:
        """A reset that found no open write comes after an acquisition that was on its way."""
        anna = writer(group)
        write = acquire(anna, max_records=5)
        topic = StateTopic(
            topic_id="orders-id", topic="orders", partitions=[StatePartition(partition_index=0, start_offset=8)]
        )
        group.tell(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupState(state_epoch=99, topics=[topic]))
        group.settle()
        assert (start_offsets(group), open_versions(group)) == ({ORDERS: 0}, {write.version})
        assert anna.fetch(max_wait_ms=0).record_count == 0
        resolve(group, write, ACCEPT)
        group.settle()
        assert (start_offsets(group), open_versions(group)) == ({ORDERS: 8}, set())
        assert findings(group) == []

    def test_records_that_the_log_has_deleted_wait_for_their_write(self, group: Group) -> None:
        write = acquire(writer(group), max_records=4)
        group.set_offsets("orders", 0, LogPartition(start=8, end=10))
        group.tell_offsets("orders")
        group.settle()
        assert start_offsets(group) == {ORDERS: 0}
        resolve(group, write, named={ORDERS: [(0, 1, ACCEPT)]})
        assert start_offsets(group) == {ORDERS: 8}
        assert findings(group) == []


class TestRules:
    def test_versions_of_an_application_id_rise_whatever_order_fetches_are_served_in(self) -> None:
        """A fetch that waits gets its records after a later one; the sink would skip its lower version."""
        group = new_group(5, 0)
        anna, bob = writer(group), writer(group, "bob")
        waiting = anna.send_fetch([ORDERS_1], max_wait_ms=60_000)
        group.settle()
        later = acquire(bob)
        resolve(group, later, ACCEPT)
        group.grow("orders", 1, 3)
        group.tell_offsets("orders")
        group.settle()
        earlier = response(anna.response_to(waiting)).write
        assert earlier is not None
        assert earlier.version < later.version
        assert earlier.app_id != later.app_id
        assert findings(group) == []

    def test_a_fetch_waits_for_an_application_id_that_another_share_partition_has(self) -> None:
        group = new_group(5, 5, share_exactly_once_max_writes="1")
        anna, bob = writer(group), writer(group, "bob")
        write = acquire(anna)
        waiting = bob.send_fetch([ORDERS_1], max_wait_ms=60_000)
        group.settle()
        assert open_versions(group) == {write.version}
        resolve(group, write, ACCEPT)
        assert response(bob.response_to(waiting)).write is not None
        assert findings(group) == []

    def test_a_fetch_comes_again_where_no_application_id_takes_its_version(self) -> None:
        group = new_group(5, 0, share_exactly_once_max_writes="1")
        anna, bob = writer(group), writer(group, "bob")
        waiting = anna.send_fetch([ORDERS_1], max_wait_ms=60_000)
        group.settle()
        later = acquire(bob)
        resolve(group, later, ACCEPT)
        group.grow("orders", 1, 3)
        group.tell_offsets("orders")
        group.settle()
        assert response(anna.response_to(waiting)).write is None
        again = acquire(anna, ORDERS_1)
        assert again.app_id == later.app_id
        assert again.version > later.version

    def test_versions_of_a_group_that_was_deleted_and_made_again_rise(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna, max_records=2)
        resolve(group, write)
        anna.close()
        anna.leave()
        group.settle()
        assert group.response_to(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()).get("error_code", 0) == 0
        group.alter_config(share_exactly_once_enable="true", share_auto_offset_reset="earliest")
        again = acquire(writer(group, "bob"), max_records=2)
        assert again.app_id == write.app_id
        assert again.version > write.version

    def test_a_dead_letter_is_written_once_the_sink_does_not_have_the_record(self) -> None:
        group = new_group(1, errors_deadletterqueue_topic_name="dlq", share_delivery_count_limit="2")
        anna = writer(group)
        for _ in range(2):
            write = acquire(anna)
            group.advance(LOCK_MS)
            assert states(group)[0][2] is RecordState.RESOLVING
            assert not any(effect.dead_letters for effect in group.dead_letters)
            resolve(group, write)
        assert states(group) == [(0, 0, RecordState.ARCHIVING, 2)]
        assert any(effect.dead_letters for effect in group.dead_letters)
        assert findings(group) == []

    def test_a_rejected_record_of_a_write_in_doubt_has_no_dead_letter_if_the_sink_has_it(self) -> None:
        group = new_group(errors_deadletterqueue_topic_name="dlq")
        anna = writer(group)
        write = acquire(anna)
        assert acknowledge(anna, 0, 9, REJECT, write.version, is_begun=True) == 0
        resolve(group, write, ACCEPT)
        assert start_offsets(group) == {ORDERS: 10}
        assert not any(effect.dead_letters for effect in group.dead_letters)

    def test_records_that_were_acquired_without_a_write_become_available(self) -> None:
        group = group_with(10)
        anna = writer(group, sink=None)
        assert anna.fetch().record_count == 10
        group.alter_config(share_exactly_once_enable="true")
        group.advance(LOCK_MS)
        assert states(group) == [(0, 9, RecordState.AVAILABLE, 1)]
        assert acquire(writer(group, "bob"))
        assert findings(group) == []

    def test_open_writes_are_resolved_when_the_group_is_switched_off(self, group: Group) -> None:
        anna = writer(group)
        write = acquire(anna, max_records=2)
        group.alter_config(share_exactly_once_enable="false")
        assert anna.heartbeat().error_code == 0
        group.advance(LOCK_MS)
        assert states(group)[0] == (0, 1, RecordState.RESOLVING, 1)
        # Its member stays for them, and acquires nothing.
        fetched = response(anna.fetch(max_records=5))
        assert (unresolved(anna.fetch(max_records=0)), fetched.write) == ([], None)
        resolve(group, write, ACCEPT)
        assert start_offsets(group) == {ORDERS: 2}
        refused = anna.fetch(max_records=5)
        assert refused.error_code == InvalidRequestError.code

    def test_a_late_release_of_an_earlier_delivery_leaves_the_present_one(self, group: Group) -> None:
        anna = writer(group)
        first = acquire(anna)
        group.advance(LOCK_MS)
        resolve(group, first)
        second = acquire(anna)
        assert acknowledge(anna, 0, 9, RELEASE, first.version) == InvalidRecordStateError.code
        assert open_versions(group) == {second.version}
        assert states(group) == [(0, 9, RecordState.ACQUIRED, 2)]

    def test_a_description_has_the_open_writes(self, group: Group) -> None:
        write = acquire(writer(group), max_records=4)
        body = DescribeShareGroupOffsetsRequest(include_runs=True)
        fields = group.response_to(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, body)
        (partition,) = DescribeShareGroupOffsetsResponse.model_validate(fields).topics[0].partitions
        (entry,) = partition.open_writes
        assert (entry.version, entry.app_id) == (write.version, write.app_id)
        assert (entry.first_offset, entry.last_offset, entry.address) == (0, 3, TABLE.address)
