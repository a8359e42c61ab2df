"""Requests that only read a group: their responses, and that they change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.actor import descriptions
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import GroupIdNotFoundError, InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_description import (
    DescribeConfigsRequest,
    DescribedTopicFilter,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from sharegroup.protocol.messages import Message
from tests.actor.group_harness import Group, Member, group_with, joined, leader_state

ACCEPT = AcknowledgeType.ACCEPT
ORDERS_0 = ("orders-id", 0)


class WrongRequest(Message):
    """The field `include_runs` is true or false."""

    include_runs: str


def offsets(group: Group, **fields: Any) -> dict[str, Any]:
    body = DescribeShareGroupOffsetsRequest.model_validate(fields)
    return group.response_to(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, body)


def read(group: Group) -> tuple[Group, Member]:
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.acknowledge({ORDERS_0: [(2, 3, ACCEPT), (6, 6, ACCEPT)]})
    return group, anna


def test_a_group_and_its_members() -> None:
    group, anna = read(group_with(20))
    response = group.response_to(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest())
    assert response["group_state"] == "Stable"
    (member,) = response["members"]
    assert (member["member_id"], member["member_epoch"]) == ("anna", anna.member_epoch)
    assert member["assignment"] == [{"topic_id": "orders-id", "topic": "orders", "partitions": [0]}]


def test_a_group_that_is_not_there() -> None:
    group = group_with(1, earliest=False)
    assert group.ask(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest()) == GroupIdNotFoundError.code
    assert offsets(group) == {}
    configs = group.response_to(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest())["configs"]
    assert all("own_value" not in config for config in configs)
    assert group.rows == []


def test_configuration() -> None:
    group = group_with(1)
    configs = group.response_to(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest())["configs"]
    by_name = {config.pop("name"): config for config in configs}
    assert by_name["share.auto.offset.reset"] == {"value": "earliest", "own_value": "earliest"}
    assert by_name["share.delivery.count.limit"] == {"value": "5"}


def test_share_partitions_and_what_is_in_flight() -> None:
    group, _ = read(group_with(20))
    (topic,) = offsets(group, include_runs=True)["topics"]
    assert (topic["topic_name"], topic["topic_id"]) == ("orders", "orders-id")
    (partition,) = topic["partitions"]
    assert [(run["first_offset"], run["last_offset"], run["state"]) for run in partition.pop("runs")] == [
        (0, 1, 1),
        (2, 3, 2),
        (4, 5, 1),
        (6, 6, 2),
        (7, 9, 1),
    ]
    assert partition == {
        "partition_index": 0,
        "start_offset": 0,
        "leader_epoch": 1,
        "state_epoch": partition["state_epoch"],
        "next_offset": 10,
        "delivery_complete_count": 3,
        "locked_count": 7,
    }
    assert "runs" not in offsets(group)["topics"][0]["partitions"][0]


def test_chosen_share_partitions() -> None:
    group, _ = read(group_with(20, 20, 20))
    filters = [DescribedTopicFilter(topic_name="orders", partitions=[2, 0, 9]), DescribedTopicFilter(topic_name="no")]
    (topic,) = offsets(group, topics=[chosen.model_dump() for chosen in filters])["topics"]
    assert [partition["partition_index"] for partition in topic["partitions"]] == [0, 2]
    assert offsets(group, topics=[]) == {}


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 7, 100])
def test_pages_make_the_whole(monkeypatch: pytest.MonkeyPatch, page_size: int) -> None:
    group, _ = read(group_with(20, 20, 20))
    whole = pages(group)
    monkeypatch.setattr(descriptions, "MAX_ENTRIES_PER_PAGE", page_size)
    assert pages(group) == whole
    assert len(whole) == 3


def pages(group: Group) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """(Topic id, partition) → ranges in flight."""
    partitions: dict[tuple[str, int], list[tuple[int, int]]] = {}
    begin = None
    while True:
        response = offsets(group, include_runs=True, begin=begin)
        for topic in response["topics"]:
            for partition in topic["partitions"]:
                runs = [(run["first_offset"], run["last_offset"]) for run in partition.get("runs", ())]
                partitions.setdefault((topic["topic_id"], partition["partition_index"]), []).extend(runs)
        begin = response.get("next")
        if begin is None:
            return partitions


@pytest.mark.parametrize(
    ("api_key", "body"),
    [
        (ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest()),
        (ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest()),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest()),
    ],
)
def test_reading_changes_nothing_even_when_locks_and_sessions_are_over(api_key: ApiKey, body: Message) -> None:
    group, _ = read(group_with(20))
    # No Tick comes: what is due by now has not ended.
    group.now_ms += 600_000
    rows, before = list(group.rows), leader_state(group)
    assert group.ask(api_key, body) == 0
    assert (group.rows, leader_state(group)) == (rows, before)
    assert list(group.coordinator.group.state.members) == ["anna"]


def test_a_wrong_field_is_refused() -> None:
    wrong = WrongRequest(include_runs="perhaps")
    assert group_with(1).ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wrong) == InvalidRequestError.code
