"""Group members against the real actors: what they get, keep, return, and survive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sharegroup.client import member_threads
from sharegroup.client.admin import AdminClient
from sharegroup.client.group_member import GroupMember
from sharegroup.client.held_records import Acquisition
from sharegroup.client.pending_acknowledgements import Acknowledged
from sharegroup.client.settings import FetchSettings, MemberSettings
from sharegroup.config.broker import BrokerConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import (
    GroupMaxSizeReachedError,
    InvalidRecordStateError,
    LogError,
    LogUnavailableError,
    RequestTimedOutError,
    ShareGroupError,
)
from sharegroup.logs.local import LocalLog
from sharegroup.logs.local_follower import LocalFollower
from sharegroup.logs.log_clock import LogClock, wall_ms
from sharegroup.logs.port import LogRecord, NewRecord
from sharegroup.protocol.api_key import ApiKey
from tests.client.processor_peer import BROKER, REQUESTS, RESPONSES, ProcessorPeer
from tests.support.eventually import DEADLINE_S, WAIT_MS, eventually

ACCEPT, RELEASE, UNREAD = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.UNREAD
SETTINGS = MemberSettings(group_id="g", fetch=FetchSettings(max_records=10, batch_size=10))

Join = Callable[..., GroupMember]


@pytest.fixture
def orders(log: LocalLog, processor: ProcessorPeer) -> str:
    """A topic of one partition with 50 records, from the first of which the group begins."""
    AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
    log.create_topic("orders", 1, {})
    log.append("orders", 0, [NewRecord(None, b"%d" % i) for i in range(50)])
    return "orders"


@pytest.fixture
def join(log: LocalLog, processor: ProcessorPeer) -> Iterator[Join]:
    """Makes members of the group g that subscribe; closed at the end."""
    members: list[GroupMember] = []

    def joined(*topics: str, settings: MemberSettings = SETTINGS, log: LocalLog = log) -> GroupMember:
        member = GroupMember(log, settings)
        members.append(member)
        member.subscribe(topics or ["orders"])
        return member

    yield joined
    for member in members:
        member.close(WAIT_MS)


def taken(member: GroupMember) -> Acquisition:
    acquisition = member.next_acquisition(WAIT_MS)
    assert acquisition is not None
    return acquisition


def take_for_ever(member: GroupMember) -> None:
    while True:
        taken(member)


def span(acquisition: Acquisition) -> tuple[int, int, int]:
    """First offset, last offset and delivery count of the only range."""
    (held,) = acquisition.ranges
    return held.first_offset, held.last_offset, held.delivery_count


def say(member: GroupMember, acquisition: Acquisition, kind: AcknowledgeType = ACCEPT) -> None:
    member.acknowledge(held.acknowledgement(kind) for held in acquisition.ranges)


def settled(results: Sequence[Acknowledged]) -> list[tuple[str, int, int, int, type[Exception] | None]]:
    return [
        (
            result.topic,
            result.partition,
            acknowledgement.first_offset,
            acknowledgement.last_offset,
            type(result.error) if result.error else None,
        )
        for result in results
        for acknowledgement in result.acknowledgements
    ]


def test_records_are_acquired_acknowledged_and_not_seen_again(orders: str, join: Join) -> None:
    member = join()
    first = taken(member)
    assert span(first) == (0, 9, 1)
    assert first.ranges[0].topic == "orders"
    say(member, first)
    assert settled(member.flush(WAIT_MS)) == [("orders", 0, 0, 9, None)]
    assert member.take_results() == []
    assert span(taken(member)) == (10, 19, 1)


@pytest.mark.parametrize("ahead_ms", [16_000, -3_600_000])
@pytest.mark.usefixtures("processor")
def test_a_member_whose_clock_is_wrong_gets_its_records(log: LocalLog, orders: str, ahead_ms: int) -> None:
    with LocalLog(log.path, LogClock(lambda: wall_ms() + ahead_ms)) as own_log:
        member = GroupMember(own_log, SETTINGS)
        member.subscribe([orders])
        acquisition = taken(member)
        assert span(acquisition) == (0, 9, 1)
        say(member, acquisition)
        assert settled(member.flush(WAIT_MS)) == [("orders", 0, 0, 9, None)]
        member.close(WAIT_MS)


def test_acquisitions_are_fetched_ahead(orders: str, join: Join) -> None:
    member = join()
    assert [span(taken(member)) for _ in range(5)] == [(first, first + 9, 1) for first in range(0, 50, 10)]


def test_a_parked_fetch_brings_records_that_are_produced_later(log: LocalLog, orders: str, join: Join) -> None:
    member = join()
    for _ in range(5):
        say(member, taken(member))
    assert member.next_acquisition(0) is None
    log.append("orders", 0, [NewRecord(None, b"late")])
    assert span(taken(member)) == (50, 50, 1)


def test_acknowledgements_do_not_wait_for_a_parked_fetch(orders: str, join: Join, processor: ProcessorPeer) -> None:
    patient = replace(SETTINGS, fetch=FetchSettings(max_records=100, max_wait_ms=600_000, request_timeout_ms=700_000))
    member = join(settings=patient)
    everything = taken(member)
    eventually(lambda: len(processor.sent(ApiKey.SHARE_FETCH)) == 2, "a fetch that is parked")
    say(member, everything, RELEASE)
    assert settled(member.flush(WAIT_MS)) == [("orders", 0, 0, 49, None)]
    assert span(taken(member)) == (0, 49, 2)


def test_a_second_member_gets_what_the_first_does_not_hold(orders: str, join: Join) -> None:
    first = join()
    held = taken(first)
    second = join()
    other = taken(second)
    assert span(other)[0] > span(held)[1]
    say(first, held)
    say(second, other)
    assert [settled(m.flush(WAIT_MS))[0][4] for m in (first, second)] == [None, None]


def test_an_acknowledgement_of_what_another_member_holds_fails(orders: str, join: Join) -> None:
    held = taken(join(settings=replace(SETTINGS, fetch=FetchSettings(max_records=100))))
    other = join()
    say(other, held)
    assert settled(other.flush(WAIT_MS)) == [("orders", 0, 0, 49, InvalidRecordStateError)]


def test_a_lost_session_costs_no_acknowledgement(orders: str, join: Join, processor: ProcessorPeer) -> None:
    member = join()
    acquisition = taken(member)
    processor.lose_sessions()
    say(member, acquisition)
    assert ("orders", 0, 0, 9, None) in settled(member.flush(WAIT_MS))


def test_requests_are_sent_again_until_the_processor_is_back(orders: str, join: Join, processor: ProcessorPeer) -> None:
    impatient = FetchSettings(max_records=10, batch_size=10, max_wait_ms=50, request_timeout_ms=100)
    member = join(settings=replace(SETTINGS, fetch=impatient))
    acquisition = taken(member)
    with processor.stalled():
        say(member, acquisition)
        assert member.flush(300) == []
        assert member.unconfirmed_partitions() == {(acquisition.ranges[0].topic_id, 0)}
    assert settled(member.flush(WAIT_MS)) == [("orders", 0, 0, 9, None)]
    assert span(taken(member)) == (10, 19, 1)
    assert member.take_results() == []


class TestClose:
    def test_what_was_taken_is_released_and_what_waited_was_never_delivered(self, orders: str, join: Join) -> None:
        first = join()
        assert span(taken(first)) == (0, 9, 1)
        assert first.wait(WAIT_MS, lambda: first.waiting_after(0) is not None)
        assert settled(first.close(WAIT_MS)) == [("orders", 0, 10, 19, None)]
        second = join(settings=replace(SETTINGS, fetch=FetchSettings(max_records=100)))
        ranges = [(held.first_offset, held.last_offset, held.delivery_count) for held in taken(second).ranges]
        assert ranges == [(0, 9, 2), (10, 49, 1)]

    def test_the_last_acknowledgements_are_sent(self, orders: str, join: Join) -> None:
        first = join(settings=replace(SETTINGS, fetch=FetchSettings(max_records=100)))
        acquisition = taken(first)
        results = first.close(WAIT_MS, [held.acknowledgement(ACCEPT) for held in acquisition.ranges])
        assert settled(results) == [("orders", 0, 0, 49, None)]
        assert join().next_acquisition(100) is None

    def test_without_a_response_in_time_they_have_failed(
        self, orders: str, join: Join, processor: ProcessorPeer
    ) -> None:
        member = join(settings=replace(SETTINGS, fetch=FetchSettings(max_records=100)))
        acquisition = taken(member)
        with processor.stalled():
            say(member, acquisition)
            assert settled(member.close(50)) == [("orders", 0, 0, 49, RequestTimedOutError)]
        assert member.close(50) == []

    def test_without_a_log_they_have_failed_too(self, log_path: Path, orders: str, join: Join) -> None:
        with LocalLog(log_path) as own:
            member = join(log=own)
            acquisition = taken(member)
        results = member.close(WAIT_MS, [held.acknowledgement(ACCEPT) for held in acquisition.ranges])
        assert ("orders", 0, 0, 9, RequestTimedOutError) in settled(results)

    def test_afterwards_nothing_works_and_nothing_is_lost_silently(self, orders: str, join: Join) -> None:
        member = join()
        acquisition = taken(member)
        member.close(WAIT_MS)
        for call in (lambda: member.wait(0, lambda: False), lambda: member.next_acquisition(0)):
            with pytest.raises(ShareGroupError, match="is closed"):
                call()
        with pytest.raises(ShareGroupError, match="is closed"):
            say(member, acquisition)
        assert settled(member.close(0)) == [("orders", 0, 0, 9, RequestTimedOutError)]

    def test_somebody_who_waits_for_records_hears_of_it(self, log: LocalLog, orders: str, join: Join) -> None:
        log.create_topic("empty", 1, {})
        member = join("empty")
        received: list[str] = []

        def wait_for_ever() -> None:
            try:
                member.next_acquisition(None)
            except ShareGroupError as error:
                received.append(error.message)

        waiter = threading.Thread(target=wait_for_ever)
        waiter.start()
        member.close(WAIT_MS)
        waiter.join(DEADLINE_S)
        assert received == [f"The member {member.member_id} is closed."]


def test_a_member_that_never_subscribed_closes(log: LocalLog, processor: ProcessorPeer) -> None:
    assert GroupMember(log, SETTINGS).close(WAIT_MS) == []
    assert processor.requests == []


@pytest.mark.slow
def test_a_full_group_refuses_a_member_once(log: LocalLog) -> None:
    with ProcessorPeer(log, BROKER.model_copy(update={"group_share_max_size": 1})) as processor:
        first = GroupMember(log, SETTINGS)
        first.subscribe(["orders"])
        eventually(lambda: bool(processor.sent(ApiKey.SHARE_GROUP_HEARTBEAT)), "the first member's join")
        second = GroupMember(log, SETTINGS)
        second.subscribe(["orders"])
        with pytest.raises(GroupMaxSizeReachedError, match="maximum capacity of 1 members"):
            second.next_acquisition(WAIT_MS)
        assert second.next_acquisition(50) is None
        first.close(WAIT_MS)
        second.close(WAIT_MS)


@pytest.mark.long("a wait beyond the interval of polls")
@pytest.mark.slow
def test_somebody_who_waits_is_not_taken_for_somebody_who_does_not_poll(
    log: LocalLog, join: Join, processor: ProcessorPeer
) -> None:
    log.create_topic("empty", 1, {})
    member = join("empty", settings=replace(SETTINGS, max_poll_interval_ms=2_000))

    def left() -> bool:
        return any(envelope.body["member_epoch"] == -1 for envelope in processor.sent(ApiKey.SHARE_GROUP_HEARTBEAT))

    assert member.next_acquisition(4_000) is None
    assert not left()
    eventually(left, "the leave")


def test_an_unsubscribed_member_leaves_and_its_acknowledgements_still_count(
    orders: str, join: Join, processor: ProcessorPeer
) -> None:
    member = join()
    acquisition = taken(member)
    member.subscribe([])
    eventually(
        lambda: any(e.body["member_epoch"] == -1 for e in processor.sent(ApiKey.SHARE_GROUP_HEARTBEAT)), "the leave"
    )
    say(member, acquisition)
    assert ("orders", 0, 0, 9, None) in settled(member.flush(WAIT_MS))
    assert member.next_acquisition(50) is None
    member.subscribe([orders])
    assert span(taken(member)) == (10, 19, 1)


def test_a_process_goes_on_being_a_member_whose_locks_were_kept(join: Join, orders: str) -> None:
    before = join()
    held = taken(before)
    before.close(WAIT_MS, keeps_locks=True)
    after = join(settings=replace(SETTINGS, member_id=before.member_id, first_correlation_id=1_000))
    assert taken(after).ranges[0].first_offset > held.ranges[0].last_offset
    after.acknowledge([held.ranges[0].acknowledgement(ACCEPT)])
    assert [result.error for result in after.flush(WAIT_MS)] == [None]


def test_an_end_of_the_thread_is_raised_by_every_call(log_path: Path, orders: str, join: Join) -> None:
    with LocalLog(log_path) as own:
        member = join(log=own)
        acquisition = taken(member)
    with pytest.raises(LogError, match="closed"):
        take_for_ever(member)
    for call in (
        lambda: member.next_acquisition(0),
        lambda: say(member, acquisition),
        lambda: member.flush(WAIT_MS),
    ):
        with pytest.raises(LogError, match="closed"):
            call()
    assert settled(member.close(WAIT_MS))[-1] == ("orders", 0, 0, 9, RequestTimedOutError)


def test_a_response_topic_that_was_deleted_is_read_again_once_it_is_there(
    log: LocalLog, orders: str, join: Join, processor: ProcessorPeer
) -> None:
    fetch = FetchSettings(max_records=10, max_wait_ms=100, request_timeout_ms=500)
    member = join(settings=replace(SETTINGS, fetch=fetch))
    acquisition = taken(member)
    with processor.stalled():
        log.delete_topic(RESPONSES)
        say(member, acquisition)
        # The response to a fetch ahead, which is published meanwhile, creates the topic, too.
        log.create_topic(RESPONSES, 3, {}, if_not_exists=True)
    assert ("orders", 0, 0, 9, None) in settled(member.flush(WAIT_MS))


class MoodyLog(LocalLog):
    """A local log that is not available for the first calls after `sulk`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sulks = {"append": 0, "take": 0}

    def sulk(self, call: str) -> None:
        if self.sulks[call]:
            self.sulks[call] -= 1
            raise LogUnavailableError(f"The log is not available for {call}.")

    def append(self, topic: str, partition: int, records: Sequence[NewRecord], *, may_repeat: bool = False) -> int:
        self.sulk("append")
        return super().append(topic, partition, records, may_repeat=may_repeat)

    def follow(self, topic: str, positions: Mapping[int, int]) -> LocalFollower:
        follower = super().follow(topic, positions)
        take = follower.take

        def moody(max_records: int, max_bytes: int, timeout_ms: int) -> list[LogRecord]:
            self.sulk("take")
            return take(max_records, max_bytes, timeout_ms)

        follower.take = moody  # type: ignore[method-assign]
        return follower


