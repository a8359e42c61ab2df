"""The window of a share-partition: which records count, what opens it, and the span from the start offset."""

from __future__ import annotations

import pytest

from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.core.records import MAX_RUNS
from tests.actor.group_harness import Acknowledgement, Group, Member, findings, group_with, joined

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
ORDERS_0 = ("orders-id", 0)
TEN_MINUTES_MS = 600_000
SESSION_MS = 20_000


@pytest.fixture
def group() -> Group:
    """400 records, a window of 100, and ten minutes before a released record comes again."""
    group = group_with(400)
    values = {
        "share.partition.max.record.locks": "100",
        "share.redelivery.backoff.ms": str(TEN_MINUTES_MS),
        "share.redelivery.backoff.max.ms": str(TEN_MINUTES_MS),
    }
    assert group.alter_config(**values) == 0
    return group


def test_a_release_with_a_long_delay_does_not_stop_the_rest(group: Group) -> None:
    (anna,) = joined(group, "anna")
    assert anna.fetch().acquired == {ORDERS_0: [(0, 99, 1)]}
    anna.acknowledge({ORDERS_0: [(0, 0, RELEASE)]})
    others: list[int] = []
    ranges = [(1, 99, 1)]
    while ranges:
        others += [offset for first, last, _ in ranges for offset in range(first, last + 1)]
        accepted: list[Acknowledgement] = [(first, last, ACCEPT) for first, last, _ in ranges]
        ranges = anna.fetch(acknowledge={ORDERS_0: accepted}, max_wait_ms=0).acquired.get(ORDERS_0, [])
    assert others == list(range(1, 400))

    for _ in range(TEN_MINUTES_MS // SESSION_MS):
        assert anna.fetch(max_wait_ms=0).acquired == {}
        group.advance(SESSION_MS)
        anna.heartbeat()
    assert anna.fetch(max_wait_ms=0).acquired == {ORDERS_0: [(0, 0, 2)]}
    assert findings(group) == []


def test_members_share_the_window(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    assert anna.fetch(max_records=30).acquired == {ORDERS_0: [(0, 29, 1)]}
    assert ben.fetch().acquired == {ORDERS_0: [(30, 99, 1)]}
    assert ben.fetch(acknowledge={ORDERS_0: [(30, 99, ACCEPT)]}).acquired == {ORDERS_0: [(100, 169, 1)]}
    assert anna.acknowledge({ORDERS_0: [(0, 29, ACCEPT)]}).acknowledge_errors == {ORDERS_0: 0}
    assert ben.fetch().acquired == {ORDERS_0: [(170, 199, 1)]}


class TestAParkedFetch:
    """The changes that wake a parked fetch, with the start offset at a record that is held."""

    @pytest.fixture
    def anna(self, group: Group) -> Member:
        """Holds 0..99: the whole window."""
        (anna,) = joined(group, "anna")
        assert anna.fetch().record_count == 100
        return anna

    @pytest.fixture
    def waiting(self, group: Group, anna: Member) -> tuple[Member, int]:
        """Ben, and his fetch."""
        (ben,) = joined(group, "ben")
        sent = ben.send_fetch(max_wait_ms=60_000)
        assert ben.fetched(sent).is_parked
        return ben, sent

    @pytest.mark.parametrize("kind", [ACCEPT, REJECT, RELEASE])
    def test_is_woken_by_what_leaves_the_window(
        self, anna: Member, waiting: tuple[Member, int], kind: AcknowledgeType
    ) -> None:
        ben, sent = waiting
        anna.acknowledge({ORDERS_0: [(50, 59, kind)]})
        assert ben.response_to(sent).acquired == {ORDERS_0: [(100, 109, 1)]}
        assert findings(anna.group) == []

    def test_is_woken_by_locks_that_end(self, group: Group, anna: Member, waiting: tuple[Member, int]) -> None:
        ben, sent = waiting
        group.advance(30_000)
        assert ben.fetched(sent).acquired == {ORDERS_0: [(100, 199, 1)]}
        assert group.leader.partitions[ORDERS_0].share_partition.start_offset == 0

    def test_is_not_woken_by_a_renewal(self, anna: Member, waiting: tuple[Member, int]) -> None:
        ben, sent = waiting
        anna.acknowledge({ORDERS_0: [(50, 59, AcknowledgeType.RENEW)]})
        assert ben.response_to(sent).is_parked


def test_records_that_come_back_from_a_delay_go_first_and_new_ones_wait_for_room(group: Group) -> None:
    assert group.alter_config(**{"share.redelivery.backoff.ms": "5000"}) == 0
    anna, ben = joined(group, "anna", "ben")
    anna.fetch()
    anna.acknowledge({ORDERS_0: [(0, 99, RELEASE)]})
    assert ben.fetch(max_wait_ms=0).acquired == {ORDERS_0: [(100, 199, 1)]}
    group.advance(5_000)
    assert anna.fetch(max_wait_ms=0).acquired == {ORDERS_0: [(0, 99, 2)]}
    assert anna.fetch(acknowledge={ORDERS_0: [(0, 98, ACCEPT)]}, max_wait_ms=0).acquired == {}
    assert anna.fetch(acknowledge={ORDERS_0: [(99, 99, ACCEPT)]}, max_wait_ms=0).acquired == {}
    assert ben.fetch(acknowledge={ORDERS_0: [(100, 109, ACCEPT)]}, max_wait_ms=0).acquired == {
        ORDERS_0: [(200, 209, 1)]
    }
    assert findings(group) == []


def test_records_that_wait_for_their_dead_letters_leave_the_window(group: Group) -> None:
    assert group.alter_config(errors_deadletterqueue_topic_name="dlq") == 0
    (anna,) = joined(group, "anna")
    anna.fetch()
    fetched = anna.fetch(acknowledge={ORDERS_0: [(0, 99, REJECT)]}, max_wait_ms=0)
    assert fetched.acquired == {ORDERS_0: [(100, 199, 1)]}
    share_partition = group.leader.partitions[ORDERS_0].share_partition
    assert [run.state for run in share_partition.runs] == [RecordState.ARCHIVING, RecordState.ACQUIRED]
    assert findings(group) == []


def test_a_lowered_limit_leaves_what_is_in_flight_and_stops_new_records_until_there_is_room(group: Group) -> None:
    assert group.alter_config(share_partition_max_record_locks="200") == 0
    (anna,) = joined(group, "anna")
    assert anna.fetch().record_count == 200
    assert group.alter_config(share_partition_max_record_locks="100") == 0
    assert anna.fetch(acknowledge={ORDERS_0: [(1, 100, ACCEPT)]}, max_wait_ms=0).acquired == {}
    assert anna.fetch(acknowledge={ORDERS_0: [(101, 110, ACCEPT)]}, max_wait_ms=0).acquired == {
        ORDERS_0: [(200, 209, 1)]
    }
    assert findings(group) == []


def test_ten_thousand_runs_hold_new_records_until_some_are_merged() -> None:
    group = group_with(2 * MAX_RUNS)
    values = {"share.redelivery.backoff.ms": "3600000", "share.redelivery.backoff.max.ms": "3600000"}
    assert group.alter_config(**values) == 0
    (anna,) = joined(group, "anna")
    share_partition = group.leader.partitions[ORDERS_0].share_partition
    while anna.fetch(max_records=2_000, max_wait_ms=0).acquired:
        batches: list[Acknowledgement] = []
        (held,) = share_partition.runs.held_by("anna")
        for offset in range(held.first_offset, held.last_offset + 1, 2):
            batches += [(offset, offset, RELEASE), (offset + 1, offset + 1, ACCEPT)]
        anna.acknowledge({ORDERS_0: batches})
    assert len(share_partition.runs) == MAX_RUNS
    assert share_partition.next_offset == MAX_RUNS
    assert findings(group) == []
