"""Membership, session and queue together, driven by hand: what is handed out, what goes back unread."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from sharegroup.client.exchange import Request
from sharegroup.client.held_records import Acquisition, HeldRange, ReadRange
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.client.membership import PUSHED_CORRELATION_ID, MemberState
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.core.acquisition import AcquireMode
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    ApiError,
    GroupMaxSizeReachedError,
    GroupQuarantinedError,
    InvalidRecordStateError,
    InvalidRequestError,
    ShareSessionNotFoundError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
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
ACCEPTED = ShareFetchResponse(
    responses=[TopicResponse(topic_id="o", partitions=[PartitionResponse(partition_index=0, is_acknowledged=True)])]
)


class Driver:
    """A member of topics with one partition each, and its clock; that of the request partition is 1,000 s ahead."""

    def __init__(self, settings: MemberSettings = SETTINGS, publishes_time: bool = True) -> None:
        self.now_ms = 0
        self._publishes_time = publishes_time
        self.protocol = MemberProtocol(settings, 0)
        self.pending: list[Request[Message]] = []
        self.last_max_records = 0

    def subscribed(self, *topics: str) -> Driver:
        self.protocol.subscribe(topics, self.now_ms)
        self.sends()
        assignment = [TopicPartitions(topic_id=TOPIC_IDS[t], topic=t, partitions=[0]) for t in topics]
        self.responds(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(member_epoch=2, assignment=assignment))
        return self

    def sends(self) -> list[str]:
        """Send requests; return them: "join", "heartbeat", "leave", "fetch", "acknowledge 0-9:UNREAD", "close" …"""
        requests = self.protocol.next_requests(self.now_ms)
        self.pending += requests
        fetches = [body.max_records for _, _, body in requests if isinstance(body, ShareFetchRequest)]
        self.last_max_records = fetches[-1] if fetches else self.last_max_records
        return [_word(body) for _, _, body in requests]

    def responds(self, api_key: ApiKey, body: Message, leader_epoch: int = -1) -> None:
        """Respond to the oldest request of this kind."""
        request = next(request for request in self.pending if request[1] == api_key)
        self.pending.remove(request)
        self.receives(request[0], api_key, body, leader_epoch)

    def refuses(self, first: int | None = None, last: int = 0) -> None:
        """Respond to the oldest acknowledgement of "orders" with an error, and with acquired records."""
        request = next(request for request in self.pending if ":0-9:" in _word(request[2]))
        self.pending.remove(request)
        acquired = [] if first is None else [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)]
        partition = PartitionResponse(
            partition_index=0,
            is_acknowledged=True,
            acknowledge_error_code=InvalidRecordStateError.code,
            acquired_records=acquired,
        )
        response = ShareFetchResponse(
            lock_deadline_ms=EPOCH_MS + self.now_ms + LOCK_MS,
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[TopicResponse(topic_id=TOPIC_IDS["orders"], partitions=[partition])],
        )
        self.receives(request[0], request[1], response)

    def announces(self, leader_epoch: int, state_id: str = "") -> None:
        """Announce a processor."""
        self.receives(-1, ApiKey.PROCESSOR_STARTED, ProcessorStarted(state_id=state_id), leader_epoch)

    def receives(self, correlation_id: int, api_key: ApiKey, body: Message, leader_epoch: int = -1) -> None:
        envelope = ResponseEnvelope(
            api_key=api_key,
            correlation_id=correlation_id,
            group_id="g",
            member_id="m",
            leader_epoch=leader_epoch,
            published_ms=EPOCH_MS + self.now_ms if self._publishes_time else -1,
            body=body.model_dump(mode="json"),
        )
        self.protocol.receive(envelope, self.now_ms)

    def brings(
        self, *topics: str, first: int = 0, last: int = 9, batch_size: int = 500, lock_ms: int = LOCK_MS
    ) -> None:
        """Respond to the oldest fetch with records of these topics, whose locks go on for so long."""
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
        deadline_ms = EPOCH_MS + self.now_ms + lock_ms
        self.responds(
            ApiKey.SHARE_FETCH,
            ShareFetchResponse(lock_deadline_ms=deadline_ms, acquisition_lock_timeout_ms=LOCK_MS, responses=responses),
        )

    def acknowledges(self) -> None:
        """Respond to the oldest acknowledgement with success."""
        body = next(body for _, key, body in self.pending if key is ApiKey.SHARE_ACKNOWLEDGE)
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
        self.responds(ApiKey.SHARE_ACKNOWLEDGE, ShareFetchResponse(responses=responses))


def read(held: HeldRange) -> ReadRange:
    """A range with a record at each offset."""
    offsets = range(held.first_offset, held.last_offset + 1)
    return ReadRange(
        held, [confluent_kafka.Message(topic=held.topic, partition=0, offset=offset) for offset in offsets]
    )


def _word(body: Message) -> str:
    if isinstance(body, ShareGroupHeartbeatRequest):
        return {0: "join", -1: "leave"}.get(body.member_epoch, "heartbeat")
    assert isinstance(body, ShareFetchRequest | ShareAcknowledgeRequest)
    word = "fetch" if isinstance(body, ShareFetchRequest) else "acknowledge"
    texts = [
        f"{topic.topic_id}:{first}-{last}:{kind.name}"
        for topic in body.topics
        for partition in topic.partitions
        for r in partition.acknowledgement_batches
        for first, last, kind in r.batch.runs()
    ]
    return " ".join(["close" if body.share_session_epoch == -1 else word, *texts])


def offsets(acquisition: Acquisition | None) -> list[tuple[str, int, int]] | None:
    return (
        None
        if acquisition is None
        else [(held.topic, held.first_offset, held.last_offset) for held in acquisition.ranges]
    )


def test_records_that_were_read_ahead_and_returned_since_are_not_delivered() -> None:
    driver = Driver(SETTINGS).subscribed("orders", "returns")
    driver.sends()
    driver.brings("orders", "returns")
    waiting = driver.protocol.waiting.after(0)
    assert waiting is not None
    parts = [(waiting.number, read(held)) for held in waiting.ranges]
    assert [part.held.topic for _, part in parts] == ["orders", "returns"]
    driver.protocol.subscribe(["returns"], driver.now_ms)
    assert driver.protocol.deliver(parts, driver.now_ms) == [False, True]


def test_an_assigned_member_fetches_ahead_until_an_acquisition_waits() -> None:
    driver = Driver(SETTINGS).subscribed("orders")
    assert driver.sends() == ["fetch"]
    driver.brings("orders", first=0, last=9)
    assert driver.sends() == []
    assert offsets(driver.protocol.take(driver.now_ms)) == [("orders", 0, 9)]
    assert driver.sends() == ["fetch"]
    driver.brings("orders", first=10, last=19)
    assert offsets(driver.protocol.take(driver.now_ms)) == [("orders", 10, 19)]
    assert driver.protocol.take(driver.now_ms) is None


POLLING = replace(SETTINGS, fetch=replace(SETTINGS.fetch, max_records=1, max_ahead_records=1_000, max_poll_records=100))
"""The default of an application that polls: from one record on."""
EXACT = replace(SETTINGS, fetch=replace(SETTINGS.fetch, max_records=10, max_ahead_records=1_000, max_poll_records=10))
"""An application that has set its polls to 10 records."""


class Application:
    """Polls a member whose topic has records without end, and works on each for a while.

    Args:
        reading_ms: time in which a record comes from the log; 0 is not measured.
    """

    def __init__(self, settings: MemberSettings, record_ms: float, poll_ms: int = 0, reading_ms: int = 0) -> None:
        self.driver = Driver(settings).subscribed("orders")
        self.polls: list[int] = []
        self.fetches: list[int] = []
        self._record_ms = record_ms
        self._poll_ms = poll_ms
        self._reading_ms = reading_ms
        self._acquired_count = 0

    def fetch(self, record_count: int | None = None) -> None:
        """Respond to a fetch that is sent, if one is."""
        if "fetch" in " ".join(self.driver.sends()):
            count = record_count or self.driver.last_max_records
            self.fetches.append(self.driver.last_max_records)
            last = self._acquired_count + count - 1
            self.driver.brings("orders", first=self._acquired_count, last=last, batch_size=count)
            self._acquired_count += count
            if self._reading_ms:
                self.driver.protocol.pace.read(count, count * self._reading_ms)

    def poll(self) -> int:
        """Take what a poll returns, and work on it; 0 when nothing waits."""
        protocol, now_ms = self.driver.protocol, self.driver.now_ms
        protocol.polled(now_ms)
        waiting = protocol.waiting.after(0)
        if waiting is None:
            protocol.ask(now_ms)
            return 0
        held = waiting.ranges[0]
        count = min(protocol.pace.poll_records, held.record_count)
        part = held.cut(held.first_offset, held.first_offset + count - 1)
        assert protocol.deliver([(waiting.number, read(part))], now_ms) == [True]
        self.polls.append(count)
        self.driver.now_ms += self._poll_ms + round(count * self._record_ms)
        return count

    def run(self, poll_count: int) -> Application:
        """Poll and fetch in turn; the response to a fetch comes when everything is worked off."""
        while len(self.polls) < poll_count:
            self.fetch()
            while self.poll():
                pass
        return self


def test_polls_and_fetches_of_a_fast_application_grow_from_one_record_to_their_bounds() -> None:
    application = Application(POLLING, record_ms=0).run(60)
    assert application.polls[:2] == [1, 8]
    assert all(after <= 8 * max(application.polls[:index]) for index, after in enumerate(application.polls) if index)
    assert max(application.polls) == 100
    assert application.fetches[:2] == [1, 64]
    assert max(application.fetches) == 1_000


@pytest.mark.parametrize(("record_ms", "poll_records", "ahead_records"), [(50, 1, 3), (8, 2, 18)])
def test_a_slow_application_gets_what_it_works_off_in_a_moment(
    record_ms: int, poll_records: int, ahead_records: int
) -> None:
    application = Application(POLLING, record_ms).run(100)
    # A larger poll is tried now and then, and not kept.
    assert max(application.polls) <= 2 * poll_records
    assert sum(size > poll_records for size in application.polls) <= 4
    assert application.fetches[0] == 1
    assert max(application.fetches) == ahead_records


def test_polls_grow_where_the_application_writes_its_records_together() -> None:
    application = Application(POLLING, record_ms=0.01, poll_ms=40).run(60)
    assert application.polls[0] == 1
    assert application.polls.index(100) <= 20
    assert application.driver.protocol.pace.poll_records == 100


def test_time_that_a_commit_takes_is_not_work() -> None:
    application = Application(POLLING, record_ms=0)
    for _ in range(10):
        application.fetch()
        if application.poll():
            application.driver.protocol.pace.polled(application.driver.now_ms)
            application.driver.now_ms += 200
    assert max(application.polls) > 8


@pytest.mark.parametrize("settings", [POLLING, EXACT], ids=["default", "max.poll.records"])
def test_a_slow_log_bounds_fetches_by_what_arrives_in_a_quarter_of_the_locks_time(settings: MemberSettings) -> None:
    application = Application(settings, record_ms=0, reading_ms=1_500).run(20)
    assert application.fetches[0] == settings.fetch.max_records
    assert max(application.fetches[1:]) == LOCK_MS // 4 // 1_500


def test_polls_that_were_set_have_their_size_from_the_first_on() -> None:
    application = Application(EXACT, record_ms=50).run(20)
    assert set(application.polls) == {10}
    assert set(application.fetches) == {10}


def test_a_member_that_got_all_there_was_does_not_ask_for_more() -> None:
    application = Application(EXACT, record_ms=0)
    for _ in range(5):
        application.fetch(record_count=9)
        while application.poll():
            pass
    assert application.fetches == [10] * 5


def test_the_next_fetch_is_sent_before_all_is_taken() -> None:
    application = Application(EXACT, record_ms=0).run(2)
    application.fetch()
    assert application.fetches == [10, 80, 640]
    assert application.driver.sends() == []
    for _ in range(31):
        application.poll()
    assert application.driver.sends() == []
    application.poll()
    assert application.driver.sends() == ["fetch"]


LIMITED = replace(EXACT, fetch=replace(EXACT.fetch, acquire_mode=AcquireMode.RECORD_LIMIT, max_ahead_records=0))
"""An application that gets exactly the records of its polls, 10 each."""


class TestRecordLimit:
    def test_nothing_is_fetched_before_the_application_asks(self) -> None:
        application = Application(LIMITED, record_ms=0)
        driver = application.driver
        assert driver.sends() == []
        for first in (0, 10):
            assert application.poll() == 0
            application.fetch()
            assert application.poll() == 10
            assert driver.sends() == []
            driver.protocol.acknowledge([acknowledged(first, first + 9)])
            assert driver.sends() == [f"acknowledge o:{first}-{first + 9}:ACCEPT"]
            driver.acknowledges()
            assert driver.sends() == []

    def test_acknowledgements_of_a_poll_come_with_its_fetch(self) -> None:
        application = Application(LIMITED, record_ms=0).run(1)
        driver = application.driver
        driver.protocol.acknowledge_later([acknowledged(0, 9)], driver.now_ms)
        assert application.poll() == 0
        assert driver.sends() == ["fetch o:0-9:ACCEPT"]

    def test_a_member_that_takes_whole_acquisitions_fetches_when_it_takes(self) -> None:
        fetch = replace(SETTINGS.fetch, acquire_mode=AcquireMode.RECORD_LIMIT)
        driver = Driver(replace(SETTINGS, fetch=fetch)).subscribed("orders")
        assert driver.sends() == []
        for first in (0, 10):
            assert driver.protocol.take(driver.now_ms) is None
            assert driver.sends() == ["fetch"]
            driver.brings("orders", first=first, last=first + 9)
            assert offsets(driver.protocol.take(driver.now_ms)) == [("orders", first, first + 9)]
            assert driver.sends() == []

    def test_no_fetch_is_larger_than_its_poll(self) -> None:
        fetch = replace(LIMITED.fetch, max_records=1, max_poll_records=100)
        application = Application(replace(LIMITED, fetch=fetch), record_ms=0).run(30)
        assert application.fetches == application.polls
        assert max(application.polls) == 100

    def test_what_is_left_of_a_fetch_is_taken_before_there_is_another_one(self) -> None:
        application = Application(LIMITED, record_ms=0)
        driver = application.driver
        application.poll()
        application.fetch(record_count=25)
        for count in (10, 10, 5):
            assert driver.sends() == []
            assert application.poll() == count
        assert driver.sends() == []
        application.poll()
        assert driver.sends() == ["fetch"]


class TestAnApplicationThatPollsNoMore:
    def test_what_waits_goes_back_after_a_second(self) -> None:
        application = Application(POLLING, record_ms=50)
        application.fetch()
        application.poll()
        application.fetch()
        driver = application.driver
        polled_ms = driver.now_ms - 50
        driver.now_ms = polled_ms + 999
        assert driver.sends() == []
        driver.now_ms = polled_ms + 1_000
        assert driver.sends() == ["acknowledge o:1-1:UNREAD"]
        driver.acknowledges()
        assert driver.sends() == []
        assert application.poll() == 0
        assert driver.sends() == ["fetch"]

    def test_the_usual_time_between_its_polls_counts_three_times(self) -> None:
        fetch = replace(POLLING.fetch, max_poll_records=1)
        application = Application(replace(POLLING, fetch=fetch), record_ms=700).run(10)
        driver = application.driver
        application.fetch()
        polled_ms = driver.now_ms
        driver.protocol.polled(polled_ms)
        driver.now_ms = polled_ms + 2_099
        assert "UNREAD" not in " ".join(driver.sends())
        driver.now_ms = polled_ms + 2_100
        assert "UNREAD" in " ".join(driver.sends())

    def test_a_member_without_polls_keeps_what_waits(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        driver.now_ms = 4_000
        assert driver.sends() == []


def idle(settings: MemberSettings = POLLING) -> tuple[Driver, int]:
    """A member with a record that waits, and the time of its application's last poll, ms."""
    application = Application(settings, record_ms=50)
    application.fetch()
    application.poll()
    application.fetch()
    return application.driver, application.driver.now_ms - 50


