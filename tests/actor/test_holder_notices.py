"""Members that hold records get a notice where another member's fetch waits: when, which of them, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.api_key import ActorRole, ApiKey
from sharegroup.protocol.group_messages import PauseShareGroupRequest
from sharegroup.protocol.messages import parsed
from sharegroup.protocol.share_fetch import ShareFetchResponse
from tests.actor.group_harness import Group, LogPartition, Member, PartitionKey, joined

ORDERS_0, ORDERS_1 = ("orders-id", 0), ("orders-id", 1)
LONG_MS = 15_000


@pytest.fixture
def group() -> Group:
    """A group that reads two partitions with 10 records each."""
    group = Group(topics={"orders": ("orders-id", [LogPartition(0, 10), LogPartition(0, 10)])})
    assert group.alter_config(share_auto_offset_reset="earliest") == 0
    return group


def notices(group: Group, since: int = 0) -> list[str]:
    """The members that got a notice, in order, in the responses from one on."""
    return [
        response.member_id
        for response in group.responses[since:]
        if response.api_key == ApiKey.SHARE_FETCH
        and parsed(ShareFetchResponse, response.body).other_member_waits
        and response.correlation_id == -1
    ]


def wait(member: Member, *keys: PartitionKey) -> None:
    """Fetch with nothing to get."""
    assert member.fetch(keys, max_records=10, max_wait_ms=LONG_MS).is_parked


def hold(member: Member, *keys: PartitionKey, count: int = 10) -> None:
    assert member.fetch(keys, max_records=count * len(keys), batch_size=count).record_count == count * len(keys)


@pytest.mark.parametrize(
    ("waited_ms", "times"),
    [(199, 0), (200, 1), (1_199, 1), (1_200, 2), (2_200, 3)],
)
def test_a_holder_gets_a_notice_after_200_ms_and_then_each_second(group: Group, waited_ms: int, times: int) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    wait(ben, ORDERS_0)
    group.advance(waited_ms)
    assert notices(group) == ["anna"] * times


@pytest.mark.parametrize(
    ("held", "waiting", "expected"),
    [
        # Held partitions; partitions of waiting fetches; members with a notice.
        ({"anna": [ORDERS_0]}, {"ben": [ORDERS_1]}, []),
        ({"anna": [ORDERS_0]}, {"anna": [ORDERS_0]}, []),
        ({"anna": [ORDERS_0, ORDERS_1]}, {"ben": [ORDERS_1]}, ["anna"]),
        ({"anna": [ORDERS_0], "ben": [ORDERS_1]}, {"carol": [ORDERS_0, ORDERS_1]}, ["anna", "ben"]),
        ({"anna": [ORDERS_0]}, {"ben": [ORDERS_0], "carol": [ORDERS_0]}, ["anna"]),
        ({"anna": [ORDERS_0], "ben": [ORDERS_1]}, {"anna": [ORDERS_1], "ben": [ORDERS_0]}, ["anna", "ben"]),
    ],
)
def test_holders_of_the_share_partitions_get_one_notice(
    group: Group,
    held: Mapping[str, Sequence[PartitionKey]],
    waiting: Mapping[str, Sequence[PartitionKey]],
    expected: list[str],
) -> None:
    by_name = {member.member_id: member for member in joined(group, "anna", "ben", "carol")}
    for name, keys in held.items():
        hold(by_name[name], *keys)
    rest = by_name["carol"].fetch([ORDERS_0, ORDERS_1], max_records=20, max_wait_ms=0)
    by_name["carol"].acknowledge({key: [(0, 9, AcknowledgeType.ACCEPT)] for key in rest.acquired})
    for name, keys in waiting.items():
        forgotten = [key for key in held.get(name, ()) if key not in keys]
        assert by_name[name].fetch(keys, forget=forgotten, max_records=10, max_wait_ms=LONG_MS).is_parked
    group.advance(1_000)
    assert notices(group) == expected


def test_a_fetch_that_gets_records_in_time_causes_no_notice(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    wait(ben, ORDERS_0)
    group.advance(100)
    group.grow("orders", 0, 1)
    group.settle()
    group.advance(10_000)
    assert notices(group) == []


def test_without_holders_no_time_is_set_for_a_notice(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    anna.acknowledge({ORDERS_0: [(0, 9, AcknowledgeType.ACCEPT)]})
    wait(ben, ORDERS_0)
    assert group.wakes[ActorRole.LEADER] == group.now_ms + LONG_MS


def test_notices_end_when_the_holder_returns_its_records(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    wait(ben, ORDERS_0)
    group.advance(200)
    before = len(group.responses)
    anna.acknowledge({ORDERS_0: [(0, 9, AcknowledgeType.UNREAD)]})
    group.advance(10_000)
    assert notices(group, before) == []


def test_a_short_fetch_after_the_other_causes_one_notice_a_second(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    for _ in range(6):
        assert ben.fetch([ORDERS_0], max_records=10, max_wait_ms=500).is_parked
        group.advance(500)
    assert notices(group) == ["anna"] * 3


def test_a_paused_group_has_no_notices(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    wait(ben, ORDERS_0)
    assert group.ask(ApiKey.PAUSE_SHARE_GROUP, PauseShareGroupRequest()) == 0
    group.advance(10_000)
    assert notices(group) == []


def test_a_holder_that_wants_no_responses_gets_no_notice(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    anna.reply_partition = -1
    anna.acknowledge({ORDERS_0: [(0, 0, AcknowledgeType.ACCEPT)]})
    wait(ben, ORDERS_0)
    group.advance(10_000)
    assert notices(group) == []


def test_after_a_takeover_the_next_fetch_that_waits_causes_them(group: Group) -> None:
    anna, ben = joined(group, "anna", "ben")
    hold(anna, ORDERS_0)
    wait(ben, ORDERS_0)
    group.restart()
    group.settle()
    group.advance(1_000)
    assert notices(group) == []
    for member in (anna, ben):
        member.session_epoch = 0
        wait(member, ORDERS_0)
    group.advance(200)
    assert notices(group) == ["anna"]
    assert group.responses[-1].leader_epoch == 2
