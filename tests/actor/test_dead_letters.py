"""The dead-letter queue in the leader: ARCHIVING first, then the dead-letter record, then ARCHIVED (KIP-1191)."""

from __future__ import annotations

import pytest

from sharegroup.actor.dead_letters import all_waiting
from sharegroup.actor.effects import DeadLetterReason, DeadLetters, WriteDeadLetters
from sharegroup.audit.verification.verify import verify
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.core.record_state import AcknowledgeType, Cause, RecordState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import DeleteGroupsRequest
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    DlqStatusChanged,
    DlqWritten,
    InitializeShareGroupState,
    StatePartition,
    StateTopic,
    WrittenDeadLetters,
)
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.row_payloads import GroupSnapshotPayload
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.fold import fold
from sharegroup.state.reader import CommitMarkerInfo
from sharegroup.state.schema import StoredRows, decoded, rows_to_table
from sharegroup.state.table_snapshot import table_snapshot
from tests.actor.group_harness import Group, LogPartition, Member, findings, group_with, joined, leader_state

GAP, ACCEPT, RELEASE, REJECT, RENEW, UNREAD, *_ = AcknowledgeType
ORDERS_0 = ("orders-id", 0)
ORDERS_1 = ("orders-id", 1)
LOCK_MS = 30_000
REJECTED = DeadLetterReason.REJECTED
EXCEEDED = DeadLetterReason.DELIVERY_COUNT_EXCEEDED


@pytest.fixture
def group() -> Group:
    group = group_with(20, 20)
    assert group.alter_config(errors_deadletterqueue_topic_name="dlq", share_delivery_count_limit="2") == 0
    group.dead_letters.clear()
    return group


@pytest.fixture
def anna(group: Group) -> Member:
    """Holds 0..9 of both partitions."""
    (anna,) = joined(group, "anna")
    for _ in range(2):
        anna.fetch(max_records=10)
    return anna


def dead_letter_requests(group: Group) -> list[tuple[int, int, int, int, DeadLetterReason]]:
    """(partition, first offset, last offset, delivery count, reason) of what was asked for, in order."""
    return [
        (request.partition, request.first_offset, request.last_offset, request.delivery_count, request.reason)
        for effect in group.dead_letters
        for request in effect.dead_letters
    ]


def states(group: Group, partition: int = 0) -> list[tuple[int, int, RecordState]]:
    """(first offset, last offset, state) of what is in flight."""
    runs = group.leader.partitions["orders-id", partition].share_partition.runs
    return [(run.first_offset, run.last_offset, run.state) for run in runs]


def start_offset(group: Group, partition: int = 0) -> int:
    return group.leader.partitions["orders-id", partition].share_partition.start_offset


def tell_written(group: Group, first_offset: int, last_offset: int, topic_id: str = "orders-id") -> None:
    written = WrittenDeadLetters(
        topic_id=topic_id,
        partition_index=0,
        first_offset=first_offset,
        last_offset=last_offset,
        state_epoch=group.leader.partitions[ORDERS_0].share_partition.state_epoch,
    )
    group.tell(ApiKey.DLQ_WRITTEN, DlqWritten(ranges=[written]))
    group.settle()


