"""A member that outlives the state table: it was deleted and created again, so that leader epochs start again."""

from __future__ import annotations

import pytest

from sharegroup.client.membership import PUSHED_CORRELATION_ID
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatResponse, TopicPartitions
from sharegroup.protocol.share_fetch import AcquiredRecords, PartitionResponse, ShareFetchResponse, TopicResponse
from tests.client.test_member_protocol import EPOCH_MS, LOCK_MS, Driver

EPOCH = 5
ASSIGNMENT = [TopicPartitions(topic_id="o", topic="orders", partitions=[0])]


def joined_response(state_id: str) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(member_epoch=2, assignment=ASSIGNMENT, state_id=state_id)


@pytest.fixture
def driver() -> Driver:
    """A member that knows the table from the response to its heartbeat, and has records that wait."""
    driver = Driver()
    driver.protocol.subscribe(["orders"], driver.now_ms)
    assert driver.sends() == ["join"]
    driver.responds(ApiKey.SHARE_GROUP_HEARTBEAT, joined_response("first"), EPOCH)
    assert driver.sends() == ["fetch"]
    return driver


def test_the_member_joins_the_new_table_s_group(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.announces(1, "second")
    driver.announces(1, "second")
    assert "join" in driver.sends()
    driver.responds(ApiKey.SHARE_GROUP_HEARTBEAT, joined_response("second"), 1)
    assert driver.protocol.standing.is_stable
    assert driver.sends() == ["fetch"]
    assert [record.getMessage() for record in caplog.records] == [
        "event=state_table_replaced group=g before=first now=second"
    ]


def test_records_of_the_old_table_are_not_handed_out() -> None:
    driver = Driver().subscribed("orders")
    driver.announces(EPOCH, "first")
    driver.sends()
    driver.receives(*fetched(driver), EPOCH)
    assert driver.protocol.waiting
    driver.announces(1, "second")
    assert not driver.protocol.waiting


def test_responses_of_the_old_table_s_processor_change_nothing_then(driver: Driver) -> None:
    driver.announces(1, "second")
    count = driver.protocol.standing.response_count
    driver.receives(99, ApiKey.SHARE_FETCH, ShareFetchResponse(), EPOCH)
    assert driver.protocol.standing.response_count == count
    driver.announces(2, "second")
    driver.receives(PUSHED_CORRELATION_ID, ApiKey.SHARE_GROUP_HEARTBEAT, joined_response("second"), 2)
    assert driver.protocol.standing.is_stable


def test_a_lower_epoch_of_the_same_table_is_dropped(driver: Driver) -> None:
    driver.announces(EPOCH - 1, "first")
    assert driver.sends() == []


def fetched(driver: Driver) -> tuple[int, ApiKey, ShareFetchResponse]:
    """The response to the member's fetch, with records."""
    correlation_id = next(number for number, key, _ in driver.pending if key is ApiKey.SHARE_FETCH)
    records = [AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1)]
    partition = PartitionResponse(partition_index=0, acquired_records=records)
    response = ShareFetchResponse(
        lock_deadline_ms=EPOCH_MS + LOCK_MS,
        acquisition_lock_timeout_ms=LOCK_MS,
        responses=[TopicResponse(topic_id="o", partitions=[partition])],
    )
    return correlation_id, ApiKey.SHARE_FETCH, response
