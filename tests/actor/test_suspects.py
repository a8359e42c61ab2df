"""Suspects: records that an application may have died of are delivered apart, so that only what kills is given up."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharegroup.core.record_state import AcknowledgeType, RecordState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.internal_messages import MemberEnded
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.share_fetch import ShareFetchResponse
from tests.actor.group_harness import Fetched, Group, Member, PartitionKey, findings, group_with
from tests.support.examples import examples

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
ORDERS_0, ORDERS_1 = ("orders-id", 0), ("orders-id", 1)
LOCK_MS = 30_000


def started(group: Group, member_id: str, process: str) -> Member:
    """A member of a process, with its assignment."""
    member = Member(group, member_id, process=process)
    member.join()
    group.advance(2_000)
    member.take_assignments()
    return member


def end(group: Group, *members: Member) -> None:
    """The process of these members is gone."""
    for member in members:
        group.tell(ApiKey.MEMBER_ENDED, MemberEnded(member_id=member.member_id))
    group.settle()


class TestTurns:
    @pytest.fixture
    def group(self) -> Group:
        """Ten suspects, 0..9 of the first partition, and a hundred records behind them and in the second one."""
        group = group_with(100, 100)
        dying = started(group, "dying", "host:1")
        assert dying.fetch([ORDERS_0], max_records=10).acquired == {ORDERS_0: [(0, 9, 1)]}
        end(group, dying)
        return group

    def test_who_holds_nothing_takes_them_first_and_gets_nothing_beside_them(self, group: Group) -> None:
        anna = started(group, "anna", "host:2")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}
        parked = anna.send_fetch(max_wait_ms=10_000)
        assert anna.fetched(parked).is_parked
        anna.acknowledge({ORDERS_0: [(0, 8, ACCEPT)]})
        assert anna.fetch(max_wait_ms=0).acquired == {}
        anna.acknowledge({ORDERS_0: [(9, 9, ACCEPT)]})
        assert anna.fetch(max_records=20).record_count == 20

    def test_members_of_one_process_hold_them_together(self, group: Group) -> None:
        anna, ben = started(group, "anna", "host:2"), started(group, "ben", "host:2")
        cora = started(group, "cora", "host:3")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}
        sent = ben.send_fetch(max_wait_ms=10_000)
        assert ben.fetched(sent).is_parked
        assert cora.fetch([ORDERS_0], max_records=5).acquired == {ORDERS_0: [(10, 14, 1)]}
        anna.acknowledge({ORDERS_0: [(0, 9, ACCEPT)]})
        assert ben.response_to(sent).record_count > 0

    def test_a_member_that_names_no_process_is_one(self, group: Group) -> None:
        anna, ben = started(group, "anna", ""), started(group, "ben", "")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}
        assert ben.fetch([ORDERS_0], max_records=5).acquired == {ORDERS_0: [(10, 14, 1)]}

    def test_one_holder_is_emptied_for_them_and_all_others_go_on(self) -> None:
        group = group_with(100, 100)
        anna, ben = started(group, "anna", "host:2"), started(group, "ben", "host:3")
        assert anna.fetch([ORDERS_1], max_records=10).record_count == 10
        assert ben.fetch([ORDERS_1], max_records=10).record_count == 10
        dying = started(group, "dying", "host:1")
        dying.fetch([ORDERS_0], max_records=10)
        end(group, dying)

        emptied = anna.send_fetch([ORDERS_0, ORDERS_1], max_wait_ms=10_000)
        assert anna.fetched(emptied).is_parked
        others = ben.fetch([ORDERS_0, ORDERS_1], max_records=10)
        assert others.record_count == 10
        assert all(first >= 10 for first, _, _ in others.acquired.get(ORDERS_0, []))
        anna.acknowledge({ORDERS_1: [(0, 9, ACCEPT)]})
        assert anna.response_to(emptied).acquired == {}, "an acknowledgement completes the parked fetch"
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}

    def test_a_holder_that_does_not_become_empty_makes_room_for_another(self) -> None:
        group = group_with(100, 100)
        anna, ben = started(group, "anna", "host:2"), started(group, "ben", "host:3")
        anna.fetch([ORDERS_1], max_records=10)
        ben.fetch([ORDERS_1], max_records=10)
        dying = started(group, "dying", "host:1")
        dying.fetch([ORDERS_0], max_records=10)
        end(group, dying)
        assert anna.fetch([ORDERS_0, ORDERS_1], max_wait_ms=0).acquired == {}
        for member, held in ((anna, (0, 9)), (ben, (10, 19))):
            member.acknowledge({ORDERS_1: [(*held, AcknowledgeType.RENEW)]})
        group.now_ms += LOCK_MS - 1
        for member, held in ((anna, (0, 9)), (ben, (10, 19))):
            member.acknowledge({ORDERS_1: [(*held, AcknowledgeType.RENEW)]})
        group.now_ms += 1
        assert ben.fetch([ORDERS_0, ORDERS_1], max_wait_ms=0).acquired == {}
        assert anna.fetch(max_records=10, max_wait_ms=0).record_count == 10

    def test_released_records_are_no_suspects(self, group: Group) -> None:
        anna, ben = started(group, "anna", "host:2"), started(group, "ben", "host:3")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}
        anna.acknowledge({ORDERS_0: [(0, 9, RELEASE)]})
        assert ben.fetch([ORDERS_0], max_records=12).acquired == {ORDERS_0: [(0, 9, 3), (10, 11, 1)]}

    def test_a_successor_knows_the_processes_and_the_suspects(self, group: Group) -> None:
        anna, ben = started(group, "anna", "host:2"), started(group, "ben", "host:2")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}
        group.restart()
        group.settle()
        assert ben.fetch(epoch=0, max_wait_ms=0).acquired == {}
        end(group, anna)
        assert ben.fetch().acquired == {ORDERS_0: [(0, 4, 3)]}
        assert findings(group) == []

    def test_a_member_that_comes_back_in_another_process_takes_what_it_holds_with_it(self, group: Group) -> None:
        anna, ben = started(group, "anna", "host:2"), started(group, "ben", "host:2")
        assert anna.fetch().acquired == {ORDERS_0: [(0, 9, 2)]}
        anna.process = "host:9"
        anna.join()
        assert ben.fetch([ORDERS_0], max_records=5).acquired == {ORDERS_0: [(10, 14, 1)]}


@dataclass
class Application:
    """A process whose members take records one by one, and that dies of a guilty one.

    Attributes:
        held: member → what it holds, in the order in which it came.
        fetches: member → its fetch that has no response yet.
    """

    name: str
    members: list[Member]
    held: dict[str, list[tuple[PartitionKey, int, int]]] = field(default_factory=dict)
    fetches: dict[str, int] = field(default_factory=dict)


class Search:
    """Processes that finish all records of a group, or die of guilty ones and are started again."""

    def __init__(
        self, sizes: list[int], guilty: set[tuple[PartitionKey, int]], member_counts: list[int], random: Random
    ) -> None:
        self.group = group_with(*sizes)
        self.guilty = guilty
        self.crash_count = 0
        self._keys = [("orders-id", partition) for partition in range(len(sizes))]
        self._responses: dict[tuple[str, int], Fetched] = {}
        self._random = random
        self._member_count = 0
        self._applications = [self._start(count) for count in member_counts]

    def run(self, limit: int, max_records: int) -> None:
        self.group.alter_config(share_delivery_count_limit=str(limit))
        ends = {key: self.group.topics["orders"][1][key[1]].end for key in self._keys}
        for _ in range(200_000):
            partitions = self.group.leader.partitions
            if all(partitions[key].share_partition.start_offset >= end for key, end in ends.items()):
                return
            application = self._random.choice(self._applications)
            member = self._random.choice(application.members)
            self._take_response(application, member)
            if member.member_id not in application.fetches:
                sent = member.send_fetch(self._keys, max_records=max_records, max_wait_ms=0)
                application.fetches[member.member_id] = sent
                self._settle()
            self._take_response(application, member)
            # Every second time it fetches ahead of what it holds.
            if self._random.random() < 0.5:
                self._work(application, member)
        raise AssertionError(f"records are left: {partitions}")

    @property
    def given_up(self) -> set[tuple[PartitionKey, int]]:
        return {
            ((row.topic_id, row.partition), offset)
            for row in self.group.rows
            for entry in row.transitions
            if entry.to_state is RecordState.ARCHIVED
            for offset in range(entry.first_offset, entry.last_offset + 1)
        }

    def _start(self, member_count: int) -> Application:
        name = f"host:{self._member_count}"
        members = []
        for _ in range(member_count):
            self._member_count += 1
            members.append(started(self.group, f"member-{self._member_count}", name))
        return Application(name, members)

    def _take_response(self, application: Application, member: Member) -> None:
        sent = application.fetches.get(member.member_id, -1)
        fetched = self._responses.pop((member.member_id, sent), None)
        if fetched is not None:
            del application.fetches[member.member_id]
            application.held.setdefault(member.member_id, []).extend(
                (key, first, last) for key, ranges in fetched.acquired.items() for first, last, _ in ranges
            )

    def _settle(self) -> None:
        for response in self.group.settle().responses:
            if response.api_key == ApiKey.SHARE_FETCH:
                fetched = Fetched(parsed(ShareFetchResponse, response.body))
                self._responses[response.member_id, response.correlation_id] = fetched

    def _work(self, application: Application, member: Member) -> None:
        held = application.held.get(member.member_id)
        if not held:
            return
        key, first, last = held.pop(0)
        if any((key, offset) in self.guilty for offset in range(first, last + 1)):
            self.crash_count += 1
            self._applications.remove(application)
            end(self.group, *application.members)
            self._applications.append(self._start(len(application.members)))
        elif member.member_id not in application.fetches:
            member.send_acknowledge({key: [(first, last, ACCEPT)]})
            self._settle()
        else:
            held.insert(0, (key, first, last))


@settings(max_examples=examples(12))
@given(
    sizes=st.lists(st.integers(1, 120) | st.integers(1, 3_000), min_size=1, max_size=2),
    limit=st.integers(2, 10),
    member_counts=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    max_records=st.sampled_from([20, 500, 5_000]),
    guilty_count=st.integers(0, 3),
    seed=st.integers(0, 1_000_000),
)
def test_only_the_guilty_are_given_up_and_each_costs_at_most_its_deliveries(
    sizes: list[int], limit: int, member_counts: list[int], max_records: int, guilty_count: int, seed: int
) -> None:
    random = Random(seed)
    records = [(("orders-id", n), offset) for n, size in enumerate(sizes) for offset in range(size)]
    guilty = set(random.sample(records, min(guilty_count, len(records))))
    search = Search(sizes, guilty, member_counts, random)
    search.run(limit, max_records)
    assert search.given_up == guilty
    assert search.crash_count <= limit * len(guilty)
    assert findings(search.group) == []
