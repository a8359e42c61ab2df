"""Membership, session and queue together, driven by hand: what is handed out, what goes back unread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharegroup.client.acquisition import Acquisition
from sharegroup.client.member_protocol import Instant, MemberProtocol
from sharegroup.client.membership import PUSHED_CORRELATION_ID
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import GroupMaxSizeReachedError, InvalidRequestError
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicPartitions
from sharegroup.protocol.internal_messages import ProcessorStarted
from sharegroup.protocol.messages import Message, ResponseEnvelope
from sharegroup.protocol.share_fetch import (
    AcquiredRecords,
    PartitionResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    TopicResponse,
)

EPOCH_MS = 1_000_000
LOCK_MS = 30_000
SETTINGS = MemberSettings(group_id="g", fetch=FetchSettings(max_wait_ms=500, request_timeout_ms=3_000))
TOPIC_IDS = {"orders": "o", "returns": "r"}


class Driver:
    """A member of topics with one partition each, and its two clocks."""

    def __init__(self, settings: MemberSettings = SETTINGS) -> None:
        self.now_ms = 0
        self.protocol = MemberProtocol(settings, 0)
        self.unanswered: list[tuple[int, ApiKey, Message]] = []
        self.last_max_records = 0

    @property
    def at(self) -> Instant:
        return Instant(self.now_ms, EPOCH_MS + self.now_ms)

    def subscribed(self, *topics: str) -> Driver:
        self.protocol.subscribe(topics, self.at)
        self.sends()
        assignment = [TopicPartitions(topic_id=TOPIC_IDS[t], topic=t, partitions=[0]) for t in topics]
        self.answers(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(member_epoch=2, assignment=assignment))
        return self

    def sends(self) -> list[str]:
        """What is sent now: "join", "heartbeat", "leave", "fetch", "acknowledge 0-9:UNREAD", "close" …"""
        requests = self.protocol.next_requests(self.at)
        self.unanswered += requests
        fetches = [body.max_records for _, _, body in requests if isinstance(body, ShareFetchRequest)]
        self.last_max_records = fetches[-1] if fetches else self.last_max_records
        return [_word(body) for _, _, body in requests]

    def answers(self, api_key: ApiKey, body: Message) -> None:
        """Answer the oldest request of this kind."""
        request = next(request for request in self.unanswered if request[1] == api_key)
        self.unanswered.remove(request)
        self.receives(request[0], api_key, body)

    def announces(self, leader_epoch: int) -> None:
        """Announce a processor."""
        self.receives(-1, ApiKey.PROCESSOR_STARTED, ProcessorStarted(), leader_epoch)

    def receives(self, correlation_id: int, api_key: ApiKey, body: Message, leader_epoch: int = -1) -> None:
        envelope = ResponseEnvelope(
            api_key=api_key,
            correlation_id=correlation_id,
            group_id="g",
            member_id="m",
            leader_epoch=leader_epoch,
            body=body.model_dump(mode="json"),
        )
        self.protocol.receive(envelope, self.now_ms)

    def brings(self, *topics: str, first: int = 0, last: int = 9, batch_size: int = 500) -> None:
        """Answer the oldest fetch with records of these topics."""
        records = [
            AcquiredRecords(first_offset=start, last_offset=min(start + batch_size - 1, last), delivery_count=1)
            for start in range(first, last + 1, batch_size)
        ]
        responses = [
            TopicResponse(
                topic_id=TOPIC_IDS[topic], partitions=[PartitionResponse(partition_index=0, acquired_records=records)]
            )
            for topic in topics
        ]
        deadline_ms = EPOCH_MS + self.now_ms + LOCK_MS
        self.answers(
            ApiKey.SHARE_FETCH,
            ShareFetchResponse(lock_deadline_ms=deadline_ms, acquisition_lock_timeout_ms=LOCK_MS, responses=responses),
        )

    def acknowledges(self) -> None:
        """Answer the oldest acknowledgement with success."""
        body = next(body for _, key, body in self.unanswered if key is ApiKey.SHARE_ACKNOWLEDGE)
        assert isinstance(body, ShareAcknowledgeRequest)
        responses = [
            TopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResponse(partition_index=p.partition_index, is_acknowledged=True) for p in topic.partitions
                ],
            )
            for topic in body.topics
        ]
        self.answers(ApiKey.SHARE_ACKNOWLEDGE, ShareFetchResponse(responses=responses))


def _word(body: Message) -> str:
    if isinstance(body, ShareGroupHeartbeatRequest):
        return {0: "join", -1: "leave"}.get(body.member_epoch, "heartbeat")
    assert isinstance(body, ShareFetchRequest | ShareAcknowledgeRequest)
    word = "fetch" if isinstance(body, ShareFetchRequest) else "acknowledge"
    said = [
        f"{topic.topic_id}:{r.first_offset}-{r.last_offset}:{r.acknowledge_types[0].name}"
        for topic in body.topics
        for partition in topic.partitions
        for r in partition.acknowledgement_batches
    ]
    return " ".join(["close" if body.share_session_epoch == -1 else word, *said])


def offsets(acquisition: Acquisition | None) -> list[tuple[str, int, int]] | None:
    return (
        None
        if acquisition is None
        else [(held.topic, held.first_offset, held.last_offset) for held in acquisition.ranges]
    )


def test_an_assigned_member_fetches_ahead_until_enough_acquisitions_wait() -> None:
    driver = Driver(replace(SETTINGS, prefetch_count=2)).subscribed("orders")
    assert driver.sends() == ["fetch"]
    driver.brings("orders", first=0, last=9)
    assert driver.sends() == ["fetch"]
    driver.brings("orders", first=10, last=19)
    assert driver.sends() == []
    assert offsets(driver.protocol.take(driver.at)) == [("orders", 0, 9)]
    assert driver.sends() == ["fetch"]
    assert offsets(driver.protocol.take(driver.at)) == [("orders", 10, 19)]
    assert driver.protocol.take(driver.at) is None


def test_a_member_whose_application_waits_fetches_ever_more_and_before_all_is_taken() -> None:
    fetch = replace(SETTINGS.fetch, max_records=10, batch_size=10, max_ahead_records=40)
    driver = Driver(replace(SETTINGS, fetch=fetch)).subscribed("orders")
    asked = []
    offset = 0
    for _ in range(4):
        driver.sends()
        asked.append(driver.last_max_records)
        driver.brings("orders", first=offset, last=offset + asked[-1] - 1, batch_size=10)
        while driver.protocol.take(driver.at, max_records=10):
            offset += 10
    assert asked == [10, 20, 40, 40]
    driver.sends()
    driver.brings("orders", first=offset, last=offset + 39, batch_size=10)
    taken = [offsets(driver.protocol.take(driver.at, max_records=10))]
    assert driver.sends() == []
    taken.append(offsets(driver.protocol.take(driver.at, max_records=10)))
    assert driver.sends() == ["fetch"]
    assert taken == [[("orders", offset, offset + 9)], [("orders", offset + 10, offset + 19)]]


def test_a_member_that_got_all_there_was_does_not_ask_for_more_nor_before_all_is_taken() -> None:
    fetch = replace(SETTINGS.fetch, max_records=10, batch_size=10, max_ahead_records=40)
    driver = Driver(replace(SETTINGS, fetch=fetch)).subscribed("orders")
    for first, last in ((0, 9), (10, 29), (30, 38)):
        driver.sends()
        driver.brings("orders", first=first, last=last, batch_size=10)
        while driver.protocol.take(driver.at, max_records=10):
            pass
    driver.sends()
    assert driver.last_max_records == 40
    driver.brings("orders", first=39, last=60, batch_size=10)
    driver.protocol.take(driver.at, max_records=10)
    assert driver.sends() == []
    rest = [offsets(driver.protocol.take(driver.at, max_records=10)) for _ in range(3)]
    assert rest == [[("orders", 49, 58)], [("orders", 59, 60)], None]
    driver.sends()
    assert driver.last_max_records == 40


def test_a_member_that_was_too_slow_for_what_it_fetched_ahead_begins_anew() -> None:
    fetch = replace(SETTINGS.fetch, max_records=10, batch_size=10, max_ahead_records=40)
    driver = Driver(replace(SETTINGS, fetch=fetch)).subscribed("orders")
    driver.sends()
    driver.brings("orders", first=0, last=9)
    driver.protocol.take(driver.at, max_records=10)
    assert driver.protocol.take(driver.at, max_records=10) is None
    driver.sends()
    driver.brings("orders", first=10, last=29, batch_size=10)
    driver.protocol.take(driver.at, max_records=10)
    driver.now_ms = LOCK_MS // 2
    assert "acknowledge o:20-29:UNREAD" in driver.sends()
    driver.acknowledges()
    driver.protocol.take(driver.at, max_records=10)
    assert driver.sends() == ["fetch"]
    assert driver.last_max_records == 10


def test_acknowledgements_ride_on_the_fetch_that_taking_makes_room_for() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders")
    taken = driver.protocol.take(driver.at)
    assert taken is not None
    driver.sends()
    driver.brings("orders", first=10, last=19)
    driver.protocol.acknowledge([taken.ranges[0].acknowledgement(AcknowledgeType.ACCEPT)])
    driver.protocol.take(driver.at)
    assert driver.sends() == ["fetch o:0-9:ACCEPT"]


def test_a_batch_whose_locks_have_ended_is_dropped() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders")
    driver.now_ms = LOCK_MS
    assert driver.protocol.take(driver.at) is None


def test_a_batch_that_waits_for_half_of_its_lock_goes_back_and_nothing_is_fetched_until_somebody_asks() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders")
    assert driver.protocol.next_deadline_ms(driver.at) == 5_000
    driver.now_ms = LOCK_MS // 2 - 1
    assert driver.sends() == ["heartbeat"]
    assert driver.protocol.next_deadline_ms(driver.at) == LOCK_MS // 2
    driver.now_ms = LOCK_MS // 2
    assert driver.sends() == ["acknowledge o:0-9:UNREAD"]
    driver.acknowledges()
    assert driver.sends() == []
    assert driver.protocol.take(driver.at) is None
    assert driver.sends() == ["fetch"]


def test_what_is_not_subscribed_any_more_goes_back_unread() -> None:
    driver = Driver().subscribed("orders", "returns")
    driver.sends()
    driver.brings("orders", "returns")
    driver.protocol.subscribe(["returns"], driver.at)
    assert driver.sends() == ["acknowledge o:0-9:UNREAD", "heartbeat"]
    assert offsets(driver.protocol.take(driver.at)) == [("returns", 0, 9)]


def test_records_that_arrive_after_the_member_unsubscribed_go_back_unread() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.protocol.subscribe([], driver.at)
    assert driver.sends() == ["leave"]
    driver.brings("orders")
    assert driver.sends() == ["acknowledge o:0-9:UNREAD"]
    assert not driver.protocol.has_acquisition


def test_a_member_that_nobody_polls_leaves_until_somebody_does() -> None:
    driver = Driver(replace(SETTINGS, max_poll_interval_ms=1_000)).subscribed("orders")
    driver.sends()
    driver.brings()
    assert driver.sends() == ["fetch"]
    assert driver.protocol.next_deadline_ms(driver.at) == 1_000
    driver.now_ms = 1_000
    assert driver.sends() == ["leave"]
    assert driver.protocol.next_deadline_ms(driver.at) == 3_000
    driver.protocol.take(driver.at)
    assert driver.sends() == ["join"]
    driver.now_ms = 1_500
    driver.protocol.polled(driver.now_ms)
    assert driver.protocol.next_deadline_ms(driver.at) == 2_500


def test_standing_tells_membership_and_fetches_that_found_nothing() -> None:
    member = Driver()
    assert not member.protocol.standing.is_stable
    member.subscribed("orders")
    assert (member.protocol.standing.is_stable, member.protocol.standing.member_epoch) == (True, 2)
    assert member.protocol.standing.partition_count == 1
    for answer, empty_fetch_count in [
        (ShareFetchResponse(), 1),
        (ShareFetchResponse(error_code=122), 1),
        (ShareFetchResponse(), 2),
    ]:
        member.now_ms += 5_000
        assert "fetch" in member.sends()
        member.answers(ApiKey.SHARE_FETCH, answer)
        assert member.protocol.standing.empty_fetch_count == empty_fetch_count
    answers = member.protocol.standing.answer_count
    member.now_ms += 5_000
    member.sends()
    member.brings("orders")
    assert member.protocol.standing.empty_fetch_count == 2
    assert member.protocol.standing.answer_count > answers


def test_an_error_of_the_membership_is_told_once() -> None:
    driver = Driver()
    driver.protocol.subscribe(["orders"], driver.at)
    driver.sends()
    driver.answers(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(error_code=GroupMaxSizeReachedError.code))
    assert driver.protocol.has_error
    assert isinstance(driver.protocol.take_error(), GroupMaxSizeReachedError)
    assert not driver.protocol.has_error


@pytest.mark.parametrize("api_key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_GROUP_HEARTBEAT])
def test_an_answer_that_is_not_readable_changes_nothing(api_key: ApiKey) -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    bad = ResponseEnvelope(
        api_key=api_key, correlation_id=PUSHED_CORRELATION_ID, group_id="g", member_id="m", body={"error_code": "?"}
    )
    with pytest.raises(InvalidRequestError, match="error_code"):
        driver.protocol.receive(bad, 0)
    driver.brings("orders")
    assert driver.protocol.has_acquisition


class TestClose:
    def test_the_session_closes_with_what_waits_unread_and_the_group_is_left(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        driver.protocol.close(driver.at)
        assert driver.sends() == ["close o:0-9:UNREAD", "leave"]
        driver.acknowledges()
        assert not driver.protocol.is_done
        driver.answers(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(member_epoch=-1))
        assert driver.protocol.is_done
        assert driver.protocol.next_deadline_ms(driver.at) is None

    def test_records_of_the_fetch_that_was_under_way_go_back_before_the_session_closes(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.protocol.close(driver.at)
        assert driver.sends() == ["acknowledge"]
        driver.brings("orders")
        driver.acknowledges()
        assert driver.sends() == ["close o:0-9:UNREAD", "leave"]

    def test_a_member_that_never_joined_is_done_at_once(self) -> None:
        driver = Driver()
        driver.protocol.close(driver.at)
        assert driver.sends() == []
        assert driver.protocol.is_done

    def test_giving_up_leaves_a_result_for_everything(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        taken = driver.protocol.take(driver.at)
        assert taken is not None
        driver.protocol.acknowledge([taken.ranges[0].acknowledgement(AcknowledgeType.ACCEPT)])
        driver.protocol.close(driver.at)
        driver.sends()
        driver.protocol.give_up()
        assert driver.protocol.is_done is False
        result = driver.protocol.take_results()[0]
        assert (result.topic, result.partition) == ("orders", 0)
        assert result.error is not None
        assert driver.protocol.take_results() == []


def test_the_session_opens_at_once_when_another_processor_is_announced() -> None:
    member = Driver().subscribed("orders")
    assert member.sends() == ["fetch"]
    member.announces(4)
    assert member.sends() == ["fetch"]
    member.receives(member.unanswered[-1][0], ApiKey.SHARE_FETCH, ShareFetchResponse(), leader_epoch=4)
    assert member.sends() == ["fetch"]
    assert member.sends() == []
    member.announces(4)
    assert member.sends() == []
    member.announces(5)
    assert member.sends() == ["fetch"]
    epochs = [body.share_session_epoch for _, _, body in member.unanswered if isinstance(body, ShareFetchRequest)]
    assert epochs == [0, 0, 1, 0]


def test_answers_of_a_processor_that_was_taken_over_from_are_dropped() -> None:
    member = Driver().subscribed("orders")
    member.sends()
    member.announces(4)
    member.sends()
    before = member.protocol.standing
    assignment = [TopicPartitions(topic_id="r", topic="returns", partitions=[0])]
    late = ShareGroupHeartbeatResponse(member_epoch=9, assignment=assignment)
    member.receives(PUSHED_CORRELATION_ID, ApiKey.SHARE_GROUP_HEARTBEAT, late, leader_epoch=3)
    member.announces(3)
    for correlation_id, api_key, _ in list(member.unanswered):
        member.receives(correlation_id, api_key, ShareFetchResponse(), leader_epoch=3)
    assert member.protocol.standing == before
    assert member.sends() == []


def test_a_heartbeat_tells_of_a_takeover_whose_announcement_was_not_seen() -> None:
    member = Driver().subscribed("orders")
    member.sends()
    member.receives(
        PUSHED_CORRELATION_ID, ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(member_epoch=2), leader_epoch=4
    )
    assert member.sends() == []
    member.receives(
        PUSHED_CORRELATION_ID, ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(member_epoch=2), leader_epoch=5
    )
    assert member.sends() == ["fetch"]


def test_an_answer_that_comes_again_is_no_empty_fetch() -> None:
    member = Driver().subscribed("orders")
    member.sends()
    correlation_id = member.unanswered[-1][0]
    for _ in range(2):
        member.receives(correlation_id, ApiKey.SHARE_FETCH, ShareFetchResponse())
    assert member.protocol.standing.empty_fetch_count == 1