def notice(driver: Driver) -> None:
    driver.receives(-1, ApiKey.SHARE_FETCH, ShareFetchResponse(other_member_waits=True))


RETURNED = "acknowledge o:1-1:UNREAD"


class TestANoticeThatAnotherMemberWaits:
    def test_what_waits_goes_back_200_ms_after_the_last_poll(self) -> None:
        driver, polled_ms = idle()
        notice(driver)
        assert driver.protocol.next_deadline_ms(driver.now_ms) == polled_ms + 200
        driver.now_ms = polled_ms + 199
        assert driver.sends() == []
        driver.now_ms = polled_ms + 200
        assert driver.sends() == [RETURNED]

    def test_it_goes_back_at_once_if_the_last_poll_was_earlier(self) -> None:
        driver, polled_ms = idle()
        driver.now_ms = polled_ms + 500
        assert driver.sends() == []
        notice(driver)
        assert driver.sends() == [RETURNED]

    def test_nothing_is_fetched_before_the_next_poll(self) -> None:
        driver, polled_ms = idle()
        notice(driver)
        driver.now_ms = polled_ms + 200
        driver.sends()
        driver.acknowledges()
        driver.now_ms = polled_ms + 3_000
        assert driver.sends() == []
        driver.protocol.ask(driver.now_ms)
        assert driver.sends() == ["fetch"]

    def test_an_application_that_polls_keeps_what_waits_until_it_stops(self) -> None:
        driver, _ = idle()
        notice(driver)
        for _ in range(5):
            driver.now_ms += 100
            driver.protocol.polled(driver.now_ms)
            assert RETURNED not in driver.sends()
        driver.now_ms += 200
        assert driver.sends() == [RETURNED]

    @pytest.mark.parametrize(("later_ms", "returned"), [(1_299, [RETURNED]), (1_300, []), (5_000, [])])
    def test_it_counts_for_a_second_and_a_half(self, later_ms: int, returned: list[str]) -> None:
        driver, _ = idle()
        notice(driver)
        driver.now_ms += later_ms
        driver.protocol.polled(driver.now_ms)
        driver.now_ms += 200
        assert [sent for sent in driver.sends() if "UNREAD" in sent] == returned

    def test_a_later_one_counts_from_its_own_time(self) -> None:
        driver, _ = idle()
        notice(driver)
        driver.now_ms += 1_000
        driver.protocol.polled(driver.now_ms)
        notice(driver)
        driver.now_ms += 1_000
        driver.protocol.polled(driver.now_ms)
        driver.now_ms += 200
        assert driver.sends() == [RETURNED]

    def test_a_poll_that_waits_counts_as_polling_until_its_end(self) -> None:
        driver, polled_ms = idle()
        notice(driver)
        driver.protocol.polls.wait_begins()
        driver.now_ms = polled_ms + 1_200
        assert driver.sends() == []
        driver.protocol.polls.wait_ends(driver.now_ms)
        notice(driver)
        driver.now_ms += 199
        assert driver.sends() == []
        driver.now_ms += 1
        assert driver.sends() == [RETURNED]

    def test_a_member_without_polls_keeps_what_waits(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        notice(driver)
        driver.now_ms = 1_000
        assert driver.sends() == []

    def test_it_changes_nothing_while_nothing_waits(self) -> None:
        driver = Driver(POLLING).subscribed("orders")
        assert driver.sends() == ["fetch"]
        notice(driver)
        driver.now_ms = 1_000
        assert driver.sends() == []


def test_what_the_thread_waits_in_other_polls_is_not_work() -> None:
    application = Application(POLLING, record_ms=0)
    for _ in range(10):
        application.fetch()
        while application.poll():
            application.driver.now_ms += 3_000
            application.driver.protocol.waited_ms += 3_000
    assert max(application.polls) == 100


class TestDelivery:
    def test_a_part_is_delivered_once_and_the_rest_waits(self) -> None:
        driver = Driver(EXACT).subscribed("orders")
        driver.sends()
        driver.brings("orders")
        waiting = driver.protocol.waiting.after(0)
        assert waiting is not None
        held = waiting.ranges[0]
        part = waiting.number, read(held.cut(2, 4))
        assert driver.protocol.deliver([part], driver.now_ms) == [True]
        assert offsets(driver.protocol.waiting.after(0)) == [("orders", 0, 1), ("orders", 5, 9)]
        assert driver.protocol.waiting.after(waiting.number) is None

    def test_what_went_back_is_not_delivered(self) -> None:
        driver = Driver(EXACT).subscribed("orders")
        driver.sends()
        driver.brings("orders")
        waiting = driver.protocol.waiting.after(0)
        assert waiting is not None
        driver.protocol.subscribe(["returns"], driver.now_ms)
        part = waiting.number, read(waiting.ranges[0])
        assert driver.protocol.deliver([part], driver.now_ms) == [False]

    def test_records_whose_locks_have_ended_are_not_delivered(self) -> None:
        driver = Driver(EXACT).subscribed("orders")
        driver.sends()
        driver.brings("orders")
        waiting = driver.protocol.waiting.after(0)
        assert waiting is not None
        driver.now_ms = LOCK_MS
        part = waiting.number, read(waiting.ranges[0])
        assert driver.protocol.deliver([part], driver.now_ms) == [False]
        assert not driver.protocol.waiting

    def test_acknowledgements_wait_for_the_next_fetch_as_long_as_records_wait(self) -> None:
        driver = Driver(EXACT).subscribed("orders")
        driver.sends()
        driver.brings("orders")
        waiting = driver.protocol.waiting.after(0)
        assert waiting is not None
        held = waiting.ranges[0]
        driver.protocol.deliver([(waiting.number, read(held.cut(0, 4)))], driver.now_ms)
        accepted = held.cut(0, 4).acknowledgement(AcknowledgeType.ACCEPT)
        driver.protocol.acknowledge_later([accepted], driver.now_ms)
        assert not driver.protocol.may_send(driver.now_ms)
        assert driver.sends() == []
        driver.protocol.deliver([(waiting.number, read(held.cut(5, 9)))], driver.now_ms)
        assert driver.protocol.may_send(driver.now_ms)
        assert driver.sends() == ["fetch o:0-4:ACCEPT"]

    def test_acknowledgements_do_not_wait_for_long(self) -> None:
        driver = Driver(EXACT).subscribed("orders")
        driver.sends()
        driver.brings("orders")
        waiting = driver.protocol.waiting.after(0)
        assert waiting is not None
        held = waiting.ranges[0]
        driver.protocol.deliver([(waiting.number, read(held.cut(0, 4)))], driver.now_ms)
        driver.protocol.acknowledge_later([held.cut(0, 4).acknowledgement(AcknowledgeType.ACCEPT)], driver.now_ms)
        assert driver.protocol.next_deadline_ms(driver.now_ms) == driver.now_ms + 50
        driver.now_ms += 50
        assert driver.sends() == ["acknowledge o:0-4:ACCEPT"]


class TestRecordsThatAreAcquiredAgainAfterTheirLocksEnded:
    @pytest.fixture
    def driver(self) -> Driver:
        """The application works on the records 0 to 9 of an acquisition; 5 to 14 wait."""
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        assert driver.protocol.take(driver.now_ms) is not None
        driver.sends()
        driver.now_ms = LOCK_MS
        driver.brings("orders", first=5, last=14)
        return driver

    def test_acknowledgements_of_the_earlier_delivery_are_sent_and_the_rest_goes_back(self, driver: Driver) -> None:
        driver.protocol.acknowledge([acknowledged(5, 9)])
        assert driver.protocol.take(driver.now_ms) is None
        assert driver.sends()[0] == "fetch o:5-9:ACCEPT o:10-14:UNREAD"

    def test_a_return_of_waiting_records_replaces_no_acknowledgement(self, driver: Driver) -> None:
        driver.protocol.acknowledge_later([acknowledged(5, 9)], driver.now_ms)
        driver.protocol.return_waiting("the query stops", driver.now_ms)
        assert driver.sends()[0] == "acknowledge o:5-9:ACCEPT o:10-14:UNREAD"

    def test_other_waiting_records_are_delivered(self, driver: Driver) -> None:
        driver.protocol.acknowledge([acknowledged(0, 4)])
        assert offsets(driver.protocol.take(driver.now_ms)) == [("orders", 5, 14)]


def acknowledged(first: int, last: int) -> Acknowledgement:
    return Acknowledgement("o", 0, first, last, AcknowledgeType.ACCEPT, topic="orders")


def test_acknowledgements_ride_on_the_fetch_that_taking_makes_room_for() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders")
    taken = driver.protocol.take(driver.now_ms)
    assert taken is not None
    driver.sends()
    driver.brings("orders", first=10, last=19)
    driver.protocol.acknowledge([taken.ranges[0].acknowledgement(AcknowledgeType.ACCEPT)])
    driver.protocol.take(driver.now_ms)
    assert driver.sends() == ["fetch o:0-9:ACCEPT"]


def test_a_batch_whose_locks_have_ended_is_dropped() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders")
    driver.now_ms = LOCK_MS
    assert driver.protocol.take(driver.now_ms) is None


def test_a_batch_that_waits_for_half_of_its_lock_goes_back_and_nothing_is_fetched_until_somebody_asks() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.brings("orders")
    driver.now_ms = LOCK_MS // 2 - 1
    assert driver.sends() == ["heartbeat"]
    assert driver.protocol.next_deadline_ms(driver.now_ms) == LOCK_MS // 2
    driver.now_ms = LOCK_MS // 2
    assert driver.sends() == ["acknowledge o:0-9:UNREAD"]
    driver.acknowledges()
    assert driver.sends() == []
    assert driver.protocol.take(driver.now_ms) is None
    assert driver.sends() == ["fetch"]


class TestHeldRecords:
    """A member needs signs of life while records are locked to it."""

    def test_records_are_held_from_the_response_to_that_of_their_acknowledgement(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        assert not driver.protocol.results.locks.are_held(driver.now_ms)
        driver.brings("orders")
        assert driver.protocol.results.locks.are_held(driver.now_ms), "they wait for the application"
        taken = driver.protocol.take(driver.now_ms)
        assert taken is not None
        driver.protocol.acknowledge([held.acknowledgement(AcknowledgeType.ACCEPT) for held in taken.ranges])
        driver.sends()
        assert driver.protocol.results.locks.are_held(driver.now_ms)
        driver.responds(ApiKey.SHARE_FETCH, ACCEPTED)
        assert not driver.protocol.results.locks.are_held(driver.now_ms)

    @pytest.mark.parametrize("sends_at_the_end", [True, False])
    def test_records_whose_locks_ended_do_not_hide_those_that_came_with_the_refusal(
        self, sends_at_the_end: bool
    ) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        late = driver.protocol.take(driver.now_ms)
        assert late is not None
        driver.now_ms = LOCK_MS + 1
        if sends_at_the_end:
            driver.sends()
            assert not driver.protocol.results.locks.are_held(driver.now_ms)
        driver.protocol.acknowledge([held.acknowledgement(AcknowledgeType.ACCEPT) for held in late.ranges])
        driver.sends()
        driver.refuses(first=10, last=19)
        assert driver.protocol.results.locks.are_held(driver.now_ms)

    def test_a_refused_renewal_leaves_the_lock_to_its_end(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        taken = driver.protocol.take(driver.now_ms)
        assert taken is not None
        driver.protocol.acknowledge([held.acknowledgement(AcknowledgeType.RENEW) for held in taken.ranges])
        driver.sends()
        driver.refuses()
        driver.sends()
        assert driver.protocol.results.locks.are_held(LOCK_MS - 1)
        assert not driver.protocol.results.locks.are_held(LOCK_MS + 1)


def test_what_is_not_subscribed_any_more_goes_back_unread() -> None:
    driver = Driver().subscribed("orders", "returns")
    driver.sends()
    driver.brings("orders", "returns")
    driver.protocol.subscribe(["returns"], driver.now_ms)
    assert driver.sends() == ["acknowledge o:0-9:UNREAD", "heartbeat"]
    assert offsets(driver.protocol.take(driver.now_ms)) == [("returns", 0, 9)]


def test_records_that_arrive_after_the_member_unsubscribed_go_back_unread() -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    driver.protocol.subscribe([], driver.now_ms)
    assert driver.sends() == ["leave"]
    driver.brings("orders")
    assert driver.sends() == ["acknowledge o:0-9:UNREAD"]
    assert not driver.protocol.waiting


def test_a_member_that_nobody_polls_leaves_until_somebody_does() -> None:
    driver = Driver(replace(SETTINGS, max_poll_interval_ms=1_000)).subscribed("orders")
    driver.sends()
    driver.brings()
    assert driver.sends() == ["fetch"]
    assert driver.protocol.next_deadline_ms(driver.now_ms) == 1_000
    driver.now_ms = 1_000
    assert driver.sends() == ["leave"]
    assert driver.protocol.next_deadline_ms(driver.now_ms) == 3_000
    driver.now_ms = 1_200
    assert driver.protocol.polled(driver.now_ms) == 1_200
    assert driver.sends() == ["join"]
    driver.now_ms = 1_500
    assert driver.protocol.polled(driver.now_ms) is None
    assert driver.protocol.next_deadline_ms(driver.now_ms) == 2_500


def test_standing_tells_membership_and_fetches_that_found_nothing() -> None:
    member = Driver()
    assert not member.protocol.standing.is_stable
    member.subscribed("orders")
    assert (member.protocol.standing.is_stable, member.protocol.standing.member_epoch) == (True, 2)
    assert member.protocol.standing.partition_count == 1
    for response, empty_fetch_count in [
        (ShareFetchResponse(), 1),
        (ShareFetchResponse(error_code=122), 1),
        (ShareFetchResponse(), 2),
    ]:
        member.now_ms += 5_000
        assert "fetch" in member.sends()
        member.responds(ApiKey.SHARE_FETCH, response)
        assert member.protocol.standing.empty_fetch_count == empty_fetch_count
    response_count = member.protocol.standing.response_count
    member.now_ms += 5_000
    member.sends()
    member.brings("orders")
    assert member.protocol.standing.empty_fetch_count == 2
    assert member.protocol.standing.response_count > response_count


def test_an_error_of_the_membership_is_raised_once() -> None:
    driver = Driver()
    driver.protocol.subscribe(["orders"], driver.now_ms)
    driver.sends()
    driver.responds(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(error_code=GroupMaxSizeReachedError.code))
    assert driver.protocol.refusals
    assert isinstance(driver.protocol.refusals.take(), GroupMaxSizeReachedError)
    assert not driver.protocol.refusals


def _fetch_response(error_code: int = 0) -> ShareFetchResponse:
    """A response without records."""
    partitions = [PartitionResponse(partition_index=0, error_code=error_code)]
    return ShareFetchResponse(responses=[TopicResponse(topic_id="o", partitions=partitions)])


class TestRefusals:
    """Each refusal is reported once, until a request succeeds again."""

    REFUSED = ShareFetchResponse(error_code=GroupQuarantinedError.code, error_message="it failed")
    DENIED = _fetch_response(error_code=InvalidRequestError.code)
    EMPTY = _fetch_response()

    @pytest.mark.parametrize(
        ("responses", "errors"),
        [
            ([REFUSED], [GroupQuarantinedError]),
            ([REFUSED, REFUSED], [GroupQuarantinedError]),
            ([REFUSED, EMPTY, REFUSED], [GroupQuarantinedError, GroupQuarantinedError]),
            ([DENIED, DENIED, EMPTY, DENIED], [InvalidRequestError]),  # records of the partition would end it
            ([DENIED, REFUSED, DENIED], [InvalidRequestError, GroupQuarantinedError]),
            ([ShareFetchResponse(error_code=ShareSessionNotFoundError.code)], []),
            ([ShareFetchResponse(error_code=UnknownMemberIdError.code)], []),
            ([_fetch_response(error_code=UnknownTopicOrPartitionError.code)], []),
        ],
    )
    def test_of_fetches(self, responses: list[ShareFetchResponse], errors: list[type[ApiError]]) -> None:
        driver = Driver().subscribed("orders")
        raised: list[type[ApiError]] = []
        for response in responses:
            driver.now_ms += 30_000
            assert "fetch" in driver.sends()
            driver.responds(ApiKey.SHARE_FETCH, response)
            while (error := driver.protocol.refusals.take()) is not None:
                raised.append(type(error))
        assert raised == errors
        assert driver.protocol.membership.state is not MemberState.FAILED

    def test_records_of_a_partition_end_its_refusal(self) -> None:
        driver = Driver().subscribed("orders")
        for _ in range(2):
            driver.now_ms += 30_000
            driver.sends()
            driver.responds(ApiKey.SHARE_FETCH, self.DENIED)
            assert isinstance(driver.protocol.refusals.take(), InvalidRequestError)
            driver.now_ms += 30_000
            driver.sends()
            driver.brings("orders")
            driver.protocol.take(driver.now_ms)

    def test_a_new_subscription_is_sent_again(self) -> None:
        driver = Driver()
        for _ in range(2):
            driver.protocol.subscribe(["orders"], driver.now_ms)
            driver.sends()
            full = ShareGroupHeartbeatResponse(error_code=GroupMaxSizeReachedError.code)
            driver.responds(ApiKey.SHARE_GROUP_HEARTBEAT, full)
            assert isinstance(driver.protocol.refusals.take(), GroupMaxSizeReachedError)
            assert driver.protocol.membership.state is MemberState.FAILED


@pytest.mark.parametrize("api_key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_GROUP_HEARTBEAT])
def test_a_response_that_is_not_readable_changes_nothing(api_key: ApiKey) -> None:
    driver = Driver().subscribed("orders")
    driver.sends()
    bad = ResponseEnvelope(
        api_key=api_key, correlation_id=PUSHED_CORRELATION_ID, group_id="g", member_id="m", body={"error_code": "?"}
    )
    with pytest.raises(InvalidRequestError, match="error_code"):
        driver.protocol.receive(bad, driver.now_ms)
    driver.brings("orders")
    assert driver.protocol.waiting


class TestClose:
    def test_the_session_closes_with_what_waits_unread_and_the_group_is_left(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        driver.protocol.close(driver.now_ms)
        assert driver.sends() == ["close o:0-9:UNREAD", "leave"]
        driver.acknowledges()
        assert not driver.protocol.is_done
        driver.responds(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatResponse(member_epoch=-1))
        assert driver.protocol.is_done
        assert driver.protocol.next_deadline_ms(driver.now_ms) is None

    def test_records_of_the_fetch_that_was_under_way_go_back_before_the_session_closes(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.protocol.close(driver.now_ms)
        assert driver.sends() == ["acknowledge"]
        driver.brings("orders")
        driver.acknowledges()
        assert driver.sends() == ["close o:0-9:UNREAD", "leave"]

    def test_a_member_that_never_joined_is_done_at_once(self) -> None:
        driver = Driver()
        driver.protocol.close(driver.now_ms)
        assert driver.sends() == []
        assert driver.protocol.is_done

    def test_giving_up_leaves_a_result_for_everything(self) -> None:
        driver = Driver().subscribed("orders")
        driver.sends()
        driver.brings("orders")
        taken = driver.protocol.take(driver.now_ms)
        assert taken is not None
        driver.protocol.acknowledge([taken.ranges[0].acknowledgement(AcknowledgeType.ACCEPT)])
        driver.protocol.close(driver.now_ms)
        driver.sends()
        driver.protocol.give_up()
        assert driver.protocol.is_done is False
        result = driver.protocol.results.take()[0]
        assert (result.topic, result.partition) == ("orders", 0)
        assert result.error is not None
        assert driver.protocol.results.take() == []


def test_the_session_opens_at_once_when_another_processor_is_announced() -> None:
    member = Driver().subscribed("orders")
    assert member.sends() == ["fetch"]
    member.announces(4)
    assert member.sends() == ["fetch"]
    member.receives(member.pending[-1][0], ApiKey.SHARE_FETCH, ShareFetchResponse(), leader_epoch=4)
    assert member.sends() == ["fetch"]
    assert member.sends() == []
    member.announces(4)
    assert member.sends() == []
    member.announces(5)
    assert member.sends() == ["fetch"]
    epochs = [body.share_session_epoch for _, _, body in member.pending if isinstance(body, ShareFetchRequest)]
    assert epochs == [0, 0, 1, 0]


def test_responses_of_a_processor_that_was_taken_over_from_are_dropped() -> None:
    member = Driver().subscribed("orders")
    member.sends()
    member.announces(4)
    member.sends()
    before = member.protocol.standing
    assignment = [TopicPartitions(topic_id="r", topic="returns", partitions=[0])]
    late = ShareGroupHeartbeatResponse(member_epoch=9, assignment=assignment)
    member.receives(PUSHED_CORRELATION_ID, ApiKey.SHARE_GROUP_HEARTBEAT, late, leader_epoch=3)
    member.announces(3)
    for correlation_id, api_key, _ in list(member.pending):
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


def test_a_response_that_comes_again_is_no_empty_fetch() -> None:
    member = Driver().subscribed("orders")
    member.sends()
    correlation_id = member.pending[-1][0]
    for _ in range(2):
        member.receives(correlation_id, ApiKey.SHARE_FETCH, ShareFetchResponse())
    assert member.protocol.standing.empty_fetch_count == 1