class TestGivenUp:
    def test_a_rejected_record_is_archiving_and_its_dead_letter_record_is_requested(
        self, group: Group, anna: Member
    ) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT), (5, 9, ACCEPT)]})
        assert states(group)[:2] == [(0, 4, RecordState.ARCHIVING), (5, 9, RecordState.ACKNOWLEDGED)]
        assert group.dead_letters == [
            WriteDeadLetters("group-1", "dlq", False, (DeadLetters("orders", "orders-id", 0, 0, 4, 1, REJECTED, 2),))
        ]
        assert start_offset(group) == 0

    @pytest.mark.parametrize("way", ["release", "lock timeout", "session close"])
    def test_a_record_that_exceeds_the_delivery_count_is_archiving(self, group: Group, anna: Member, way: str) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        anna.fetch([ORDERS_0], max_records=10)
        if way == "release":
            anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        elif way == "lock timeout":
            group.advance(LOCK_MS)
        else:
            anna.close()
        assert dead_letter_requests(group) == [(0, 0, 9, 2, EXCEEDED)]

    def test_a_rejection_on_the_last_delivery_is_a_rejection(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        anna.fetch([ORDERS_0], max_records=10)
        anna.acknowledge({ORDERS_0: [(0, 9, REJECT)]})
        assert dead_letter_requests(group) == [(0, 0, 9, 2, REJECTED)]

    def test_one_effect_asks_for_all_dead_letters_of_a_batch_and_touching_ones_are_one_range(
        self, group: Group, anna: Member
    ) -> None:
        anna.send_acknowledge({ORDERS_0: [(offset, offset, REJECT) for offset in range(4)]})
        anna.send_acknowledge({ORDERS_0: [(4, 4, ACCEPT), (5, 6, REJECT)], ORDERS_1: [(7, 7, REJECT)]})
        group.settle()
        assert len(group.dead_letters) == 1
        assert dead_letter_requests(group) == [(0, 0, 3, 1, REJECTED), (0, 5, 6, 1, REJECTED), (1, 7, 7, 1, REJECTED)]

    def test_what_is_given_up_in_the_cut_that_ends_its_state_is_asked_for(self, group: Group, anna: Member) -> None:
        anna.send_acknowledge({ORDERS_0: [(0, 4, REJECT)]})
        group.tell(ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupState(state_epoch=99, topic_ids=["orders-id"]))
        group.run_batch()
        assert [row.record_type for row in group.rows[-3:]].count(RecordType.SHARE_TOMBSTONE) == 2
        assert dead_letter_requests(group) == [(0, 0, 4, 1, REJECTED)]

    def test_so_is_what_is_given_up_in_the_cut_that_replaces_its_state(self, group: Group, anna: Member) -> None:
        anna.send_acknowledge({ORDERS_0: [(0, 4, REJECT)]})
        partition = StatePartition(partition_index=0, start_offset=15)
        topic = StateTopic(topic_id="orders-id", topic="orders", partitions=[partition])
        group.tell(ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupState(state_epoch=99, topics=[topic]))
        group.run_batch()
        assert start_offset(group) == 15
        assert dead_letter_requests(group) == [(0, 0, 4, 1, REJECTED)]

    def test_a_gap_has_no_dead_letter_record(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, GAP)]})
        assert (dead_letter_requests(group), start_offset(group)) == ([], 10)

    def test_without_a_queue_there_are_no_dead_letter_records(self) -> None:
        group = group_with(20)
        (anna,) = joined(group, "anna")
        anna.fetch(max_records=10)
        anna.acknowledge({ORDERS_0: [(0, 9, REJECT)]})
        assert (group.dead_letters, start_offset(group)) == ([], 10)


class TestWritten:
    @pytest.fixture
    def group(self, group: Group, anna: Member) -> Group:
        """0..4 are rejected and 5..9 accepted."""
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT), (5, 9, ACCEPT)]})
        return group

    def test_the_record_is_archived_and_the_start_offset_passes(self, group: Group) -> None:
        group.write_dead_letters()
        group.settle()
        assert start_offset(group) == 10
        (entry,) = group.rows_of(RecordType.SHARE_UPDATE)[-1].transitions
        assert (entry.from_state, entry.to_state, entry.cause, entry.delivery_count) == (
            RecordState.ARCHIVING,
            RecordState.ARCHIVED,
            Cause.DEAD_LETTER_WRITTEN,
            1,
        )
        assert findings(group) == []

    def test_a_report_on_an_earlier_state_changes_nothing(self, group: Group) -> None:
        state_epoch = group.leader.partitions[ORDERS_0].share_partition.state_epoch
        before = leader_state(group)
        for other_epoch in (state_epoch - 1, state_epoch + 1):
            written = WrittenDeadLetters(
                topic_id="orders-id", partition_index=0, first_offset=0, last_offset=4, state_epoch=other_epoch
            )
            group.tell(ApiKey.DLQ_WRITTEN, DlqWritten(ranges=[written]))
        group.settle()
        assert leader_state(group) == before

    def test_a_part_of_the_dead_letter_records(self, group: Group) -> None:
        tell_written(group, 0, 2)
        assert start_offset(group) == 3
        assert states(group)[0] == (3, 4, RecordState.ARCHIVING)

    def test_a_repeat_changes_nothing(self, group: Group) -> None:
        tell_written(group, 0, 2)
        before, rows = leader_state(group), len(group.rows)
        tell_written(group, 0, 2)
        assert (leader_state(group), len(group.rows)) == (before, rows)

    @pytest.mark.parametrize(
        ("first_offset", "last_offset", "topic_id"),
        [(5, 19, "orders-id"), (0, 4, "other-id"), (4, 0, "orders-id"), (2**62, 2**63 - 1, "orders-id")],
        ids=["nothing archiving in it", "another topic", "reversed", "far above"],
    )
    def test_what_is_not_archiving_stays_as_it_is(
        self, group: Group, first_offset: int, last_offset: int, topic_id: str
    ) -> None:
        before = leader_state(group)
        tell_written(group, first_offset, last_offset, topic_id)
        assert leader_state(group) == before

    def test_the_log_start_passes_a_record_whose_dead_letter_record_is_not_written(self, group: Group) -> None:
        group.set_offsets("orders", 0, LogPartition(start=3, end=20))
        group.tell_offsets("orders")
        group.settle()
        assert start_offset(group) == 3
        tell_written(group, 0, 4)
        assert start_offset(group) == 10
        assert findings(group) == []


