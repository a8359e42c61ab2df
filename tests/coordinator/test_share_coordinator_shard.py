"""The share coordinator on what a real broker wrote, and where its log was pruned."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.coordinator.share_coordinator import UNKNOWN_EPOCH
from sharegroup.coordinator.share_coordinator_shard import ShareCoordinatorShard
from sharegroup.core.record_state import RecordState
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.share_state_records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareStateRecord,
    ShareUpdate,
    decoded,
)

GOLDEN = Path(__file__).parents[1] / "protocol" / "golden" / "kafka_4.3.1"
"""Records of some groups as a Kafka 4.3.1 broker wrote them, and what its coordinator returned in the end."""

TOPIC_ID = "EREREREREREiIiIiIiIiIg"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


def shard(updates_per_snapshot: int = 3) -> ShareCoordinatorShard:
    return ShareCoordinatorShard({TOPIC_ID: 4}, updates_per_snapshot)


def as_returned(batch: StateBatch) -> dict[str, int]:
    return {
        "firstOffset": batch.first_offset,
        "lastOffset": batch.last_offset,
        "deliveryState": int(batch.delivery_state),
        "deliveryCount": batch.delivery_count,
    }


@pytest.fixture(scope="module")
def broker() -> ShareCoordinatorShard:
    """The sum of the log's partitions in one shard: they have no share-partition in common."""
    topics: defaultdict[str, int] = defaultdict(int)
    for response in lines("expected_state.jsonl"):
        topics[response["topicId"]] = max(topics[response["topicId"]], response["partition"] + 1)
    restored = ShareCoordinatorShard(topics, updates_per_snapshot=500)
    for line in lines("share_group_state.jsonl"):
        value = line["value_hex"] and bytes.fromhex(line["value_hex"])
        restored.apply(decoded(bytes.fromhex(line["key_hex"]), value))
    return restored


@pytest.mark.parametrize(
    "expected",
    lines("expected_state.jsonl"),
    ids=lambda line: f"{line['group']}-{line['topicId']}-{line['partition']}",
)
def test_the_records_of_a_broker_add_up_to_what_it_returned(
    broker: ShareCoordinatorShard, expected: dict[str, Any]
) -> None:
    key = SharePartitionKey(expected["group"], expected["topicId"], expected["partition"])
    state, summary = expected["readState"], expected["readStateSummary"]
    response = broker.read_summary(key)
    assert (response.state_epoch, response.leader_epoch, response.start_offset, response.delivery_complete_count) == (
        summary["stateEpoch"],
        summary["leaderEpoch"],
        summary["startOffset"],
        summary["deliveryCompleteCount"],
    )
    if state["errorCode"]:
        with pytest.raises(InvalidRequestError, match=state["errorMessage"]):
            broker.read(key, UNKNOWN_EPOCH, now_ms=0)
        return
    read, records = broker.read(key, UNKNOWN_EPOCH, now_ms=0)
    assert records == []
    assert (read.state_epoch, read.start_offset) == (state["stateEpoch"], state["startOffset"])
    assert [as_returned(batch) for batch in read.state_batches] == state["stateBatches"]


KEY = SharePartitionKey("orders", TOPIC_ID, 1)
AVAILABLE = StateBatch(10, 19, 1, RecordState.AVAILABLE)
ACKNOWLEDGED = StateBatch(12, 14, 2, RecordState.ACKNOWLEDGED)


def change(*batches: StateBatch) -> ShareUpdate:
    return ShareUpdate(
        snapshot_epoch=-1, leader_epoch=0, start_offset=10, delivery_complete_count=3, state_batches=batches
    )


def written(coordinator: ShareCoordinatorShard, *changes: ShareUpdate) -> list[ShareStateRecord]:
    records = coordinator.initialize(KEY, state_epoch=2, start_offset=10, now_ms=5)
    coordinator.apply(records[0])
    for each in changes:
        (record,) = coordinator.write(KEY, 2, each, now_ms=5)
        coordinator.apply(record)
        records.append(record)
    return records


def test_a_log_that_begins_with_an_update_is_read_from_there() -> None:
    _, *updates = written(shard(), change(AVAILABLE), change(ACKNOWLEDGED))
    pruned = shard()
    for record in updates:
        pruned.apply(record)
    (state,) = pruned.states.values()
    assert (state.persisted.start_offset, state.persisted.delivery_complete_count) == (10, 3)
    assert state.persisted.state_batches == (
        StateBatch(10, 11, 1, RecordState.AVAILABLE),
        ACKNOWLEDGED,
        StateBatch(15, 19, 1, RecordState.AVAILABLE),
    )
    assert (state.state_epoch_fence, state.updates_since_snapshot) == (UNKNOWN_EPOCH, 2)


def test_a_write_says_nothing_until_it_is_applied() -> None:
    coordinator = shard()
    written(coordinator)
    before = dict(coordinator.states)
    first = coordinator.write(KEY, 2, change(AVAILABLE), now_ms=9)
    assert coordinator.write(KEY, 2, change(AVAILABLE), now_ms=9) == first
    assert coordinator.states == before


BATCHES = st.builds(
    lambda first, size, count, state: StateBatch(first, first + size, count, state),
    st.integers(0, 40),
    st.integers(0, 9),
    st.integers(1, 4),
    st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED]),
)
WRITES = st.lists(st.lists(BATCHES, max_size=4).map(lambda batches: change(*batches)), max_size=12)


@given(writes=WRITES)
def test_a_snapshot_in_place_of_an_update_tells_the_same(writes: list[ShareUpdate]) -> None:
    with_snapshots, with_updates = shard(), shard(updates_per_snapshot=500)
    records = written(with_snapshots, *writes)
    written(with_updates, *writes)
    (often,), (once,) = with_snapshots.states.values(), with_updates.states.values()
    assert _by_offset(often.persisted) == _by_offset(once.persisted)
    kinds = [type(record.value) for record in records]
    expected = [ShareSnapshot, *[ShareUpdate, ShareUpdate, ShareUpdate, ShareSnapshot] * 3]
    assert kinds == expected[: len(kinds)]


def _by_offset(persisted: ShareSnapshot) -> dict[int, tuple[int, RecordState]]:
    return {
        offset: batch.rank
        for batch in persisted.state_batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