@pytest.mark.parametrize("call", ["append", "take"])
def test_a_log_that_is_not_available_for_a_while_is_tried_again(
    call: str, log_path: Path, orders: str, join: Join
) -> None:
    with MoodyLog(log_path) as moody:
        member = join(log=moody)
        acquisition = taken(member)
        moody.sulks[call] = 2
        say(member, acquisition)
        eventually(lambda: moody.sulks[call] == 0, "two failures")
        assert ("orders", 0, 0, 9, None) in settled(member.flush(WAIT_MS))
        member.close(WAIT_MS)


class HangingLog(LocalLog):
    """A local log whose appends wait while it is away, as those to Kafka do."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_here = threading.Event()
        self.is_here.set()

    def append(self, topic: str, partition: int, records: Sequence[NewRecord], *, may_repeat: bool = False) -> int:
        self.is_here.wait()
        return super().append(topic, partition, records, may_repeat=may_repeat)


@pytest.fixture
def hanging(log_path: Path) -> Iterator[HangingLog]:
    with HangingLog(log_path) as hanging:
        yield hanging
        hanging.is_here.set()


class TestLogThatIsAway:
    FETCH = FetchSettings(max_records=10, batch_size=10, max_wait_ms=50, request_timeout_ms=100)

    def test_nobody_waits_for_it_and_nothing_is_lost(self, hanging: HangingLog, orders: str, join: Join) -> None:
        member = join(settings=replace(SETTINGS, fetch=self.FETCH), log=hanging)
        acquisition = taken(member)
        hanging.is_here.clear()
        say(member, acquisition)
        assert member.flush(300) == []
        member.next_acquisition(300)
        member.subscribe([orders])
        assert member.unconfirmed_partitions() == {(acquisition.ranges[0].topic_id, 0)}
        hanging.is_here.set()
        assert ("orders", 0, 0, 9, None) in settled(member.flush(WAIT_MS))
        member.close(WAIT_MS)

    @pytest.mark.slow
    def test_an_acknowledgement_fails_in_time(self, hanging: HangingLog, orders: str, join: Join) -> None:
        fetch = replace(self.FETCH, acknowledge_timeout_ms=3_000)
        member = join(settings=replace(SETTINGS, fetch=fetch), log=hanging)
        acquisition = taken(member)
        hanging.is_here.clear()
        say(member, acquisition)
        failed = settled(member.flush(WAIT_MS))
        assert failed == [("orders", 0, 0, 9, RequestTimedOutError)]
        hanging.is_here.set()
        # The member goes on; a late acknowledgement may have been applied after all.
        say(member, taken(member))
        assert settled(member.flush(WAIT_MS))[-1][4] is None
        member.close(WAIT_MS)

    def test_a_close_does_not_wait_for_ever(
        self, hanging: HangingLog, orders: str, join: Join, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(member_threads, "_LAST_SEND_MS", 100)
        member = join(log=hanging)
        acquisition = taken(member)
        hanging.is_here.clear()
        say(member, acquisition)
        assert ("orders", 0, 0, 9, RequestTimedOutError) in settled(member.close(100))


def test_members_of_a_group_with_several_partitions_share_them(log: LocalLog, join: Join, orders: str) -> None:
    log.create_topic("wide", 4, {})
    for partition in range(4):
        log.append("wide", partition, [NewRecord(None, b"v")] * 20)
    members = [join("wide"), join("wide")]
    got: dict[tuple[int, int], int] = {}
    guard = threading.Lock()

    def work(member: GroupMember) -> None:
        def has_all() -> bool:
            if (acquisition := member.next_acquisition(100)) is not None:
                with guard:
                    for held in acquisition.ranges:
                        for offset in range(held.first_offset, held.last_offset + 1):
                            got[held.partition, offset] = got.get((held.partition, offset), 0) + 1
                say(member, acquisition)
            return len(got) == 80

        eventually(has_all, "80 records")

    threads = [threading.Thread(target=work, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {(partition, offset): 1 for partition in range(4) for offset in range(20)}


@pytest.mark.slow
def test_a_topic_without_room_for_more_members_is_no_error(log: LocalLog) -> None:
    """Of a broker that allows one share session, the second member gets its records once the first is gone."""
    broker = BrokerConfig(
        group_share_max_size=1,
        group_share_max_share_sessions=1,
        group_share_assignment_interval_ms=0,
    )
    log.create_topic("orders", 1, {})
    with ProcessorPeer(log, broker):
        AdminClient(log).alter_group_config("g", {"share.auto.offset.reset": "earliest"})
        log.append("orders", 0, [NewRecord(None, b"v")] * 3)
        member = GroupMember(log, SETTINGS)
        member.subscribe(["orders"])
        assert span(taken(member)) == (0, 2, 1)
        member.close(WAIT_MS)
        again = GroupMember(log, SETTINGS)
        again.subscribe(["orders"])
        assert span(taken(again)) == (0, 2, 2)
        again.close(WAIT_MS)


def test_a_member_that_cannot_be_locked_leaves_nothing_open(log: LocalLog) -> None:
    for topic in (REQUESTS, RESPONSES):
        log.create_topic(topic, 1)
    log.path.with_name(f"{log.path.name}.members").write_text("not a folder")
    threads, watches = threading.active_count(), watch_count()
    with pytest.raises(LogUnavailableError, match="cannot be made"):
        GroupMember(log, SETTINGS)
    assert (threading.active_count(), watch_count()) == (threads, watches)


def watch_count() -> int:
    """The watches of files that this process has open."""
    return sum("inotify" in str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