class TestRecovery:
    def test_what_is_archiving_survives_and_is_asked_for_again(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)], ORDERS_1: [(0, 4, REJECT)]})
        anna.fetch(max_records=10)
        anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        asked = dead_letter_requests(group)
        assert asked == [(1, 0, 4, 1, REJECTED), (0, 0, 9, 2, EXCEEDED)]
        folded = fold(group.rows).groups["group-1"]
        config = effective_group_config(BrokerConfig(), folded.metadata.config_overrides)
        again = all_waiting("group-1", folded.partitions.values(), config)
        assert (again.dlq_topic, again.replaces_waiting) == ("dlq", True)
        group.restart()
        group.dead_letters = [again]
        assert dead_letter_requests(group) == asked[::-1]
        group.write_dead_letters()
        group.settle()
        assert (start_offset(group, 0), start_offset(group, 1)) == (10, 5)
        assert findings(group) == []

    @pytest.mark.parametrize("updates_per_snapshot", [0, 500])
    @pytest.mark.parametrize("is_from_table_snapshot", [False, True])
    def test_the_reason_survives_whatever_the_delivery_count_says(
        self, updates_per_snapshot: int, is_from_table_snapshot: bool
    ) -> None:
        broker = BrokerConfig(share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot)
        group = group_with(20, broker=broker)
        group.alter_config(errors_deadletterqueue_topic_name="dlq", share_delivery_count_limit="2")
        (anna,) = joined(group, "anna")
        group.dead_letters.clear()
        anna.fetch(max_records=10)
        anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        anna.fetch(max_records=10)
        # All of them on their last delivery; 0 to 3 are done before the restart.
        anna.acknowledge({ORDERS_0: [(0, 1, REJECT), (2, 4, RELEASE), (5, 6, REJECT), (7, 8, RELEASE), (9, 9, REJECT)]})
        asked = dead_letter_requests(group)
        tell_written(group, 0, 3)
        rows = group.rows
        if is_from_table_snapshot:
            marker = CommitMarkerInfo(0, 1, group.now_ms, CommitMarkerPayload(end_offsets={0: len(group.log)}))
            pieces = table_snapshot(StoredRows(rows_to_table(rows)), marker, group.now_ms, leader_epoch=1)
            rows = [row for piece in pieces for row in decoded(piece)]
        folded = fold(rows).groups["group-1"]
        config = effective_group_config(broker, folded.metadata.config_overrides)
        group.dead_letters = [all_waiting("group-1", folded.partitions.values(), config)]
        assert asked[0] == (0, 0, 1, 2, REJECTED)
        waiting = [(0, 4, 4, 2, EXCEEDED), *asked[2:]]
        assert dead_letter_requests(group) == waiting
        # The leader asks for the same when an administrator resumes the group.
        group.dead_letters.clear()
        assert group.resume() == 0
        assert dead_letter_requests(group) == waiting

    def test_a_group_that_is_resumed_asks_again_for_all_that_it_did_not_hear_of(
        self, group: Group, anna: Member
    ) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT)]})
        asked = dead_letter_requests(group)
        group.dead_letters.clear()
        assert states(group)[0] == (0, 4, RecordState.ARCHIVING)
        assert group.resume() == 0
        assert dead_letter_requests(group) == asked
        assert group.dead_letters[0].replaces_waiting

    def test_a_group_that_is_resumed_asks_whether_a_failure_is_over(self, group: Group) -> None:
        group.tell(ApiKey.DLQ_STATUS_CHANGED, DlqStatusChanged(failure="no such topic"))
        group.settle()
        assert group.resume() == 0
        assert dead_letter_requests(group) == []
        assert [effect.replaces_waiting for effect in group.dead_letters] == [True]


class TestConfiguration:
    def test_a_change_of_the_queue_is_sent_for_records_that_wait(self, group: Group) -> None:
        group.alter_config(errors_deadletterqueue_topic_name="other", errors_deadletterqueue_copy_record_enable="true")
        group.alter_config(share_delivery_count_limit="3")
        assert group.dead_letters == [WriteDeadLetters("group-1", "other", True)]

    def test_without_its_topic_the_records_stay_archiving(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT)]})
        group.alter_config(delete=["errors.deadletterqueue.topic.name"])
        anna.acknowledge({ORDERS_0: [(5, 9, REJECT)]})
        assert states(group)[:2] == [(0, 4, RecordState.ARCHIVING), (5, 9, RecordState.ARCHIVED)]
        assert [effect.dlq_topic for effect in group.dead_letters] == ["dlq", ""]
        assert findings(group) == []


class TestRemovedGroup:
    def test_its_waiting_records_are_dropped(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT), (5, 9, ACCEPT)]})
        anna.leave()
        assert group.dead_letters
        assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
        assert group.dead_letters == []
        assert findings(group) == []

    def test_it_is_no_longer_degraded_whatever_its_writer_reports(self, group: Group, anna: Member) -> None:
        group.tell(ApiKey.DLQ_STATUS_CHANGED, DlqStatusChanged(failure="no such topic"))
        anna.leave()
        assert verify(group.rows, BrokerConfig()).degraded
        assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
        assert verify(group.rows, BrokerConfig()).degraded == {}

    def test_those_of_a_later_group_of_its_name_are_not(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT)]})
        anna.leave()
        asked = group.send_as_admin(ApiKey.DELETE_GROUPS, DeleteGroupsRequest())
        while not group.responses_to_admin(asked):
            group.run_batch()
        # The leader has not heard of the removal yet.
        assert group.pending_count
        values = {"errors_deadletterqueue_topic_name": "other", "share_auto_offset_reset": "earliest"}
        assert group.alter_config(**values) == 0
        (ben,) = joined(group, "ben")
        ben.fetch(max_records=10)
        ben.acknowledge({ORDERS_0: [(5, 5, REJECT)]})
        assert {effect.dlq_topic for effect in group.dead_letters} == {"other"}
        assert dead_letter_requests(group) == [(0, 5, 5, 1, REJECTED)]

    def test_records_of_a_topic_whose_state_is_deleted_are_still_written(self, group: Group, anna: Member) -> None:
        anna.acknowledge({ORDERS_0: [(0, 4, REJECT)]})
        asked = dead_letter_requests(group)
        group.delete_topic("orders")
        group.settle()
        assert not group.leader.partitions
        assert dead_letter_requests(group) == asked


class TestStatus:
    def test_dead_letters_that_cannot_be_written_are_shown_by_the_state_table(self, group: Group) -> None:
        for failure, status in (("no such topic", "DEGRADED"), ("", "ACTIVE")):
            group.tell(ApiKey.DLQ_STATUS_CHANGED, DlqStatusChanged(failure=failure))
            group.settle()
            assert group.rows_of(RecordType.GROUP_STATUS)[-1].payload["status"] == status
            assert group.rows_of(RecordType.GROUP_STATUS)[-1].payload["reason"] in (
                failure,
                "dead-letter records are written again",
            )
            assert verify(group.rows, BrokerConfig()).degraded == ({"group-1": failure} if failure else {})
            assert fold(group.rows).groups["group-1"].dead_letter_failure == failure
        assert findings(group) == []

    def test_a_table_snapshot_holds_it(self, group: Group) -> None:
        group.tell(ApiKey.DLQ_STATUS_CHANGED, DlqStatusChanged(failure="no such topic"))
        group.settle()
        folded = fold(group.rows).groups["group-1"]
        payload = GroupSnapshotPayload(
            records=[record.model_dump(mode="json") for record in folded.metadata.records()],
            status=list(folded.status.values()),
        )
        snapshot = StateRow(
            record_type=RecordType.TABLE_SNAPSHOT, group_id="group-1", payload=payload.model_dump(mode="json")
        )
        assert verify([snapshot], BrokerConfig()).degraded == {"group-1": "no such topic"}
        assert fold([snapshot]).groups["group-1"].dead_letter_failure == "no such topic"

    def test_such_a_group_works_on(self, group: Group, anna: Member) -> None:
        group.tell(ApiKey.DLQ_STATUS_CHANGED, DlqStatusChanged(failure="no such topic"))
        assert anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
        group.restart()
        group.settle()
        assert start_offset(group) == 10
